"""The explorer in a notebook that was really executed, then shown in a browser; and the frame for those without widgets."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from explorer_samples import HOSTILE, sample
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from normscope.explorer.page import bundle, frame
from normscope.explorer.payload import payload_json
from normscope.explorer.widget import ExplorerWidget

CELLS = [
    "import sys; sys.path.insert(0, FOLDER)\nfrom explorer_samples import sample\na = sample(['The', 'cat', 'sleeps'])",
    "a.explore()",
    "a",
]
# What anywidget's own front end gives to a widget: a model to read from, write to and send messages with.
MOUNT = """async ([script, state]) => {
    const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
    const { default: widget } = await import(url);
    const listeners = {};
    window.sent = [];
    window.state = state;
    window.tell = (name, ...values) => (listeners[name] ?? []).forEach((listener) => listener(...values));
    const model = {
        get: (name) => state[name],
        set: (name, value) => { state[name] = value; },
        save_changes: () => {},
        on: (name, listener) => (listeners[name] ??= []).push(listener),
        off: (name, listener) => { listeners[name] = listeners[name].filter((other) => other !== listener); },
        send: (content) => window.sent.push(content),
    };
    const el = document.createElement("main");
    document.body.append(el);
    window.cleanUp = await widget.render({ model, el });
    window.listening = () => Object.values(listeners).flat().length;
}"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(Path(__file__).parent)
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(source.replace("FOLDER", repr(folder))) for source in CELLS]
    NotebookClient(made, timeout=240, kernel_name="python3", store_widget_state=True).execute(
        cwd=str(tmp_path_factory.mktemp("notebook"))
    )
    return made


def test_a_widget_of_an_executed_notebook_works(notebook: Any, browser: Any) -> None:
    view = notebook.cells[1].outputs[0]["data"]["application/vnd.jupyter.widget-view+json"]
    state = notebook.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"][view["model_id"]][
        "state"
    ]
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto("about:blank")
    page.evaluate(MOUNT, [state["_esm"], {"payload": state["payload"], "state": state["state"]}])
    page.locator(".heatmap[data-drawn]").wait_for(state="attached")
    page.locator(".step[data-scope=AttnRes]").click()
    page.locator("h1", has_text=re.compile(r"^Layer \d+, attention \+ residual$")).wait_for()
    page.wait_for_function("() => window.state.state.split('&').includes('scope=AttnRes')")
    assert trouble == []
    page.close()


def test_a_notebook_without_widgets_shows_the_page_in_a_frame(notebook: Any, browser: Any, tmp_path: Path) -> None:
    (html,) = [output["data"]["text/html"] for output in notebook.cells[2].outputs if "data" in output]
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{html}</body>", encoding="utf-8")
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(path.as_uri())
    inside = page.frame_locator("iframe")
    inside.locator(".heatmap[data-drawn]").wait_for(state="attached")
    inside.locator(".step[data-scope=Attn]").click()
    inside.locator("h1", has_text=re.compile(r"^Layer \d+, attention$")).wait_for()
    page.close()


def test_a_view_that_goes_away_stops_listening_and_writing(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto("about:blank")
    state = {"payload": payload_json(sample(["The", "cat", "sleeps"])), "state": "scope=AttnW"}
    page.evaluate(MOUNT, [bundle(), state])
    page.locator(".heatmap[data-drawn]").wait_for(state="attached")
    page.locator(".exports summary").click()
    page.locator("[data-export=json]").click()  # asks the kernel, which does not respond
    page.wait_for_function("() => window.sent.length > 0")
    page.get_by_role("button", name="Play the chain").click()
    assert page.evaluate("() => window.listening()") == 2
    page.evaluate("() => { window.cleanUp(); window.state.state = 'as it was'; window.cleanUp(); }")
    page.wait_for_timeout(1_500)  # more than a step of the chain that was being played
    assert page.evaluate("() => window.listening()") == 0
    assert page.evaluate("() => window.state.state") == "as it was"
    assert (
        page.evaluate("() => document.querySelector('main').shadowRoot.querySelector('.root').childElementCount") == 0
    )
    page.close()


@pytest.mark.filterwarnings("ignore")
def test_the_widget_gives_exact_values(browser: Any) -> None:
    analysis = sample(["a", "b", "c"])
    widget = ExplorerWidget(analysis)
    sent: list[tuple[Any, Any]] = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))  # type: ignore[method-assign]
    asked = {"kind": "exact", "id": 1, "analysis": 0, "encoder": False, "scope": "Attn", "layer": 2, "head": 0}
    widget._answer(widget, asked, [])
    widget._answer(widget, {**asked, "id": 2, "layer": 9}, [])
    widget._answer(widget, {"kind": "other"}, [])
    exact = analysis.map("Attn").sel(layer=2).values
    assert sent[0][0] == {"id": 1}
    assert (np.frombuffer(sent[0][1][0], "<f4").reshape(3, 3) == exact).all()
    assert "no such map" in sent[1][0]["error"]
    assert len(sent) == 2

    page = browser.new_page()
    page.goto("about:blank")
    page.evaluate(MOUNT, [bundle(), {"payload": widget.payload, "state": "scope=Attn&layer=2&norm=none"}])
    page.locator(".exports summary").click()
    with page.expect_download() as download:
        page.locator("[data-export=json]").click()
        page.wait_for_function("() => window.sent.length > 0")
        request = page.evaluate("() => window.sent[0]")
        assert {name: request[name] for name in ("scope", "layer", "head")} == {"scope": "Attn", "layer": 2, "head": 0}
        answer = [float(value) for value in exact.ravel()]
        page.evaluate(
            "([id, values]) => tell('msg:custom', { id }, [new DataView(Float32Array.from(values).buffer)])",
            [request["id"], answer],
        )
    view = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["views"][0]
    assert view["precision"] == "float32"
    assert (np.array(view["map"], dtype=np.float32) == exact).all()
    page.close()


def test_hostile_text_does_not_leave_the_frame() -> None:
    html = frame(sample(HOSTILE, text='"><script>window.hacked = 1</script>'))
    assert html is not None
    assert html.count("<") == 2  # the frame and its end
    assert html.count('"') == 8


def test_a_large_analysis_is_not_put_into_a_notebook_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normscope.explorer.page.LARGEST_FRAME", 1000)
    assert frame(sample(["a"])) is None


@pytest.mark.parametrize("cell", [1, 2])
def test_an_exported_notebook_shows_the_explorer_without_network(
    notebook: Any, browser: Any, tmp_path: Path, cell: int
) -> None:
    """As nbconvert writes it where no widgets were saved: what `explore()` gave, and what a result shows of itself."""
    saved = copy.deepcopy(notebook)
    saved.metadata.pop("widgets", None)
    saved.cells = [saved.cells[cell]]
    html, _ = HTMLExporter().from_notebook_node(saved)
    path = tmp_path / "exported.html"
    path.write_text(html, encoding="utf-8")
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    page = context.new_page()
    page.goto(path.as_uri(), wait_until="commit")
    inside = page.frame_locator("iframe")
    inside.locator(".heatmap[data-drawn]").wait_for(state="attached")
    inside.locator(".step[data-scope=Attn]").click()
    inside.locator("h1", has_text=re.compile(r"^Layer \d+, attention$")).wait_for()
    context.close()
