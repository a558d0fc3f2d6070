"""The requests of `Analyzer.estimate` and `estimate_explanation`: lengths from texts or numbers, and the run to time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from normscope.chain.measure import Request
from normscope.decompose.dense import PLAIN
from normscope.errors import InputError
from normscope.estimate.estimate import Length
from normscope.estimate.planning import SHORT, ShortRun, Stacks, asked_of, explained_of, lengths_of
from normscope.inputs import Reading, images, read_targets
from normscope.inputs.audio import argument, noise
from normscope.methods import resolve
from normscope.methods.norms import Decomposition
from normscope.models.devices import entry_device
from normscope.models.model import Model
from normscope.options import is_whole, whole_numbers
from normscope.passes import Pass
from normscope.request import Queries


def lengths(model: Model, inputs: object, decoder_text: object, reading: Reading) -> list[Length]:
    """The lengths of inputs, or those numbers themselves; a decoder without a text reads as many tokens as its source."""
    decodes = model.family.encoder is not None
    if decoder_text is not None and not decodes:
        resolve.refuse_decoder_text(model)
    sources = _counts(model, inputs, reading)
    if not decodes:
        return [Length(tokens) for tokens in sources]
    read = sources if decoder_text is None else _decoder_counts(model, decoder_text, reading)
    if len(read) != len(sources):
        raise InputError(f"There are {len(sources)} inputs, but {len(read)} texts of the decoder: give one for each.")
    return [Length(tokens, source) for tokens, source in zip(read, sources, strict=True)]


def counted_queries(queries: Queries | None) -> int | Sequence[int] | None:
    """Rows by position: what tokens take does not depend on where they are."""
    if isinstance(queries, str):
        return 0
    if isinstance(queries, Sequence):
        return [0 if isinstance(query, str) else query for query in queries]
    return queries


def _decoder_counts(model: Model, decoder_text: Any, reading: Reading) -> list[int]:
    """How many tokens the decoder reads of each text."""
    if is_whole(decoder_text) or (
        isinstance(decoder_text, list) and all(is_whole(item) for item in cast("list[Any]", decoder_text))
    ):
        return _counts(model, decoder_text, reading)
    options = (model.module, model.tokenizer, model.longest)
    return [len(side) for side in read_targets(decoder_text, *options, reading)]


def _counts(model: Model, inputs: object, reading: Reading) -> list[int]:
    several = isinstance(inputs, Sequence) and len(cast("Sequence[object]", inputs)) > 0
    if is_whole(inputs) or (several and all(is_whole(item) for item in cast("Sequence[object]", inputs))):
        counts = whole_numbers(inputs, "A number of tokens")
        if min(counts) < 1:
            raise InputError(f"An input has at least one token, not {min(counts)}.")
        return counts
    sequences, _ = resolve.read_sources(model, inputs, reading)
    return [len(sequence) for sequence in sequences]


def short_analysis(model: Model, request: Request) -> ShortRun:
    """A request of a short input; images and sounds have their length, so few of their queries are requested."""
    fixed = model.family.reads != "text" and model.family.encoder is None
    small = replace(request, queries=list(range(SHORT)) if fixed else None)
    sequences, _ = resolve.read(model, *_short_input(model))
    stacks = asked_of(model, small) or {}
    length = lengths_of(sequences)[0]
    decompositions = [each for each in request.main.measures if isinstance(each, Decomposition)]
    multiply = decompositions[0].multiplication if decompositions else PLAIN
    return ShortRun(lambda: Pass(model, small).over(sequences, progress=False), stacks, length, multiply)


def short_explanation(
    model: Model, explain: Callable[..., object], dtype: torch.dtype | None, *, heads: bool
) -> ShortRun:
    """An explanation of a short input by `explain`: of its last state, or of all that a decoder reads."""
    inputs, target = _short_input(model)
    question: dict[str, Any] = {"direction": "state"} if target is None else {"target": target["input_ids"][0]}
    decodes = target is not None
    stacks: Stacks = explained_of(model, SHORT if decodes else 1, dtype, heads=heads, head=decodes)
    sequences, _ = resolve.read(model, inputs, target)
    return ShortRun(lambda: explain(inputs, heads=heads, dtype=dtype, **question), stacks, lengths_of(sequences)[0])


def _short_input(model: Model) -> tuple[dict[str, Any], dict[str, Any] | None]:
    if model.family.reads == "image":
        device, generator = entry_device(model.module), torch.Generator().manual_seed(0)
        return {name: tensor.to(device) for name, tensor in images.noise(model.module, 1, generator).items()}, None
    ids: dict[str, Any] = {"input_ids": [[_plain_token(model)] * SHORT]}
    if model.family.reads == "audio":
        sound = noise(model.module, 1, torch.Generator().manual_seed(0)).to(entry_device(model.module))
        return {argument(model.module): sound}, ids if model.family.encoder is not None else None
    return ids, ids if model.family.encoder is not None else None


def _plain_token(model: Model) -> int:
    """An ordinary token: special tokens alone would not be an input."""
    tokenizer = model.tokenizer
    special = set[int]() if tokenizer is None else set(tokenizer.all_special_ids)
    return next((number for number in range(1, resolve.vocabulary(model)) if number not in special), 1)
