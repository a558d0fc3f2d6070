"""Token lists as Clark et al. (2019) distribute them: sequences already tokenized, `[CLS] A [SEP] B [SEP]`.

JSON by default. The original is a pickle of Python 2, whose strings are bytes. Unpickling can run any code, so it needs
explicit consent.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from normscope.corpora.record import CorpusError, Problems, Record
from normscope.corpora.text import check_file, unreadable

_PICKLES = (".pkl", ".pickle")


def read_clark(path: Path, problems: Problems, *, allow_pickle: bool) -> Iterator[Record]:
    rows = _load(path, allow_pickle=allow_pickle)
    if not isinstance(rows, list):
        raise CorpusError(f"{str(path)!r} holds a {type(rows).__name__}; expected a list of token lists.")
    for number, row in enumerate(cast(list[object], rows), 1):
        tokens = cast(Any, row).get("tokens") if isinstance(row, Mapping) else row
        if not isinstance(tokens, list | tuple) or not all(isinstance(token, str) for token in tokens):
            problems.bad_row(f"{path}: sequence {number}", "malformed row", "not a list of tokens (strings).")
        elif not tokens:
            problems.left_out("empty text")
        else:
            yield Record(f"{path}: sequence {number}", tokens=tuple(tokens))


def _load(path: Path, *, allow_pickle: bool) -> object:
    check_file(path)
    if path.suffix not in _PICKLES:
        try:
            return json.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise unreadable(path, error) from error
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{str(path)!r} is not JSON: {error}") from error
    if not allow_pickle:
        raise CorpusError(
            f"{str(path)!r} is a pickle, and unpickling can run any code. Convert it to JSON (a list of token lists), or, "
            f"if you trust it, pass allow_pickle=True (--allow-pickle-corpus)."
        )
    try:
        with path.open("rb") as file:
            return pickle.load(file, encoding="latin1")  # as strings and arrays of Python 2 need
    except Exception as error:  # unpickling can raise anything
        raise CorpusError(f"{str(path)!r} cannot be unpickled: {error}") from error
