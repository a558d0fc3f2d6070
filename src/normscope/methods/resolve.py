"""Requests resolved against a model: inputs, scopes, layers and measures, checked against what the model has.

Owns the errors about them. `options` declares requests, `Analyzer` resolves them here, and `passes` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, cast

import torch
from PIL import Image

from normscope.chain.joint_gates import Counting, counting
from normscope.chain.measure import AnyMeasure, Request, StackRequest
from normscope.errors import InputError, SelectionError
from normscope.families.refused import check_whole
from normscope.inputs import (
    AS_TEXTS,
    DecoderText,
    Reading,
    TokenSequence,
    read_audio,
    read_images,
    read_texts_or_chats,
    with_targets,
)
from normscope.methods.approximate import approximation
from normscope.methods.layer import LayerMethod, MapRequest
from normscope.models.config import no_decoder, no_layer
from normscope.models.model import Model
from normscope.options import PAPERS, Conventions, whole_numbers
from normscope.passes import Measured, Pass, Tell
from normscope.request import MapSelection, Queries
from normscope.results.find import find_token
from normscope.scopes import ATTENTION_WEIGHTS, Scope, basis, resolve_all, with_derived

# ---- inputs ------------------------------------------------------------------------------------------------------------


def read_sources(model: Model, inputs: Any, reading: Reading = AS_TEXTS) -> tuple[list[TokenSequence], bool]:
    """The sequences of an input, without targets for a decoder."""
    check_whole(type(model.module).__name__)
    if model.family.reads == "image":
        return read_images(inputs, model.module, model.processor, model.family.stage)
    if model.family.reads == "audio":
        return read_audio(inputs, model.module, model.processor)
    if _is_image(inputs):
        raise InputError(f"An image was given, but {model.name} reads text.")
    sequences, single = read_texts_or_chats(inputs, model.tokenizer, model.longest, reading)
    for sequence in sequences:
        refuse_unknown_ids(model, sequence)
    return sequences, single


def read(
    model: Model, inputs: object, decoder_text: DecoderText | None, reading: Reading = AS_TEXTS
) -> tuple[list[TokenSequence], bool]:
    if model.family.encoder is None and decoder_text is not None:
        refuse_decoder_text(model)
    sequences, single = read_sources(model, inputs, reading)
    if model.family.encoder is not None:
        options = (model.module, model.tokenizer, model.longest)
        sequences = with_targets(sequences, decoder_text, *options, reading)
    for sequence in sequences:
        refuse_unknown_ids(model, sequence)
    return sequences, single


def refuse_decoder_text(model: Model) -> None:
    """Raise for a model that has no decoder to read a text."""
    raise InputError(no_decoder(model.name))


def refuse_unknown_ids(model: Model, sequence: TokenSequence) -> None:
    known: dict[str, int] = {
        "input_ids": vocabulary(model),
        "token_type_ids": getattr(model.config, "type_vocab_size", 0),
        "position_ids": _positions(model, sequence),
    }
    for name, count in known.items():
        for number in sequence.features.get(name, []):
            if count and not 0 <= number < count:
                raise InputError(
                    f"The encoding's {name!r} has {number}, but the model knows 0 to {count - 1}. "
                    f"Is its tokenizer that of another model?"
                )
    if sequence.target is not None:
        refuse_unknown_ids(model, sequence.target)


def _positions(model: Model, sequence: TokenSequence) -> int:
    """How many positions the model knows; 0 where it takes any. Refuses positions that it would not look at."""
    if "position_ids" not in sequence.features:
        return 0
    if "position_ids" not in signature(type(model.module).forward).parameters:
        raise InputError(f"The encoding has position_ids, but {model.name} takes none: leave them out.")
    return 0 if model.longest is None else getattr(model.config, "max_position_embeddings", 0)


def vocabulary(model: Model) -> int:
    """How many token ids the model knows; 0 where a class of someone's own does not say."""
    try:
        embeddings = cast("torch.nn.Embedding | None", model.module.get_input_embeddings())
    except NotImplementedError:
        return 0
    return getattr(embeddings, "num_embeddings", 0)


