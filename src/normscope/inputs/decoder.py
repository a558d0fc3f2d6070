"""Greedy generation: the most probable token at each step, independently of the model's own generation settings.
Sampling, beams, penalties and minimum lengths concern how a model is used; its logits are what is analysed and
explained.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor
from transformers import BatchEncoding, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from normscope.capture.hooks import forward_pass
from normscope.errors import InputError, ModelError
from normscope.families.heads import refuse_made_up_head
from normscope.families.spec import Config
from normscope.inputs.sequence import NO_WORD, TokenSequence
from normscope.inputs.text import AS_TEXTS, Input, Reading, cut, encodable, read_ids, read_inputs
from normscope.models.devices import entry_device
from normscope.options import is_whole

_NAMES = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Settings for the tokens that begin, end and pad a text."""

LANGUAGE = ("forced_bos_token_id", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
"""Settings that restrict which tokens a decoder may output, such as the language that it translates into."""


def most_probable(
    model: PreTrainedModel, ids: Sequence[int], most: int, *, settings_to_keep: Sequence[str] = (), **options: Any
) -> list[int]:
    """The token ids that a model outputs after it has read some, at most this many; the last is the end if it came to it.

    `settings_to_keep` names the model's own generation settings that still apply; `options` are further arguments of its
    `generate`.
    """
    settings = {name: setting(model, name) for name in (*_NAMES, *settings_to_keep)}
    settings["decoder_start_token_id"] = start_token(model)
    ends = settings["eos_token_id"]
    if settings["pad_token_id"] is None:  # nothing is padded, but without one there is a warning
        settings["pad_token_id"] = (ends[0] if isinstance(ends, list) else ends) or 0
    config = GenerationConfig(**settings, do_sample=False, num_beams=1, max_new_tokens=most)
    read = torch.tensor([list(ids)], device=entry_device(model))
    with forward_pass(model), _settings(model, config):
        generate = cast(Any, model).generate
        generated = cast(
            "list[int]",
            generate(input_ids=read, attention_mask=torch.ones_like(read), generation_config=config, **options)[
                0
            ].tolist(),
        )
    return generated[1 if model.config.is_encoder_decoder else len(ids) :]


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> list[int]:
    """The tokens that end a text, the model's own first."""
    found: list[Any] = [setting(model, "eos_token_id"), getattr(model.config, "eos_token_id", None)]
    found += [getattr(tokenizer, name, None) for name in ("eos_token_id", "sep_token_id")]
    ends = [number for ids in found for number in (cast("list[Any]", ids) if isinstance(ids, list) else [ids])]
    return list(dict.fromkeys(int(number) for number in ends if number is not None))


def setting(model: PreTrainedModel, name: str) -> Any:
    """A generation setting: from the model's generation configuration, or else from its configuration."""
    own = getattr(getattr(model, "generation_config", None), name, None)
    return getattr(model.config, name, None) if own is None else own


def start_token(model: PreTrainedModel) -> int | None:
    """The token that the decoder reads first, if the model names it; for T5 it is the padding token."""
    start = getattr(model.config, "decoder_start_token_id", None)
    start = setting(model, "decoder_start_token_id") if start is None else start
    own = getattr(model.config, "decoder", None)
    if start is None and own is not None:
        return getattr(own, "bos_token_id", None)
    return model.config.pad_token_id if start is None and hasattr(model, "_shift_right") else start


@contextmanager
def _settings(model: PreTrainedModel, config: GenerationConfig) -> Generator[None]:
    """Replaces the model's generation settings, from which a call would fill in what it leaves out."""
    before = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = before


# ---- Targets of encoder-decoder models: what the decoder outputs and reads, row by row, by teacher forcing or by
# generation.
#
# Row `t` of a decoder reads the token at `t` and predicts the next; the first row reads the start token. A target is
# the output of the decoder: each of its tokens is the output of one row and the input of the next. Only what closes it,
# the end-of-sequence token (after which mBART has the language), is the output of the last row and no input. A target
# that nothing closes, such as plain ids or the text of a tokenizer that adds no end token, is read to its last token,
# whose row outputs the end. Both names of a row are kept: its input token and its output token.

DecoderText = Input | Sequence[int]
"""What a decoder reads and outputs: a text, texts, an encoding, or token ids, also as a plain list."""

_LONGEST_TARGET = 128
"""The maximum number of tokens that a model generates as its target."""


def with_targets(
    sources: list[TokenSequence],
    target: DecoderText | None,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    longest: int | None,
    reading: Reading = AS_TEXTS,
) -> list[TokenSequence]:
    """Every source with its target: the one given, or the one that the model generates."""
    if target is None:
        sides = [_generated(source, model, tokenizer, longest) for source in sources]
    else:
        sides = read_targets(target, model, tokenizer, longest, reading)
    if len(sides) != len(sources):
        raise InputError(
            f"There are {len(sources)} inputs but {len(sides)} decoder texts: give one decoder_text for each input."
        )
    return [replace(source, target=side) for source, side in zip(sources, sides, strict=True)]


def read_targets(
    target: DecoderText,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    longest: int | None,
    reading: Reading = AS_TEXTS,
) -> list[TokenSequence]:
    """The decoder's rows for every given target."""
    outputs = _given(target, tokenizer, longest, reading)
    return [read_target(output, model, tokenizer, longest, reading) for output in outputs]


def read_target(
    output: TokenSequence,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    longest: int | None,
    reading: Reading = AS_TEXTS,
    *,
    closed: bool | None = None,
) -> TokenSequence:
    """The decoder's rows for a target, whose last tokens may or may not close it."""
    if closed is None:
        closed = _is_closed(output.features["input_ids"], model, tokenizer)
    most = None if longest is None else longest if closed else longest - 1
    if most is not None and len(output) > most:
        if not reading.truncate:
            raise InputError(
                f"The decoder's text has {len(output)} tokens, but the model takes at most {most} after the start token. "
                f"Shorten it, or pass truncate=True (--truncate) to analyse its beginning."
            )
        output = cut(output, most)
    return decoder_side(output, model, tokenizer, closed=closed)


def _is_closed(ids: list[int], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> bool:
    """Whether token ids say where they end: by the end token, or by the language that mBART has after it."""
    ends, last = end_tokens(model, tokenizer), ids[-1]
    if last in ends:
        return True
    special = {start_token(model), *getattr(tokenizer, "all_special_ids", [])}
    return len(ids) > 1 and ids[-2] in ends and (last in special or start_token(model) is None)


def _given(
    target: DecoderText, tokenizer: PreTrainedTokenizerBase | None, longest: int | None, reading: Reading
) -> list[TokenSequence]:
    if isinstance(target, Sequence) and target and all(is_whole(item) for item in target):
        target = {"input_ids": [list(target)]}
    if tokenizer is not None and not isinstance(target, BatchEncoding | Mapping | Tensor):
        target = _as_targets(target, tokenizer, longest if reading.truncate else None)
    return read_inputs(cast(Input, target), tokenizer, longest, replace(reading, words=False))[0]


def _as_targets(target: Any, tokenizer: PreTrainedTokenizerBase, truncate_to: int | None) -> Any:
    """Texts tokenized as the target side is (some tokenizers have two vocabularies or language codes)."""
    texts = [target] if not isinstance(target, Sequence) or isinstance(target, str) else list(cast("Any", target))
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise InputError(
            f"A decoder reads a text or a list of texts, none of them empty, or a list of token ids, not {target!r:.80}."
        )
    for text in texts:
        encodable(text)
    return tokenizer(text_target=texts, truncation=truncate_to is not None, max_length=truncate_to, verbose=False)


def _generated(
    source: TokenSequence, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, longest: int | None
) -> TokenSequence:
    """The rows of a decoder that generates the most probable tokens, up to the end token or the maximum length."""
    if not model.can_generate():
        raise ModelError(
            f"{type(model).__name__} has no head to generate a text with. Give one to its decoder (decoder_text=...), "
            f"or load the model with its language-model head."
        )
    refuse_made_up_head(model)
    most = _LONGEST_TARGET if longest is None else min(_LONGEST_TARGET, longest - 1)
    if source.signal is not None:
        generated = _heard(model, source.signal, most)
    else:
        generated = most_probable(model, source.features["input_ids"], most, settings_to_keep=LANGUAGE)
    return decoder_side(read_ids(generated, tokenizer), model, tokenizer)


def _heard(model: PreTrainedModel, signal: Mapping[str, Tensor], most: int) -> list[int]:
    """The most probable tokens for a sound, whose models have ways of their own to generate."""
    any_model, device = cast(Any, model), entry_device(model)
    ends, start = end_tokens(model, None), start_token(model)
    generated: list[int] = []
    with forward_pass(model), torch.no_grad():
        encoded = any_model.get_encoder()(*(tensor[None].to(device, model.dtype) for tensor in signal.values()))
        read, cache = [0 if start is None else start], None
        while len(generated) < most and not (generated and generated[-1] in ends):
            ids = torch.tensor([read], device=device)
            output = any_model(encoder_outputs=encoded, decoder_input_ids=ids, past_key_values=cache, use_cache=True)
            cache, read = output.past_key_values, [int(output.logits[0, -1].argmax())]
            generated += read
    return generated


def own_shift(sequence: TokenSequence, model: PreTrainedModel) -> int | None:
    """The token that a classifier's decoder reads first, according to the model's own input shift, if it has one."""
    shift = getattr(sys.modules[type(model).__module__], "shift_tokens_right", None)
    if shift is None:
        return None
    config: Config = model.config
    ids = torch.tensor([sequence.features["input_ids"]], device=entry_device(model))
    settings = (config.pad_token_id, config.decoder_start_token_id)
    return int(shift(ids, *settings[: len(signature(shift).parameters) - 1])[0, 0])


def decoder_side(
    output: TokenSequence,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    start: int | None = None,
    *,
    closed: bool = True,
) -> TokenSequence:
    """The decoder's rows for a target, behind the start token: its last token is not read where it closes the target."""
    start = start_token(model) if start is None else start
    if start is not None and len(output) > 1 and output.special[0] and output.features["input_ids"][0] == start:
        output = output.part(range(1, len(output)))  # some tokenizers write it themselves
    ids = output.features["input_ids"]
    if start is None and not closed:
        raise InputError(
            f"The configuration of {type(model).__name__} names no token that its decoder begins with "
            f"(decoder_start_token_id). Give it a text that ends as its tokenizer does: with the end token and the language."
        )
    if start is None:  # as mBART does: the last token (the language) also comes first
        start = ids[-1]
    read = slice(None, -1) if closed else slice(None)
    name = _name(start, tokenizer)
    return TokenSequence(
        features={"input_ids": [start, *ids[read]]},
        tokens=[name, *output.tokens[read]],
        special=[True, *output.special[read]],
        word_ids=None if output.word_ids is None else [NO_WORD, *output.word_ids[read]],
        words=[name, *output.words[read]],
        text=output.text,
        output_tokens=output.tokens if closed else [*output.tokens, _end_name(model, tokenizer)],
        output_ids=ids,
    )


def _end_name(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> str:
    ends = end_tokens(model, tokenizer)
    return _name(ends[0], tokenizer) if ends else ""


def _name(number: int, tokenizer: PreTrainedTokenizerBase | None) -> str:
    return str(number) if tokenizer is None else cast(str, tokenizer.convert_ids_to_tokens(number))
