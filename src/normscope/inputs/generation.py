"""What a model says next: the most probable token at each step, whatever its own settings of generation are.

Sampling, beams, penalties and least lengths are how a model is used; what is analysed and explained are its logits.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from normscope.capture.session import evaluation_mode
from normscope.placement import entry_device, without_autocast

_NAMES = ("bos_token_id", "eos_token_id", "pad_token_id")
"""Settings that say which tokens begin, end and fill a text."""

LANGUAGE = ("forced_bos_token_id", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
"""Settings that say which tokens a decoder may give out at all, such as the language that it translates into."""


def most_probable(model: PreTrainedModel, ids: Sequence[int], most: int, *, kept: Sequence[str] = ()) -> list[int]:
    """The token ids that a model gives out after it has read some, at most so many; the last is the end if it came to it.

    `kept` names the settings of the model's own that still hold.
    """
    settings = {name: setting(model, name) for name in (*_NAMES, *kept)}
    settings["decoder_start_token_id"] = start_token(model)
    ends = settings["eos_token_id"]
    if settings["pad_token_id"] is None:  # nothing is padded, but without one there is advice
        settings["pad_token_id"] = (ends[0] if isinstance(ends, list) else ends) or 0
    config = GenerationConfig(**settings, do_sample=False, num_beams=1, max_new_tokens=most)
    read = torch.tensor([list(ids)], device=entry_device(model))
    with evaluation_mode(model), without_autocast(model), _settings(model, config):
        generate = cast(Any, model).generate
        said = cast(
            "list[int]",
            generate(input_ids=read, attention_mask=torch.ones_like(read), generation_config=config)[0].tolist(),
        )
    return said[1 if model.config.is_encoder_decoder else len(ids) :]


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> list[int]:
    """The tokens that end a text, the model's own first."""
    found: list[Any] = [setting(model, "eos_token_id"), getattr(model.config, "eos_token_id", None)]
    found += [getattr(tokenizer, name, None) for name in ("eos_token_id", "sep_token_id")]
    ends = [number for each in found for number in (cast("list[Any]", each) if isinstance(each, list) else [each])]
    return list(dict.fromkeys(int(number) for number in ends if number is not None))


def setting(model: PreTrainedModel, name: str) -> Any:
    """A setting of generation: that of the model's own generation, or that of its configuration."""
    own = getattr(getattr(model, "generation_config", None), name, None)
    return getattr(model.config, name, None) if own is None else own


def start_token(model: PreTrainedModel) -> int | None:
    """The token that the decoder reads first, where the model names it; T5's is that of padding."""
    start = getattr(model.config, "decoder_start_token_id", None)
    start = setting(model, "decoder_start_token_id") if start is None else start
    return model.config.pad_token_id if start is None and hasattr(model, "_shift_right") else start


@contextmanager
def _settings(model: PreTrainedModel, config: GenerationConfig) -> Generator[None]:
    """A model whose settings of generation are these: what a call leaves out would be filled in from its own."""
    before = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = before