def by_queries(
    sequences: list[TokenSequence], queries: Queries | None
) -> list[tuple[list[TokenSequence], int | Sequence[int] | None]]:
    """Sequences that are analysed together, with the positions of their rows: tokens lie elsewhere in each."""
    if isinstance(queries, str):
        queries = [queries]
    if not isinstance(queries, Sequence) or not any(isinstance(query, str) for query in queries):
        return [(sequences, cast("int | Sequence[int] | None", queries))]
    return [([item], _positions_of(item.target or item, queries)) for item in sequences]


def _positions_of(read: TokenSequence, queries: Sequence[int | str]) -> list[int]:
    return [
        find_token(query, read.tokens, words=read.words, what="query") if isinstance(query, str) else query
        for query in queries
    ]


def scopes_asked(model: Model, scopes: str | Sequence[str] | None) -> tuple[list[Scope], list[Scope]]:
    """The scopes requested that the main stack has, and those that the encoder has."""
    encoder = model.encoder_scopes
    available = with_derived(dict.fromkeys([*model.scopes, *encoder]))
    asked = {basis(scope) for scope in resolve_all(scopes, available)}
    # Where only the encoder's scopes are requested, its decoder still has an analysis to hang on.
    own = [scope for scope in model.scopes if scope in asked] or [ATTENTION_WEIGHTS]
    return own, [scope for scope in encoder if scope in asked]


def request(
    model: Model,
    measures: Sequence[AnyMeasure],
    encoder_measures: Sequence[AnyMeasure],
    layers: int | Sequence[int] | None,
    queries: int | Sequence[int] | None,
    dtype: torch.dtype | None,
    start: Counting | None = None,
) -> Request:
    encoder_layers = encoder_layers_asked(model, layers)
    encoder = StackRequest(encoder_measures, encoder_layers) if encoder_measures and encoder_layers else None
    return Request(StackRequest(measures, layers_asked(model, layers)), encoder, queries, dtype, start)


def measure_layers(
    model: Model,
    sequences: Sequence[TokenSequence],
    measures: Sequence[AnyMeasure],
    *,
    dtype: torch.dtype | None = None,
    start: Counting | None = None,
    tell: Tell | None = None,
) -> list[Measured]:
    """Any measures of all layers of the main stack, for sequences that are ready for the model."""
    wanted = request(model, measures, [], None, None, dtype, start)
    return Pass(model, wanted).over(sequences, progress=False, tell=tell)


def encoder_layers_asked(model: Model, layers: int | Sequence[int] | None) -> list[int]:
    if model.family.encoder is None:
        return []
    every = range(1, 1 + model.family.encoder.depth(model.config))
    asked = every if layers is None else whole_numbers(layers, "A layer")
    return [layer for layer in every if layer in asked]


def layers_asked(model: Model, layers: int | Sequence[int] | None) -> list[int]:
    if layers is None:
        return model.layers
    asked = whole_numbers(layers, "A layer")
    for layer in asked:
        if layer not in model.layers:
            raise SelectionError(no_layer(layer, model.name, len(model.layers)))
    if not asked:
        raise SelectionError(f"No layer was requested: {model.name} has layers 1 to {len(model.layers)}.")
    return sorted(set(asked))


def wanted_of(selection: MapSelection, conventions: Conventions = PAPERS, *, projections: bool = False) -> MapRequest:
    """What a method needs to know of a request for maps."""
    approximate = approximation(selection.approximate, selection.products)
    return MapRequest((), selection.scopes is not None, selection.heads, conventions, projections, (), approximate)


def map_request(model: Model, method: LayerMethod, wanted: MapRequest, selection: MapSelection) -> Request:
    """What a method measures of each stack."""
    own, of_encoder = scopes_asked(model, selection.scopes)
    stacks = [
        StackRequest(method.measures(replace(wanted, scopes=tuple(scopes), layers=needed)), needed)
        for scopes, needed in (
            (own, method.layers_needed(layers_asked(model, selection.layers))),
            (of_encoder, method.layers_needed(encoder_layers_asked(model, selection.layers))),
        )
        if scopes and needed
    ]
    counted = "states" if method.across_layers else wanted.conventions.value_bias
    start = counting(wanted.conventions, counted)
    encoder = stacks[1] if len(stacks) > 1 else None
    queries = cast("int | Sequence[int] | None", selection.queries)  # tokens have become positions
    return Request(stacks[0], encoder, queries, selection.dtype, start)


def _is_image(inputs: object) -> bool:
    return isinstance(inputs, Image.Image) or (isinstance(inputs, Mapping) and "pixel_values" in inputs)
