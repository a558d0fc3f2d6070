"""How many of the registered types are found again by `normscope.describe`, with their registrations held back.

    python tools/held_back.py                       # all types; writes the section of docs/families.md
    python tools/held_back.py --only llama,gpt2     # these types; prints, and writes nothing

A tiny random model of every type is analysed as registered, then loaded without the registration: the maps of all scopes
have to be the same. The exit code is 1 if a description gives other maps than the registered one.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import defaultdict
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from architectures.trial import BARE, built, classes_of

import normscope as ns
from normscope.errors import NormscopeError
from normscope.families import supported_models
from normscope.testing.inputs import random_inputs

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
START, END = "<!-- held back -->", "<!-- end of held back -->"
_TOLERANCE = 1e-5
_KNOWN = (
    ("encoder and a decoder", "it has an encoder and a decoder"),
    ("an attention whose weights", "its attention was not found"),
    ("a feed-forward of linear layers", "its feed-forward was not found"),
    ("an order of norms", "the order of its parts was not found"),
    ("passes the battery", "no proposed description passes the battery"),
    ("only texts and images", "it reads sounds, and only texts and images are read to observe a model"),
    ("No stack of blocks", "its blocks are not modules of one class in a list"),
    ("stacks of blocks", "it has several stacks of blocks"),
    ("could not be observed", "it could not be observed with random inputs"),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a type: `"found"`, `"different"`, `"refused"` or `"not built"`, and why."""

    kind: str
    why: str = ""


def main() -> int:
    """Try the types, print what came of them, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="types, separated by commas (default all)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    types = options.only.split(",") if options.only else list(supported_models())
    outcomes: dict[str, Outcome] = {}
    for model_type in types:
        outcomes[model_type] = outcome = hold_back(model_type)
        print(f"{model_type:26} {outcome.kind:10} {outcome.why[:200]}".rstrip(), flush=True)
    text = summary(outcomes)
    print(text)
    if not options.only:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(START)
        PAGE.write_text(f"{before}{START}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
    return int(any(outcome.kind == "different" for outcome in outcomes.values()))


def hold_back(model_type: str) -> Outcome:
    """Compare the maps of a type's registered family with those of the description that is found without it."""
    classes = classes_of(model_type)
    name = next((classes[task] for task in ("causal", "masked", "image", "bare") if classes.get(task)), None)
    try:
        if name is None:
            return Outcome("not built", f"transformers lists no class of it in {BARE}")
        model = built(model_type, name)
        analyzer = ns.load(model)
        expected = maps(analyzer)
    except Exception as error:  # whatever a configuration that was guessed may raise
        return Outcome("not built", str(error))
    registry = import_module("normscope.families")._registry()
    family = registry.pop(model_type)
    try:
        found = maps(ns.load(model))
    except NormscopeError as error:
        return Outcome("refused", str(error))
    finally:
        registry[model_type] = family
    if list(found) != list(expected):
        return Outcome("different", "other scopes")
    worst = max(
        float(np.nanmax(np.abs(found[scope] - values)) / np.nanmax(np.abs(values)))
        for scope, values in expected.items()
    )
    return Outcome("found" if worst <= _TOLERANCE else "different", f"maps within {worst:.0e}")


def maps(analyzer: ns.Analyzer) -> dict[str, np.ndarray]:
    """The maps of all scopes of a random input."""
    inputs = {
        name: tensor[:1]
        for name, tensor in random_inputs(analyzer.family, analyzer.model).items()
        if "mask" not in name
    }
    decoded = inputs.pop("decoder_input_ids", None)
    analysis = analyzer.analyze(inputs, decoder_text=None if decoded is None else {"input_ids": decoded})
    assert isinstance(analysis, ns.Analysis)
    return {str(scope): analysis.map(scope).values for scope in analyzer.scopes}


def summary(outcomes: dict[str, Outcome]) -> str:
    """The counts, and the types that are not found by why they are not."""
    built_types = [name for name, outcome in outcomes.items() if outcome.kind != "not built"]
    found = [name for name in built_types if outcomes[name].kind == "found"]
    reasons: dict[str, list[str]] = defaultdict(list)
    for name in built_types:
        if outcomes[name].kind == "refused":
            why = next((short for part, short in _KNOWN if part in outcomes[name].why), "it was refused otherwise")
            reasons[why].append(name)
    lines = [
        f"With the registration of each type held back (`tools/held_back.py`), {len(found)} of the {len(built_types)}",
        "types of which a tiny model can be built are found again, with the same maps at every scope. Types with an",
        "encoder and a decoder are tried with the class that has the decoder alone, where there is one. Not found are:",
        "",
        *(f"* {why}: {', '.join(f'`{name}`' for name in names)}" for why, names in sorted(reasons.items())),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
