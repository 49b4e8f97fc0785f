"""One self-contained HTML file out of the numbers that it shows: styles, script and data are in it."""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from jointmdp.files.atomic_write import FilePath, write_text
from jointmdp.files.strict_json import strict

ASSETS = "assets"


def write_page(data: dict[str, Any], path: FilePath) -> Path:
    """Write the report; a reader finds the old file or the new one, never a part."""
    write_text(path, page(data))
    return Path(path)


def page(data: dict[str, Any]) -> str:
    """The report as text. Names from models are data, never markup."""
    numbers = json.dumps(strict(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": html.escape(str(data["title"])),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "data": numbers.replace("<", "\\u003c"),  # no name can end the script
    }
    # In one pass: what is put in may itself hold such a mark.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return resources.files("jointmdp.report").joinpath(ASSETS, name).read_text(encoding="utf-8")
