"""Every error a user can cause, under one base class.

A message says what was requested, what was found and what to do about it, and a note names the section of the documentation
that has more. Nothing here knows models or tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib.util import find_spec

PAGE = "docs/errors.md"
"""The page with a section for every error, in the repository and its site."""

_MOST_NAMED = 5


class NormscopeError(Exception):
    """Base class of every error that normscope raises on purpose."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.add_note(f"More: {PAGE}#{type(self).__name__.lower()}")


class InputError(NormscopeError, ValueError):
    """The text, encoding or selection given to an analysis cannot be used."""


class ScopeError(InputError):
    """A scope was requested that does not exist here."""


class SelectionError(InputError):
    """A layer, head or query was requested that does not exist here."""


class ModelError(NormscopeError):
    """A model cannot be loaded, or its weights cannot be used."""


class UnsafeWeightsError(ModelError):
    """Loading would have to unpickle weights, or run remote code, without the user's consent."""


class UnsupportedArchitectureError(ModelError):
    """No family describes this architecture."""


class HeadError(ModelError):
    """A model has no task head, or one that is not described, so that its logits cannot be followed."""


class CompletenessError(NormscopeError):
    """The parts and the bias do not add up to the model's own output, so the maps would be wrong."""


class FileError(NormscopeError):
    """A result file cannot be written or read."""


def unknown(what: str, name: str, title: str, known: Iterable[object]) -> str:
    """What to say of a name that does not exist: the nearest of those that do, and under a title all of them."""
    names = [str(each) for each in known]
    folded = {each.lower(): each for each in names}
    close = get_close_matches(name.strip().lower().replace("_", "-"), folded, n=1)
    hint = f" Did you mean {folded[close[0]]!r}?" if close else ""
    return f"{what}.{hint} {title}: {listing(names) or 'none'}."


def require_extra(extra: str, use: str, *packages: str) -> None:
    """Raise if a package that one of normscope's extras installs is missing, with the command that installs it.

    `use` says what needs it, as the subject of a sentence: `"The web app"`.
    """
    for package in packages:
        spec = find_spec(package)
        if spec is None or spec.origin is None:  # a folder of that name in the current one is no package
            raise InputError(f"{use} needs {package}, which is not installed: pip install 'normscope[{extra}]'.")


def require_corpus_extra(use: str) -> None:
    """Raise if a package of the extra `corpus` is missing, without which experiments cannot be run."""
    require_extra("corpus", use, "pyarrow", "duckdb", "scipy")


def few(names: Sequence[str]) -> str:
    """The first of some names for a message, and how many more there are: `'a', 'b' and 7 more`."""
    more = len(names) - _MOST_NAMED
    return listing(map(repr, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")


def listing(items: Iterable[object]) -> str:
    """Join items for a message: `a, b, c`."""
    return ", ".join(str(item) for item in items)
