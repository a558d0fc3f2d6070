"""Explorer pages opened from disk in a real browser with its network cut."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from explorer_server import Running
from playwright.sync_api import Browser, Page
from support.chromium import CHROMIUM

from normscope import Analysis
from normscope.results.explanation import Explanation
from normscope.results.similarity import Similarity

_PLAIN = ("own=shown", "layer=1", "scale=root")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CHROMIUM is None:
        line = "NO BROWSER: the explorer was NOT tested. Install chromium (apt-get install chromium)."
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture(scope="session")
def analysis(analyzer: Any) -> Analysis:
    """A real analysis, with heads."""
    return analyzer.analyze("The unbelievably good chef opened a restaurant.", heads=True)


class Shown:
    """An explorer page in the browser, and the ways a user deals with it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.trouble: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.trouble.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, url: str) -> Shown:
        self.page.goto(url)
        self.page.locator(".heatmap[data-drawn], .table table, .head, .attributed button, .chip").first.wait_for(
            state="attached"
        )
        self.settle()
        return self

    def settle(self) -> None:
        """Wait until everything that a change brings about is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
        )

    def fragment(self) -> str:
        self.settle()
        return self.page.evaluate("() => location.hash.slice(1)")

    def go(self, fragment: str) -> None:
        self.page.evaluate("(text) => { location.hash = text; }", fragment)
        self.settle()

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.settle()

    def title(self) -> str:
        self.settle()
        return self.page.locator("h1:visible").first.inner_text()

    def step(self, scope: str) -> None:
        self.page.locator(f".step[data-scope={scope}]").click()
        self.settle()

    def cell(self, row: int, column: int, stage: int = 0) -> tuple[float, float]:
        """Where a cell of the heat map is on the page."""
        heatmap = self.page.locator(".heatmap").nth(stage)
        left, top, size = heatmap.evaluate("(element) => JSON.parse(element.dataset.layout)")
        box = heatmap.bounding_box()
        assert box is not None
        return box["x"] + left + (column + 0.5) * size, box["y"] + top + (row + 0.5) * size

    def export(self, kind: str) -> bytes:
        self.page.locator(".exports").evaluate("(element) => { element.open = true; }")
        with self.page.expect_download() as download:
            self.page.locator(f"[data-export={kind}]").click()
        self.page.locator(".exports").evaluate("(element) => { element.open = false; }")
        return Path(download.value.path()).read_bytes()

    def values(self) -> dict[tuple[str, str, str], float]:
        """What the page exports as CSV, by query, key and key group."""
        rows = csv.DictReader(io.StringIO(self.export("csv").decode()))
        return {
            (f"{row['query']} {row['query_token']}", row["key_group"], f"{row['key']} {row['key_token']}"): float(
                row["value"]
            )
            for row in rows
        }


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Shown]]:
    """Write the page of some results and open it from disk, with no network."""
    contexts: list[Any] = []

    def shown(
        *results: Analysis | Explanation | Similarity,
        fragment: str = "",
        precision: str = "display",
        plain: bool = True,
        **options: Any,
    ) -> Shown:
        """`plain`: from the first layer on, with own tokens and root colours, as Python has it, unless said otherwise."""
        from normscope.explorer import write_page  # noqa: PLC0415  (after the root conftest's import hook)

        path = write_page(*results, path=tmp_path / "page.html", precision=precision)
        options = {"viewport": {"width": 1440, "height": 900}, "accept_downloads": True, "offline": True, **options}
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(60_000)
        usual = _PLAIN if plain and any(isinstance(result, Analysis) for result in results) else ()
        said = [one for one in usual if f"{one.partition('=')[0]}=" not in fragment] + [fragment]
        return Shown(context.new_page()).open(f"{path.as_uri()}#{'&'.join(filter(None, said))}")

    yield shown
    for context in contexts:
        context.close()


@pytest.fixture
def run() -> Iterator[Callable[[Any], Running]]:
    started: list[Running] = []

    def start(app: Any) -> Running:
        started.append(Running(app))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(run: Callable[[Any], Running], analyzer: Any) -> Running:
    from normscope.explorer.server import Limits, WebApp  # noqa: PLC0415  (after the root conftest's import hook)

    return run(WebApp({"mini": analyzer}, Limits(tokens=40, characters=2_000)).starlette())
