"""Inputs for tiny random models, made up from their configurations: two sequences, of which the second is padded."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from normscope.capture import family_in
from normscope.families.heads import Head
from normscope.families.heads.spec import EndToken, LastPosition, MeanOfPositions
from normscope.families.spec import Family, Stack
from normscope.inputs import images
from normscope.inputs.audio import argument, noise, read_audio

_LONG, _SHORT = 9, 6
_TARGET_LONG, _TARGET_SHORT = 7, 5


def stacks_of(family: Family) -> dict[str, Stack]:
    """The stacks of a family by the names that messages use, in the order in which a model runs them."""
    return {"stack": family.stack} if family.encoder is None else {"encoder": family.encoder, "stack": family.stack}


def options_of(family: Family) -> dict[str, object]:
    """What a bare model is called with besides its inputs."""
    return {"use_cache": False} if family.stack.causal else {}


def random_inputs(family: Family, model: PreTrainedModel) -> dict[str, Tensor]:
    """What to call a bare model with: random tokens, pixels, or samples of a sound."""
    generator = torch.Generator().manual_seed(0)
    if family.reads == "image":
        return images.noise(model, 2, generator)

    if family.reads == "audio" and family.encoder is None:
        return {argument(model): noise(model, 2, generator)}

    def ids(long: int, short: int, prefix: str) -> dict[str, Tensor]:
        mask = torch.ones(2, long, dtype=torch.long)
        if not family.alone:
            mask[1, short:] = 0
        numbers = torch.randint(3, model.config.get_text_config().vocab_size, (2, long), generator=generator)
        return {f"{prefix}input_ids": numbers, f"{prefix}attention_mask": mask}

    if family.reads == "audio":
        return {argument(model): noise(model, 2, generator), **ids(_TARGET_LONG, _TARGET_SHORT, "decoder_")}
    inputs = ids(_LONG, _SHORT, "")
    pad = getattr(model.config.get_text_config(), "pad_token_id", None)
    inputs["input_ids"][inputs["attention_mask"] == 0] = 0 if pad is None else pad
    return inputs if family.encoder is None else inputs | ids(_TARGET_LONG, _TARGET_SHORT, "decoder_")


def lengths_of(family: Family, inputs: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, list[int]]:
    """How long the sequences of each stack are."""
    source = _source_lengths(family, inputs, model)
    if family.encoder is None:
        return {"stack": source}
    return {"encoder": source, "stack": inputs["decoder_attention_mask"].sum(-1).tolist()}


def _source_lengths(family: Family, inputs: Mapping[str, Tensor], model: PreTrainedModel) -> list[int]:
    if family.reads == "text":
        return inputs["attention_mask"].sum(-1).tolist()
    count = len(next(iter(inputs.values())))
    items = [{name: tensor[index] for name, tensor in inputs.items()} for index in range(count)]
    if family.reads == "image":
        sequences, _ = images.read_images(items, model, None, family.stage)
    else:
        sequences, _ = read_audio(items, model, None)
    return [len(sequence) for sequence in sequences]


def head_inputs(family: Family, head: Head, model: PreTrainedModel) -> tuple[dict[str, Tensor], list[int]]:
    """What to call a model and its head with, and the lengths of the sequences that the head's stack sees."""
    family = family_in(model, family)
    inputs = random_inputs(family, model)
    if family.reads != "text":
        lengths = lengths_of(family, inputs, model)["stack"]
        kept = {name: tensor for name, tensor in inputs.items() if family.encoder is not None or "decoder" not in name}
        return {
            name: tensor.to(model.dtype) if tensor.is_floating_point() else tensor for name, tensor in kept.items()
        }, lengths
    if any(isinstance(part, EndToken) for part in head.parts):
        end, last = model.config.eos_token_id, inputs["attention_mask"].sum(-1, keepdim=True) - 1
        inputs["input_ids"][inputs["input_ids"] == end] = end + 1
        inputs["input_ids"].scatter_(1, last, end)
    one_sided = head.reads_encoder or head.task in ("causal-lm", "sequence-classification")
    inputs = {name: tensor for name, tensor in inputs.items() if not (one_sided and name.startswith("decoder_"))}
    lengths = inputs.get("decoder_attention_mask", inputs["attention_mask"]).sum(-1).tolist()
    if head.task == "multiple-choice":
        inputs = {name: tensor[None] for name, tensor in inputs.items()}
    return inputs, lengths


def unpadded(inputs: Mapping[str, Tensor], lengths: list[int], head: Head) -> tuple[dict[str, Tensor], list[int]]:
    """Inputs without padding for a head that reads a position whatever is there; as they are for any other."""
    if "attention_mask" not in inputs or not any(
        isinstance(part, LastPosition | MeanOfPositions) for part in head.parts
    ):
        return dict(inputs), lengths
    dimension = 1 if head.task == "multiple-choice" else 0
    both = {name: tensor.narrow(dimension, 0, 1) for name, tensor in inputs.items()}
    return {name: torch.cat([tensor, tensor], dimension) for name, tensor in both.items()}, [lengths[0]] * 2


def only_second(inputs: Mapping[str, Tensor], length: int, *, nested: bool) -> dict[str, Tensor]:
    """The second sequence without its padding; for multiple choice, the second choice of the first example."""
    alone: dict[str, Tensor] = {}
    source = int((inputs["attention_mask"][0] if nested else inputs["attention_mask"])[1].sum())
    for name, tensor in inputs.items():
        size = length if name.startswith("decoder_") else source
        alone[name] = tensor[:, 1:2, :size] if nested else tensor[1:2, :size]
    return alone
