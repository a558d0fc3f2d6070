"""Targets of encoder-decoder models: what the decoder reads, row by row, by teacher forcing or by generation.

Row `t` of a decoder reads the token at `t` and predicts the next: the first row reads the start token, and the last row's
output is the end of the sequence. Both names of a row are kept: the token it reads and the token it gives out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from normscope.errors import InputError, ModelError
from normscope.families.heads import refuse_made_up_head
from normscope.inputs.reading import Input, read_inputs
from normscope.inputs.sequence import NO_WORD, TokenSequence
from normscope.placement import entry_device

_LONGEST_TARGET = 128
"""How many tokens a model may generate as its target."""


def with_targets(
    sources: list[TokenSequence],
    target: Input | None,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    longest: int | None,
    *,
    truncate: bool,
) -> list[TokenSequence]:
    """Every source with its target: the one given, or the one that the model generates."""
    if target is None:
        outputs = [_generated(source, model, tokenizer, longest) for source in sources]
    else:
        outputs = _given(target, tokenizer, longest, truncate=truncate)
    if len(outputs) != len(sources):
        raise InputError(
            f"There are {len(sources)} sources but {len(outputs)} targets: give one target for each source."
        )
    return [
        replace(source, target=decoder_side(output, model, tokenizer))
        for source, output in zip(sources, outputs, strict=True)
    ]


def _given(
    target: Input, tokenizer: PreTrainedTokenizerBase | None, longest: int | None, *, truncate: bool
) -> list[TokenSequence]:
    if tokenizer is not None and not isinstance(target, BatchEncoding | Mapping | Tensor):
        target = _as_targets(target, tokenizer, longest if truncate else None)
    return read_inputs(target, tokenizer, longest, words=False, truncate=truncate)[0]


def _as_targets(target: Any, tokenizer: PreTrainedTokenizerBase, truncate_to: int | None) -> Any:
    """Texts tokenized as the target side is (some tokenizers have two vocabularies or language codes)."""
    texts = [target] if isinstance(target, str) else list(cast(Sequence[Any], target))
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise InputError(f"A target is a text or a list of texts, none of them empty, not {target!r:.80}.")
    return tokenizer(text_target=texts, truncation=truncate_to is not None, max_length=truncate_to, verbose=False)


def _generated(
    source: TokenSequence, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, longest: int | None
) -> TokenSequence:
    if not model.can_generate():
        raise ModelError(
            f"{type(model).__name__} has no head to generate a target with. Give one (target=...), "
            f"or load the model with its language-model head."
        )
    refuse_made_up_head(model)
    ids = torch.tensor([source.features["input_ids"]], device=entry_device(model))
    most = _LONGEST_TARGET if longest is None else min(_LONGEST_TARGET, longest - 1)
    generate = cast(Any, model).generate
    sequence = cast(list[int], generate(input_ids=ids, do_sample=False, num_beams=1, max_new_tokens=most)[0].tolist())
    return read_inputs({"input_ids": [sequence[1:]]}, tokenizer, None, words=False, truncate=False)[0][0]


def own_shift(sequence: TokenSequence, model: PreTrainedModel) -> int | None:
    """The token that a classifier's decoder reads first, by the model's own way of shifting its input, if it has one."""
    shift = getattr(sys.modules[type(model).__module__], "shift_tokens_right", None)
    if shift is None:
        return None
    config: Any = model.config
    ids = torch.tensor([sequence.features["input_ids"]], device=entry_device(model))
    settings = (config.pad_token_id, config.decoder_start_token_id)
    return int(shift(ids, *settings[: len(signature(shift).parameters) - 1])[0, 0])


def decoder_side(
    output: TokenSequence,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    start: int | None = None,
) -> TokenSequence:
    """The decoder's rows for a target: its tokens shifted by one, behind the start token."""
    ids = output.features["input_ids"]
    start = getattr(model.config, "decoder_start_token_id", None) if start is None else start
    if start is None:  # as mBART does: the last token (the language) also comes first
        start = ids[-1]
    name = str(start) if tokenizer is None else cast(str, tokenizer.convert_ids_to_tokens(start))
    return TokenSequence(
        features={"input_ids": [start, *ids[:-1]]},
        tokens=[name, *output.tokens[:-1]],
        special=[True, *output.special[:-1]],
        word_ids=None if output.word_ids is None else [NO_WORD, *output.word_ids[:-1]],
        words=[name, *output.words[:-1]],
        text=output.text,
        output_tokens=output.tokens,
    )
