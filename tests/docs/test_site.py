"""The site builds without a warning, loads nothing from elsewhere, and its search finds what people type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.pages import ROOT
from normscope.experiments import EXPERIMENTS
from normscope.families import supported_models
from normscope.methods import available_methods

SEARCHED = (
    "install",
    "GPU",
    "cuda",
    "device",
    "notebook",
    "Colab",
    "rollout",
    "logit",
    "bertviz",
    "padding",
    "batch",
    "memory",
    "scope",
    "word alignment",
    "mixing ratio",
    "attention sink",
    "offline",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src"), "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **quiet}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """The addresses that a page loads by itself: scripts, styles, pictures, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(given.get("href") or "")


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [address for address in loaded.addresses if re.match(r"(?:https?:)?//", address)] == [], page
        missing = [a for a in loaded.addresses if a and not a.startswith("data:") and not _there(site, page, a)]
        assert page.name == "404.html" or missing == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def _there(site: Path, page: Path, address: str) -> bool:
    path = re.split(r"[?#]", address)[0]
    return ((site / path.lstrip("/")) if path.startswith("/") else (page.parent / path)).exists()


def test_the_search_finds_what_people_type(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    texts = [f"{entry['title']} {entry['text']}".lower() for entry in entries]
    assert [words for words in SEARCHED if not any(words.lower() in text for text in texts)] == []
    assert (site / "search" / "search_index.js").exists(), "without it the search needs a server"


def test_the_site_has_what_the_registries_have(site: Path) -> None:
    assert [name for name in EXPERIMENTS if not (site / "experiments" / f"{name}.html").exists()] == []
    for page, names in (("families", supported_models()), ("methods", [each.name for each in available_methods()])):
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        assert [name for name in names if f"<code>{name}</code>" not in text] == []


def test_formulas_need_no_script(site: Path) -> None:
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 100 and "arithmatex" not in text


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    import normscope  # noqa: PLC0415

    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    missing = [name for name in normscope.__all__ if not re.search(rf'id="normscope\.(?:\w+\.)*{name}"', text)]
    assert missing == []
