"""The answer of a model to a prompt: the most probable token at each step, or, with a seed, sampled by its own
generation settings.

Tokens are kept as they were generated and never tokenized again; each is reported as it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from normscope.capture.hooks import forward_pass
from normscope.errors import InputError
from normscope.inputs.decoder import LANGUAGE, end_tokens, most_probable
from normscope.models.devices import entry_device

OnToken = Callable[[list[int]], None]
"""A callback that receives all tokens generated so far; it may raise to cancel."""


@dataclass(frozen=True)
class Generated:
    """The tokens of an answer, without the one that ends it, and whether it came to its end."""

    ids: list[int]
    finished: bool


class _Reporter(BaseStreamer):
    """Hands the tokens generated so far to a callback, one by one."""

    def __init__(self, on_token: OnToken) -> None:
        self.on_token, self.ids, self.prompt_is_next = on_token, list[int](), True

    def put(self, value: Tensor) -> None:
        if self.prompt_is_next:
            self.prompt_is_next = False
            return
        self.ids.extend(value.flatten().tolist())
        self.on_token(list(self.ids))

    def end(self) -> None:
        self.prompt_is_next = True


class _Ending(StoppingCriteria):
    """Ends a generation when it contains a text, other than in the white space at its beginning."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, text: str, first: int) -> None:
        self.tokenizer, self.text, self.first = tokenizer, text, first

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Any:
        texts = [cast(str, self.tokenizer.decode(row[self.first :])) for row in input_ids]
        return torch.tensor([self.text in text.lstrip() for text in texts], device=input_ids.device)


def generate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    ids: Sequence[int],
    most: int,
    *,
    seed: int | None = None,
    stop: str | None = None,
    on_token: OnToken | None = None,
) -> Generated:
    """Generates tokens after a prompt: the most probable ones, or, with a seed, by the model's own settings. Generation
    ends with the end token, after the most tokens allowed, or when it contains the text `stop`.
    """
    streamer = None if on_token is None else _Reporter(on_token)
    options: dict[str, object] = {"streamer": streamer}
    if stop and tokenizer is not None:
        first = 1 if model.config.is_encoder_decoder else len(ids)
        options["stopping_criteria"] = StoppingCriteriaList([_Ending(tokenizer, stop, first)])
    if seed is None:
        said = most_probable(
            model, ids, most, settings_to_keep=LANGUAGE if model.config.is_encoder_decoder else (), **options
        )
    else:
        said = _sampled(model, ids, most, seed, options)
    ends = set(end_tokens(model, tokenizer))
    finished = bool(said) and (said[-1] in ends or len(said) < most)
    while said and said[-1] in ends:
        said = said[:-1]
    if stop and tokenizer is not None:
        while said and not cast(str, tokenizer.decode([said[-1]])).strip():
            said, finished = said[:-1], True
    if not said:
        raise InputError("The model's answer is empty: it ends the text at once. Give an answer, or another question.")
    return Generated(said, finished)


def _sampled(model: PreTrainedModel, ids: Sequence[int], most: int, seed: int, options: dict[str, object]) -> list[int]:
    """Tokens by the model's own generation settings; the state of the process's random numbers is restored."""
    config = deepcopy(model.generation_config)
    config.max_new_tokens, config.max_length = most, None
    if config.pad_token_id is None:
        ends = config.eos_token_id
        config.pad_token_id = (ends[0] if isinstance(ends, list) else ends) or 0
    if (config.num_beams or 1) > 1:
        options = {**options, "streamer": None}
    read = torch.tensor([list(ids)], device=entry_device(model))
    devices = [read.device] if read.device.type == "cuda" else []
    with forward_pass(model), torch.random.fork_rng(devices), torch.no_grad():
        torch.manual_seed(seed)
        generator = cast(Any, model).generate
        said = generator(input_ids=read, attention_mask=torch.ones_like(read), generation_config=config, **options)
    return said[0].tolist()[1 if model.config.is_encoder_decoder else len(ids) :]
