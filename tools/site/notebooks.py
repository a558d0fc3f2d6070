"""Notebooks as pages: their text, their code, and what the code gave when it was last run."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

_HTML_OUTPUT = re.compile(r"<style[^>]*>.*?</style>", re.DOTALL)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def all_of(docs: Path) -> list[Path]:
    """The notebooks, in the order of their names."""
    return sorted((docs / "tutorials").glob("*.ipynb"))


def page(path: Path) -> dict[str, str | bytes]:
    """The page of a notebook and the pictures on it, by their paths below `tutorials/`."""
    notebook = nbformat.read(path, as_version=4)
    body, resources = MarkdownExporter().from_notebook_node(notebook, resources={"output_files_dir": path.stem})
    note = f"*This page is a notebook: [{path.name}]({path.name}). Run it with Jupyter or in Colab.*"
    title, _, rest = _COLOURS.sub("", _HTML_OUTPUT.sub("", body)).strip().partition("\n")
    pictures = {str(name).replace("\\", "/"): content for name, content in resources["outputs"].items()}
    return {f"{path.stem}.md": f"{title}\n\n{note}\n{rest}\n", **pictures}
