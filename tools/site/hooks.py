"""What MkDocs calls while it builds the site: pages and tables that are made from the code, notebooks and formulas.

Words are written by hand in `docs/`; whatever the code knows itself (experiments, architectures, methods, commands) comes
from its registries, so that the site cannot fall behind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import commands
import formulas
import notebooks
import registries
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "architecture.md": "ARCHITECTURE.md"}
"""Pages that are files of the repository's root."""

MARKERS: dict[str, Callable[[str], str]] = {
    "facts of": registries.experiment_facts,
    "table of experiments": registries.experiment_table,
    "table of architectures": registries.architecture_table,
    "table of methods": registries.method_table,
    "table of corpus options": registries.corpus_options,
    "table of commands": commands.command_table,
}
"""What a comment of this name in a page is replaced by; what follows the name is given to the function."""

_MARKER = re.compile(r"^<!-- (" + "|".join(MARKERS) + r") ?([\w-]*) -->$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the sections of the navigation that are lists of something else."""
    nav = config.nav or []
    tutorials = notebooks.all_of(Path(config.docs_dir))
    _extend(nav, "Tutorials", [f"tutorials/{path.stem}.md" for path in tutorials])
    _extend(nav, "Experiments", [f"experiments/{name}.md" for name in registries.experiment_names()], before=1)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and leave out the notebooks themselves, which their pages stand for."""
    for target, source in FROM_ROOT.items():
        content = _relinked((ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, target, content=content))
    files.append(File.generated(config, "reference/commands.md", content=commands.page()))
    for path in notebooks.all_of(Path(config.docs_dir)):
        for uri, content in notebooks.page(path).items():
            files.append(File.generated(config, f"tutorials/{uri}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return _MARKER.sub(lambda found: MARKERS[found[1]](found[2]), markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return formulas.as_mathml(html)


def _extend(nav: list[Any], title: str, pages: list[str], *, before: int = 0) -> None:
    """Add pages to a section, before its last few."""
    section = next(entry[title] for entry in nav if isinstance(entry, dict) and title in entry)
    place = len(section) - before
    section[place:place] = pages


def _relinked(markdown: str) -> str:
    """A page of the repository's root with links as from `docs/`; what the site does not have is not linked."""
    targets = {source: target for target, source in FROM_ROOT.items()}

    def link(found: re.Match[str]) -> str:
        text, path, anchor = found[1], found[2], found[3] or ""
        if path in targets:
            return f"[{text}]({targets[path]}{anchor})"
        return f"[{text}]({path.removeprefix('docs/')}{anchor})" if path.startswith("docs/") else text

    return _LINK.sub(link, markdown)
