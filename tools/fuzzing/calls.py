"""Calls of the analyzer and of its results, with arguments of all kinds."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import normscope as ns

from . import samples
from .attempts import Draw, Fooled, Outcome, World, attempt

_INPUTS = (
    *(samples.TEXT, "", " ", "the", "the " * 100, "\udcff", "\u200b", b"the", None, 3, 1.5, [], [samples.TEXT], [[]]),
    *(("the", "bubble"), [5, 6, 7], [[5, 6, 7]], [99], [-1], [5.5], np.array([5, 6, 7]), torch.tensor([[5, 6, 7]])),
    *(torch.tensor([5.0, 6.0]), {"input_ids": [[2, 5, 3]]}, {"input_ids": [[2, 5, 3]], "attention_mask": [[1, 2, 2]]}),
)
_NUMBERS = (
    *(
        None,
        0,
        1,
        2,
        3,
        -1,
        -3,
        99,
        -99,
        10**30,
        1.0,
        1.5,
        math.nan,
        math.inf,
        True,
        "1",
        "two",
        "",
        [],
        [1],
        [1, 1],
        [0],
    ),
    *([1, "2"], (1, 2), np.int64(1), np.float64(1.5), np.array([1, 2]), torch.tensor(1), torch.tensor([1, 2]), b"1"),
)
_WORDS = (
    *(
        None,
        "",
        "Attn",
        "AttnW",
        "attnresln-n",
        "Nowhere",
        "all",
        ["Attn", "AttnRes"],
        [],
        3,
        np.array(["Attn"]),
        [None],
    ),
    b"Attn",
)
_TARGETS = (
    *(
        None,
        "the",
        "bubble",
        " bubble",
        "nothing known",
        "",
        "LABEL_0",
        "label_1",
        "LABEL_9",
        0,
        1,
        99,
        -1,
        1.5,
        True,
        [5],
    ),
    *(
        [5, 6],
        [99],
        [],
        [5.5],
        np.int64(1),
        torch.tensor(1),
        torch.tensor([5, 6]),
        np.array([5, 6]),
        ["the", "a"],
        b"the",
    ),
)
_DIRECTIONS = (
    *(
        None,
        "state",
        "foo",
        3,
        torch.ones(12),
        torch.ones(5),
        torch.ones(12, dtype=torch.int64),
        torch.full((12,), math.nan),
    ),
    *(torch.full((12,), math.nan), np.ones(12), np.ones((2, 12)), [1.0] * 12, torch.zeros(12)),
)
_DTYPES = (None, None, None, torch.float64, torch.float16, torch.bfloat16, torch.int8, "float64", "nothing", 3)
_BOOLEANS = (False, True)

_CALLS: dict[str, dict[str, tuple[Any, ...]]] = {
    "analyze": {
        "inputs": _INPUTS,
        "decoder_text": (None, None, *_INPUTS),
        "scopes": _WORDS,
        "layers": _NUMBERS,
        "queries": _NUMBERS,
        "heads": _BOOLEANS,
        "method": ("norms", "alti", "nothing", 3),
        "truncate": _BOOLEANS,
        "pretokenized": _BOOLEANS,
        "value_bias": ("token", "bias", "nothing", 3),
        "dtype": _DTYPES,
        "max_memory": _NUMBERS,
    },
    "mixing_ratios": {
        "inputs": _INPUTS,
        "scopes": _WORDS,
        "layers": _NUMBERS,
        "dtype": _DTYPES,
        "pretokenized": _BOOLEANS,
    },
    "explain": {
        "inputs": _INPUTS,
        "target": _TARGETS,
        "against": _TARGETS,
        "at": _NUMBERS,
        "continue_for": (None, None, *_NUMBERS),
        "direction": (None, None, *_DIRECTIONS),
        "decoder_text": (None, None, *_INPUTS),
        "method": ("pull-back", "gradient-x-input", "random", "nothing", 3),
        "heads": _BOOLEANS,
        "truncate": _BOOLEANS,
        "dtype": _DTYPES,
        "max_memory": _NUMBERS,
    },
    "estimate": {"inputs": (*_INPUTS, *_NUMBERS), "scopes": _WORDS, "layers": _NUMBERS, "timed": (False,)},
    "estimate_explanation": {"inputs": (*_INPUTS, *_NUMBERS), "values": _NUMBERS, "timed": (False,)},
}

_AXES = ("row", "column", "none", "", 3, None)
_OF_ANALYSES: dict[str, dict[str, tuple[Any, ...]]] = {
    "map": {"scope": (*_WORDS, -1), "heads": _BOOLEANS, "quantity": (None, "norm", "projection", "nothing", 3)},
    "normalised": {"scope": _WORDS, "axis": _AXES},
    "amplification": {"before": _WORDS, "after": _WORDS, "axis": _AXES},
    "mixing_ratio": {"scope": _WORDS},
    "mixing_shares": {"scope": _WORDS},
    "rollout": {"scope": _WORDS},
    "words": {"keys": ("sum", "mean", "nothing", 3), "queries": ("sum", "mean", "nothing", None)},
    "save": {
        "path": ("new.nc", "new.csv", "new.json", "new.html", "new.xyz", "", "no/such/new.nc", 3, "a" * 300 + ".nc")
    },
}
_OF_EXPLANATIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "edges": {"layer": _NUMBERS},
    "flow": {"share": (*_NUMBERS, 0.5, -0.5), "target": _NUMBERS},
    "top_predictions": {"target": _NUMBERS},
    "words": {},
    "save": _OF_ANALYSES["save"],
}
_NEEDED = ("scope", "before", "after", "path", "layer")
"""Arguments without a default."""


def calls(world: World, draw: Draw) -> Outcome:
    """Calls of the analyzer and of its results: finite numbers with a proof, or an error of normscope."""
    analyzer = world.analyzer(draw(st.sampled_from(samples.MODELS)))
    name = draw(st.sampled_from(sorted(_CALLS)))
    arguments = _arguments(draw, _CALLS[name])
    inputs = arguments.pop("inputs", samples.TEXT)
    what = f"{analyzer.name}: {name}({inputs!r}, {arguments})"
    outcome, result = attempt(what, lambda: getattr(analyzer, name)(inputs, **arguments))
    if outcome == "refused":
        return outcome
    for each in result if isinstance(result, list) else [result]:
        _check_numbers(what, each)
        if isinstance(each, ns.Analysis | ns.Explanation):
            outcome = _of_result(world, draw, what, each)
    return outcome


def _of_result(world: World, draw: Draw, what: str, result: ns.Analysis | ns.Explanation) -> Outcome:
    """A call of a result, in a folder of its own."""
    known = _OF_ANALYSES if isinstance(result, ns.Analysis) else _OF_EXPLANATIONS
    name = draw(st.sampled_from(sorted(known)))
    needed = {each: draw(st.sampled_from(known[name][each])) for each in _NEEDED if each in known[name]}
    arguments = {**needed, **_arguments(draw, known[name])}
    if "path" in arguments:
        os.chdir(world.fresh())
    outcome, _ = attempt(f"{what}.{name}({arguments})", partial(getattr(result, name), **arguments))
    return outcome


def _arguments(draw: Draw, known: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """At most three arguments: of more, one that is refused hides the others."""
    names = draw(st.lists(st.sampled_from(sorted(known)), max_size=3, unique=True)) if known else []
    return {name: draw(st.sampled_from(known[name])) for name in names}


def _check_numbers(what: str, result: Any) -> None:
    dataset = getattr(result, "dataset", result)
    variables = getattr(dataset, "data_vars", None)
    for name, values in {} if variables is None else variables.items():
        if values.dtype.kind == "f" and np.isinf(values.values).any():
            raise Fooled(f"{what}: {name} is infinite")
