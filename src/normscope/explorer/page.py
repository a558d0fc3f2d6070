"""The explorer as one HTML file: no network, no other file, and no script except its own.

Owns the HTML around the payload and its safety: a content security policy under which the page loads nothing, and all
user text escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files as resources
from pathlib import Path

from normscope.errors import NormscopeError
from normscope.explorer.packing import Precision
from normscope.explorer.payload import Shown, Start, build_payload, encoded
from normscope.explorer.windows import LongResults, Tell
from normscope.models.source import model_name
from normscope.options import Unit
from normscope.paths import PAGES, ending
from normscope.results import files
from normscope.results.answer import Answer
from normscope.results.explanation import Explanation
from normscope.results.similarity import Similarity

FRAME_HEIGHT = 860
LARGEST_FRAME = 4_000_000
"""An analysis with more characters of HTML than this is embedded in a notebook only on request."""

_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
</head>
<body>
<noscript>This page needs JavaScript. It loads nothing from anywhere.</noscript>
<main id="normscope"></main>
<script type="application/json" id="normscope-{door}">{data}</script>
<script type="module"{source}>{script}</script>
</body>
</html>
"""


@cache
def bundle() -> str:
    """The built front end, as JavaScript that is safe inside a `<script>` element."""
    script = (resources("normscope.explorer") / "static" / "explorer.js").read_text(encoding="utf-8")
    if "</script" in script.lower() or "<!--" in script:
        raise NormscopeError(
            "The built front end would end its own <script> element. Rebuild it with `make front-end`."
        )
    return script


def page_html(
    *results: Shown,
    precision: Precision = "display",
    tell: Tell | None = None,
    predictions: Sequence[dict[str, object]] = (),
    start: Start | None = None,
) -> str:
    """The page of one analysis or of two side by side, of explanations, or of both, or of similarities, or of an answer, as
    HTML.

    An analysis of a text that is too long for a page is shown in blocks of tokens, whose values are sums; `tell` is then
    called with the number of maps that are read, and their total. `predictions` are those of `explorer.predictions`; `start`
    is how the page opens, in the words of its address.
    """
    payload = LongResults(*results).opening(precision, tell, predictions=predictions, start=start)
    return render(encoded(payload), title=title(*results))


def write_page(
    *results: Shown,
    path: str | Path,
    precision: Precision = "display",
    tell: Tell | None = None,
    predictions: Sequence[dict[str, object]] = (),
    start: Start | None = None,
) -> Path:
    """Write the page to a file, completely or not at all. Options are those of `page_html`.

    Examples:
        >>> from normscope.explorer import write_page
        >>> write_page(analysis, path="bubble.html").name
        'bubble.html'
    """
    ending(path, PAGES)
    html = page_html(*results, precision=precision, tell=tell, predictions=predictions, start=start)
    return _write(html, path)


def write_answer_page(answer: Answer, path: str | Path, unit: Unit = "sentence") -> Path:
    """Write the page of an answer in units of its context, completely or not at all."""
    ending(path, PAGES)
    return _write(render(encoded(build_payload(answer, unit=unit)), title=title(answer)), path)


def _write(html: str, path: str | Path) -> Path:
    with files.replacing(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return Path(path)


def render(data: str, *, title: str) -> str:
    """The page around a payload (which must already be safe inside HTML)."""
    script = bundle()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return _TEMPLATE.format(
        policy=escape(policy, quote=True), title=escape(title), door="page", data=data, source="", script=script
    )


def shell(data: str, *, title: str, script_url: str, door: str = "server") -> str:
    """The web app's page: the same, with its script from the server, whose headers carry the policy."""
    return _TEMPLATE.format(
        policy="default-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        title=escape(title),
        door=door,
        data=data,
        source=f' src="{escape(script_url, quote=True)}"',
        script="",
    )


def frame(*results: Shown) -> str | None:
    """The page in a frame, for notebooks without the widget; `None` if it would be too large."""
    if LongResults(*results).any:
        return None
    html = page_html(*results)
    if len(html) > LARGEST_FRAME:
        return None
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width:100%;height:{FRAME_HEIGHT}px;border:0" title="normscope explorer"></iframe>'
    )


def title(*results: Shown) -> str:
    """What a page of some results is called; many passages of one query by the first of them."""
    titles = list(dict.fromkeys(map(_title, results)))
    return titles[0] if isinstance(results[-1], Similarity) else " and ".join(titles)


def _title(result: Shown) -> str:
    attributes = result.attrs
    if isinstance(result, Similarity):
        text = " \N{LEFT RIGHT ARROW} ".join(result.texts)
    elif isinstance(result, Answer):
        text = " ".join(result.text.split())
    else:
        text = str(attributes.get("text", "")) or ("explanation" if isinstance(result, Explanation) else "analysis")
    model = model_name(str(attributes.get("model", "normscope")))
    return f"{text if len(text) <= 60 else text[:59] + '…'} · {model} · normscope"
