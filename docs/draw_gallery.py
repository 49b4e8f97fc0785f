"""Draw the pictures of docs/gallery.md: after each block of code the axes that it made, by the name in the page."""

import re
from pathlib import Path
from typing import Any

import numpy as np

import jointmdp as jm

PAGE = Path(__file__).with_name("gallery.md")
PART = re.compile(r"^```python\n(.*?)^```$|^!\[[^]]*\]\((\S+)\)$", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Run the page."""
    namespace: dict[str, Any] = {}
    for code, picture in PART.findall(PAGE.read_text(encoding="utf-8")):
        if code:
            namespace.pop("ax", None)
            namespace.pop("axes", None)
            exec(code, namespace)
        else:
            drawn = namespace.get("ax", namespace.get("axes"))
            print(jm.plots.save(np.ravel(drawn)[0], PAGE.parent / picture))


if __name__ == "__main__":
    main()
