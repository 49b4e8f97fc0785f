"""The report in headless Chromium: clicks, keys, a phone, the dark, and nothing on the console.

`make test-browser` runs this; JOINTMDP_SCREENSHOTS=folder keeps pictures to look at.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import jointmdp as jm

pytestmark = pytest.mark.browser

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
# As root in a container there is no sandbox; and nothing shall be looked up in the background.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LARGEST = 5 * 2**20  # bytes of a page
MODELS = ("grid", "inventory", "lake", "large")
SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const e of list.getEntries()) sum += e.value; })
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""


def solution_of(name: str) -> tuple[jm.results.Solution, dict[str, Any]]:
    if name == "grid":
        return jm.evaluate(*jm.envs.windy_gridworld(5, 0.99)), {"title": "Windy gridworld"}
    if name == "inventory":
        model, policy = jm.envs.inventory()
        return jm.evaluate(model.with_sharing("time"), policy), {"title": "How much to order?"}
    if name == "lake":
        lake = jm.from_gymnasium(gymnasium.make("FrozenLake8x8-v1"), discount=0.95)
        settings = {"title": "FrozenLake 8×8", "grid": (8, 8), "limits": jm.Limits(seconds=10)}
        return jm.evaluate(lake, jm.optimal_policy(lake)), settings
    large = jm.evaluate(*jm.envs.windy_gridworld(50, 0.99))
    return large, {"title": "2,500 states", "limits": jm.Limits(seconds=10)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[jm.results.Solution, Path]]:
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name in MODELS:
        solution, settings = solution_of(name)
        found[name] = solution, solution.report(folder / f"{name}.html", **settings)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "Chromium is needed: apt-get install chromium, or CHROMIUM=path"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Opened:
    """A page that is ready, and what was said on its console."""

    def __init__(self, browser: Any, path: Path, address: str = "", **settings: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **settings})
        self.page, self.said, self.asked = self.context.new_page(), [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri() + address)
        self.page.wait_for_selector("html[data-ready=yes]")
        self.ready = self.page.evaluate("performance.getEntriesByName('ready')[0].startTime")

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).inner_text())

    def shot(self, name: str) -> None:
        if folder := os.environ.get("JOINTMDP_SCREENSHOTS"):
            self.page.screenshot(path=os.path.join(folder, f"report-{name}.png"))

    def close(self) -> None:
        assert self.said == []
        assert len(self.asked) == 1, self.asked
        self.context.close()


@pytest.mark.parametrize("name", MODELS)
def test_pages_are_small_and_ready_within_a_second(name: str, browser: Any, pages: Any) -> None:
    _, path = pages[name]
    assert path.stat().st_size <= LARGEST
    opened = Opened(browser, path)
    print(f"{name}: {path.stat().st_size / 2**20:.2f} MiB, ready after {opened.ready:.0f} ms")
    assert opened.ready <= 1000
    assert opened.page.evaluate(SHIFTS) < 0.01
    opened.shot(name)
    opened.close()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("kind", "settings"),
    [("dark", {"color_scheme": "dark"}), ("phone", {"viewport": {"width": 390, "height": 844}, "has_touch": True})],
)
def test_a_phone_and_the_dark(name: str, kind: str, settings: Any, browser: Any, pages: Any) -> None:
    opened = Opened(browser, pages[name][1], **settings)
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    back = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", back)[:3])) < 200) is (kind == "dark")
    opened.shot(f"{name}-{kind}")
    opened.close()


def test_clicks_show_what_the_solution_says(browser: Any, pages: Any) -> None:
    solution, path = pages["inventory"]
    opened = Opened(browser, path)
    page = opened.page
    page.get_by_role("button", name="stock 4", exact=True).click()
    assert opened.text("#state-title") == "In stock 4"
    page.select_option("#first", label="order 4")
    page.select_option("#second", label="order 0")
    gap = solution.gap("stock 4", "order 4", "order 0")
    assert f"order 4 gives {gap.mean:.4g} more than order 0; one difference varies by ± {gap.std:.4g}" in opened.text(
        "#answer"
    )
    assert f"{100 * gap.superiority().estimate:.1f} of 100 cases" in opened.text("#answer")
    assert f"{gap.superiority().estimate:.3f}" in opened.text("#numbers")
    assert f"{gap.variance_by_step().table()[0]['share']:.0%}".replace("%", " %") in opened.text("#by-step")
    page.click("#swap")
    assert f"order 0 gives {gap.mean:.4g} less than order 4" in opened.text("#answer")
    reversed_law = solution.gap("stock 4", "order 0", "order 4")
    assert f"{reversed_law.superiority().estimate:.3f}" in opened.text("#numbers")
    runs = reversed_law.replications_to_select()
    assert f"{runs.paired:,}" in opened.text("#sharing")
    assert f"{runs.unpaired:,}" in opened.text("#sharing")
    page.select_option("#first", label="order 4")  # the same action twice: the other one gives way
    assert page.input_value("#second") != page.input_value("#first")
    page.locator("#correlation td button").first.click()
    assert (
        page.locator("#law svg")
        .get_attribute("aria-label")
        .startswith("Probability that order 0 gives at most x more than order 1")
    )
    address = page.evaluate("location.hash")
    opened.close()
    again = Opened(browser, path, address)
    assert again.text("#state-title") == "In stock 4"
    assert again.page.input_value("#second") == "1"
    again.close()


def test_the_table_is_searched_and_sorted(browser: Any, pages: Any) -> None:
    solution, path = pages["large"]
    opened = Opened(browser, path)
    page = opened.page
    assert opened.text("#shown") == "50 of 2,500 states"
    page.click("#more")
    assert opened.text("#shown") == "250 of 2,500 states"
    page.fill("#search", "(49,")
    assert opened.text("#shown") == "50 of 50 states"
    page.fill("#search", "")
    page.check("#only")
    mean = np.nan_to_num(solution.mean, nan=-np.inf)
    own = solution.policy.argmax(axis=1)
    gain = mean.max(axis=1) - mean[np.arange(len(own)), own]
    count = int((gain > solution.certificate.mean_error).sum())
    assert f"of {count:,} states" in opened.text("#shown")
    page.uncheck("#only")
    header = page.locator("#states th").filter(has_text="±")
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    shown = [
        float(x.replace(",", "").replace("–", "nan"))
        for x in page.locator("#states tbody td:nth-child(5)").all_inner_texts()
    ]
    assert np.all(np.diff(shown) <= 0)
    header.get_by_role("button").click()
    assert header.get_attribute("aria-sort") == "ascending"
    opened.close()


def test_all_of_it_by_keyboard(browser: Any, pages: Any) -> None:
    _, path = pages["grid"]
    opened = Opened(browser, path, "#state=0")
    page, keys = opened.page, opened.page.keyboard
    keys.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    keys.press("Tab")
    assert page.evaluate("document.activeElement.id") == "cell-0"
    keys.press("ArrowUp")
    assert opened.text("#state-title") == "In (0,1)"
    keys.press("ArrowRight")
    assert opened.text("#state-title") == "In (1,1)"
    assert page.evaluate("document.activeElement.id") == "cell-6"
    keys.press("Tab")
    assert page.evaluate("document.activeElement.id") == "search"
    keys.type("(3,3)")
    for _ in range(8):  # over the box and the six headers to the one state that is left
        keys.press("Tab")
    keys.press("Enter")
    assert opened.text("#state-title") == "In (3,3)"
    assert page.evaluate("document.activeElement.id") == "gap"
    opened.close()
