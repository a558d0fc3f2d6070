"""The explorer in a notebook, through anywidget: Jupyter, VS Code, Colab and marimo show it, and it loads nothing.

Owns the widget's traits and the messages that the front end sends: for a map at full precision, a window, or edges to cut.
"""

from __future__ import annotations

import json
from typing import Any

import anywidget
import traitlets

from normscope.errors import NormscopeError
from normscope.explorer.page import bundle, frame
from normscope.explorer.payload import Shown, encoded, exact_map, verification_payload
from normscope.explorer.windows import LongResults
from normscope.explorer.work import EDGES_CUT
from normscope.results.analysis import Analysis
from normscope.results.explanation import Explanation


class ExplorerWidget(anywidget.AnyWidget):
    """The explorer in a notebook. `state` is the view, as a page has it in its address."""

    _esm = bundle()
    payload = traitlets.Unicode().tag(sync=True)
    state = traitlets.Unicode().tag(sync=True)

    def __init__(self, *results: Shown, state: str = "") -> None:
        self._long = LongResults(*results, served=True)
        super().__init__(payload=encoded(self._long.opening()), state=state)
        self._results = results
        self._analyses = [result for result in results if isinstance(result, Analysis)]
        self.on_msg(self._answer)

    def _answer(self, _: object, content: dict[str, object], __: list[bytes]) -> None:
        """Answer a request for exact values or for a window; other messages are ignored."""
        answers = {"exact": self._exact, "window": self._window, "verify": self._verify}
        answer = answers.get(str(content.get("kind")))
        if answer is None:
            return
        try:
            values = answer(content)
        except (NormscopeError, KeyError, ValueError, IndexError, TypeError) as error:
            self.send({"id": content.get("id"), "error": f"there is no such map, window or explanation ({error})"})
            return
        self.send({"id": content.get("id")}, buffers=[values])

    def _exact(self, content: dict[str, Any]) -> bytes:
        analysis = self._analyses[int(content["analysis"])]
        analysis = analysis.encoder if content.get("encoder") is True else analysis
        head = int(content["head"]) or None
        return exact_map(analysis, str(content["scope"]), int(content["layer"]), head).tobytes()

    def _window(self, content: dict[str, Any]) -> bytes:
        window = self._long.window(str(content["part"]), int(content["row"]), int(content["column"]))
        return encoded(window).encode("ascii")

    def _verify(self, content: dict[str, Any]) -> bytes:
        explanations = [result for result in self._results if isinstance(result, Explanation)]
        verified = explanations[int(content["explanation"])].verify(EDGES_CUT, target=int(content["target"]))
        return json.dumps(verification_payload(verified)).encode("ascii")

    def _repr_html_(self) -> str | None:
        """For viewers of saved notebooks that do not support widgets."""
        return frame(*self._results)
