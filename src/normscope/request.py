"""Requests resolved against a model: inputs, scopes, layers and measures, checked against what the model has.

Owns the errors about them. `options` declares requests, `Analyzer` resolves them here, and `passes` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Unpack, cast

import torch
from PIL import Image

from normscope.chain.baseline import BiasBaseline, baseline
from normscope.errors import InputError, SelectionError
from normscope.inputs import Target, TokenSequence, read_images, read_inputs, with_targets
from normscope.measures import Measure
from normscope.measures.approximated import approximation
from normscope.measures.request import Request, StackRequest
from normscope.methods import LayerMethod, MapRequest
from normscope.models.config import no_layer, no_target
from normscope.options import ConventionOptions, MapSelection, whole_numbers
from normscope.scopes import ATTENTION_WEIGHTS, Scope, basis, resolve_all, with_derived

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer


class _MapOptions(ConventionOptions, total=False):
    projections: bool


# ---- inputs ------------------------------------------------------------------------------------------------------------


def read_sources(analyzer: Analyzer, inputs: Any, *, words: bool, truncate: bool) -> tuple[list[TokenSequence], bool]:
    """The sequences of an input, without targets for a decoder."""
    if analyzer.family.reads == "image":
        return read_images(inputs, analyzer.model, analyzer.processor)
    if _is_image(inputs):
        raise InputError(f"An image was given, but {analyzer.name} reads text.")
    sequences, single = read_inputs(inputs, analyzer.tokenizer, analyzer.longest, words=words, truncate=truncate)
    for sequence in sequences:
        refuse_unknown_ids(analyzer, sequence)
    return sequences, single


def read(
    analyzer: Analyzer, inputs: Any, target: Target | None, *, words: bool, truncate: bool
) -> tuple[list[TokenSequence], bool]:
    if analyzer.family.encoder is None and target is not None:
        refuse_target(analyzer)
    sequences, single = read_sources(analyzer, inputs, words=words, truncate=truncate)
    if analyzer.family.encoder is not None:
        options = (analyzer.model, analyzer.tokenizer, analyzer.longest)
        sequences = with_targets(sequences, target, *options, truncate=truncate)
    for sequence in sequences:
        refuse_unknown_ids(analyzer, sequence)
    return sequences, single


def refuse_target(analyzer: Analyzer) -> None:
    """Refuse a target for a model that has no decoder to read it."""
    raise InputError(no_target(analyzer.name))


def refuse_unknown_ids(analyzer: Analyzer, sequence: TokenSequence) -> None:
    known: dict[str, int] = {
        "input_ids": vocabulary(analyzer),
        "token_type_ids": getattr(analyzer.model.config, "type_vocab_size", 0),
        "position_ids": _positions(analyzer, sequence),
    }
    for name, count in known.items():
        for number in sequence.features.get(name, []):
            if count and not 0 <= number < count:
                raise InputError(
                    f"The encoding's {name!r} has {number}, but the model knows 0 to {count - 1}. "
                    f"Is its tokenizer that of another model?"
                )
    if sequence.target is not None:
        refuse_unknown_ids(analyzer, sequence.target)


def _positions(analyzer: Analyzer, sequence: TokenSequence) -> int:
    """How many positions the model knows; 0 where it takes any. Refuses positions that it would not look at."""
    if "position_ids" not in sequence.features:
        return 0
    if "position_ids" not in signature(type(analyzer.model).forward).parameters:
        raise InputError(f"The encoding has position_ids, but {analyzer.name} takes none: leave them out.")
    return 0 if analyzer.longest is None else getattr(analyzer.model.config, "max_position_embeddings", 0)


def vocabulary(analyzer: Analyzer) -> int:
    """How many token ids the model knows; 0 where a class of someone's own does not say."""
    try:
        embeddings = cast("torch.nn.Embedding | None", analyzer.model.get_input_embeddings())
    except NotImplementedError:
        return 0
    return getattr(embeddings, "num_embeddings", 0)


def scopes_asked(analyzer: Analyzer, scopes: str | Sequence[str] | None) -> tuple[list[Scope], list[Scope]]:
    """The scopes asked for that the main stack has, and those that the encoder has."""
    encoder = analyzer.encoder_scopes
    available = with_derived(dict.fromkeys([*analyzer.scopes, *encoder]))
    asked = {basis(scope) for scope in resolve_all(scopes, available)}
    # Where only the encoder's scopes are asked for, its decoder still has an analysis to hang on.
    own = [scope for scope in analyzer.scopes if scope in asked] or [ATTENTION_WEIGHTS]
    return own, [scope for scope in encoder if scope in asked]


def request(
    analyzer: Analyzer,
    measures: Sequence[Measure[Any, Any]],
    encoder_measures: Sequence[Measure[Any, Any]],
    layers: int | Sequence[int] | None,
    queries: int | Sequence[int] | None,
    dtype: torch.dtype | None,
    start: BiasBaseline | None = None,
) -> Request:
    encoder_layers = encoder_layers_asked(analyzer, layers)
    encoder = StackRequest(encoder_measures, encoder_layers) if encoder_measures and encoder_layers else None
    return Request(StackRequest(measures, layers_asked(analyzer, layers)), encoder, queries, dtype, start)


def encoder_layers_asked(analyzer: Analyzer, layers: int | Sequence[int] | None) -> list[int]:
    if analyzer.family.encoder is None:
        return []
    every = range(1, 1 + analyzer.family.encoder.depth(analyzer.model.config))
    asked = every if layers is None else whole_numbers(layers, "A layer")
    return [layer for layer in every if layer in asked]


def layers_asked(analyzer: Analyzer, layers: int | Sequence[int] | None) -> list[int]:
    if layers is None:
        return analyzer.layers
    asked = whole_numbers(layers, "A layer")
    for layer in asked:
        if layer not in analyzer.layers:
            raise SelectionError(no_layer(layer, analyzer.name, len(analyzer.layers)))
    if not asked:
        raise SelectionError(f"No layer was asked for: {analyzer.name} has layers 1 to {len(analyzer.layers)}.")
    return sorted(set(asked))


def wanted_of(selection: MapSelection, **others: Unpack[_MapOptions]) -> MapRequest:
    """What a method needs to know of a request for maps."""
    approximate = approximation(selection.approximate, selection.products)
    return MapRequest((), selection.scopes is not None, selection.heads, approximate=approximate, **others)


def map_request(analyzer: Analyzer, method: LayerMethod, wanted: MapRequest, selection: MapSelection) -> Request:
    """What a method measures of each stack."""
    own, of_encoder = scopes_asked(analyzer, selection.scopes)
    stacks = [
        StackRequest(method.measures(replace(wanted, scopes=tuple(scopes), layers=needed)), needed)
        for scopes, needed in (
            (own, method.layers_needed(layers_asked(analyzer, selection.layers))),
            (of_encoder, method.layers_needed(encoder_layers_asked(analyzer, selection.layers))),
        )
        if scopes and needed
    ]
    counted = "states" if method.across_layers else wanted.value_bias
    start = baseline(wanted.ff_baseline, counted)
    encoder = stacks[1] if len(stacks) > 1 else None
    return Request(stacks[0], encoder, selection.queries, selection.dtype, start)


def _is_image(inputs: Any) -> bool:
    return isinstance(inputs, Image.Image) or (isinstance(inputs, Mapping) and "pixel_values" in inputs)
