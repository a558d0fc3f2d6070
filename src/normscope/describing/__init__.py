"""A description that writes itself: a model is observed once, parts are found by numbers, and the battery proves the result.

Nothing is accepted by name. What cannot be described is refused with what was found and what is missing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from normscope.capture import capture
from normscope.chain.proof import Proof
from normscope.chain.trace import LayerTrace
from normscope.describing.head import describe_head
from normscope.describing.observe import Observation, observe
from normscope.describing.propose import Proposal, propose
from normscope.describing.source import source_of
from normscope.errors import NormscopeError, UnsupportedArchitectureError
from normscope.families import Family
from normscope.families.heads import Head, note_head
from normscope.families.spec import (
    Config,
    ConfigField,
    LayerByLayer,
    Stack,
    Topology,
    hidden_layers,
    positions_after_padding,
    positions_from_zero,
    unlimited,
)
from normscope.testing.battery import Figures, assert_head, check_family
from normscope.testing.inputs import lengths_of, random_inputs
from normscope.testing.tiny import shrunk_like

__all__ = ["Description", "describe_model"]

LARGEST_COPY = 100_000_000
"""A model of more parameters is not copied in float64: a tiny model of its configuration is described in its place."""

_ATTEMPTS = 8
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Description:
    """A family that was found by observing a model, its head where there is one, and the figures of the proof.

    `print(description)` shows the Python that registers it.

    Examples:
        >>> import normscope as ns
        >>> from transformers import LlamaConfig, LlamaModel
        >>> sizes = dict(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
        >>> description = ns.describe(LlamaModel(LlamaConfig(**sizes)))
        >>> description.family.stack.topology.components()
        ['Attn', 'Res', 'Ln', 'Ff', 'Res']
    """

    family: Family
    """The family, which `register_family` takes."""
    head: Head | None
    """The task head, which `register_head` takes; `None` for a bare model, or where it was not found."""
    class_name: str
    """The name of the model's class."""
    completeness: float
    """The largest relative error of a state after any component."""
    oracle: float
    """The largest relative error of a map or mixing ratio against the float64 oracle."""
    missing: str = ""
    """Why there is no head, for a model that has one."""

    @property
    def proof(self) -> str:
        """The figures of the proof, in a line."""
        return f"states within {self.completeness:.1e}, maps within {self.oracle:.1e} of the oracle"

    @property
    def source(self) -> str:
        """The Python that registers the family and the head."""
        return source_of(self.family, self.head, self.class_name)

    def __str__(self) -> str:
        notes = [f"# {self.class_name}: {self.proof}"]
        if self.missing:
            notes.append(f"# Its head is not described. {self.missing}")
        return "\n".join([*notes, self.source])


def describe_model(model: PreTrainedModel) -> Description:
    """Describe a model; raises `UnsupportedArchitectureError` with what was found and what is missing."""
    without_numbers = any(parameter.is_meta for parameter in model.parameters())
    too_large = sum(parameter.numel() for parameter in model.parameters()) > LARGEST_COPY
    if getattr(model.config, "is_encoder_decoder", False):
        raise _refused(model, "It has an encoder and a decoder, and only models with one stack are tried")
    described = _tiny(model) if without_numbers or too_large else model
    try:
        description = _described(described, torch.float64)
    except UnsupportedArchitectureError:
        try:  # some models mask or add numbers that float64 does not share with float32
            description = _described(described, torch.float32)
        except UnsupportedArchitectureError:
            description = None
        if description is None:
            raise
    if not without_numbers:
        _prove_in_its_dtype(model, description.family)
    return description


def _described(model: PreTrainedModel, dtype: torch.dtype) -> Description:
    """The description that a copy of the model in a dtype leads to."""
    try:
        copied = _copy(model, dtype)
        seen = observe(copied, _one_input(copied))
        proposals = [propose(run, model.config) for run in seen.runs]
    except NormscopeError:
        raise
    except Exception as error:  # whatever a model that was made for other inputs may raise
        raise _refused(model, f"It could not be observed with random inputs ({_first_line(error)})") from error
    family, figures = _proved(copied, seen, proposals)
    head, missing = _head(copied, family, seen)
    return Description(family, head, type(model).__name__, figures.completeness, figures.oracle, missing)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def _copy(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy in a dtype, in which experts are computed one by one: products of groups of them have no float64."""
    copied = copy.deepcopy(model).cpu().eval()
    copied = copied.double() if dtype is torch.float64 else copied.float()
    if hasattr(copied, "set_experts_implementation"):
        copied.set_experts_implementation("eager")
    return copied


def _proved(model: PreTrainedModel, seen: Observation, proposals: list[Proposal]) -> tuple[Family, Figures]:
    """The first of the proposed families that passes the battery."""
    for number, proposal in enumerate(proposals, start=1):
        if proposal.missing:
            where = f"In block {number} of {seen.blocks!r}"
            raise _refused(model, f"{where} was found {proposal.found}; missing is {proposal.missing}")
    failures: list[str] = []
    causal = all(proposal.causal for proposal in proposals)
    for topologies in islice(product(*(proposal.topologies for proposal in proposals)), _ATTEMPTS):
        family = _family(model, seen, list(topologies), causal=causal)
        try:
            return family, check_family(family, model, tolerance=_TOLERANCE)
        except Exception as error:  # whatever a description that is wrong may lead to
            failures.append(_first_line(error))
    found = f"In its blocks at {seen.blocks!r} was found {proposals[0].found}"
    raise _refused(model, f"{found}, but no description of them passes the battery: {failures[0]}")


def _family(model: PreTrainedModel, seen: Observation, topologies: list[Topology], *, causal: bool) -> Family:
    alike = all(topology == topologies[0] for topology in topologies)
    topology = topologies[0] if alike else LayerByLayer(tuple(topologies))
    depth = _depth(model, len(topologies))
    reads = "image" if model.main_input_name == "pixel_values" else "text"
    name = str(model.config.model_type)
    stack = Stack(seen.blocks, topology, causal=causal, depth=depth)
    return Family(name, (name,), stack, longest=_longest(model, seen), reads=reads)


_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers", "decoder_layers")


def _depth(model: PreTrainedModel, count: int) -> Any:
    """What in the configuration is the number of blocks."""
    names = [name for name in _DEPTHS if getattr(model.config, name, None) == count]
    for inner in model.config.sub_configs:
        names += [
            f"{inner}.{name}" for name in _DEPTHS if getattr(getattr(model.config, inner, None), name, None) == count
        ]
    if not names:
        raise _refused(model, f"It called {count} blocks, and no field of its configuration has that number")
    return hidden_layers if names[0] == "num_hidden_layers" else ConfigField(names[0])


def _longest(model: PreTrainedModel, seen: Observation) -> Any:
    """How many positions the model has: without a table as long as its configuration says, nothing limits it."""
    limit = getattr(model.config, "max_position_embeddings", None)
    padding = getattr(model.config, "pad_token_id", None)
    length = len(seen.runs[0].reads)
    if not isinstance(limit, int):
        return unlimited
    words = model.get_input_embeddings()
    tables = [call for call in seen.outside if isinstance(call.module, nn.Embedding) and call.module is not words]
    after_padding = None if padding is None else list(range(padding + 1, padding + 1 + length))
    if any(call.arguments and call.arguments[0].flatten().tolist() == after_padding for call in tables):
        return positions_after_padding
    sizes = {size for table in _tables(model, seen.blocks.removesuffix("*")) for size in table.shape[:2]}
    return positions_from_zero if sizes & {limit, limit + 1, limit + 2} else unlimited


def _tables(model: PreTrainedModel, blocks: str) -> Iterator[Tensor]:
    """What may be tables of positions: embeddings, and what no linear layer or norm holds, outside of the blocks."""
    words = model.get_input_embeddings()
    for path, module in model.base_model.named_modules():
        if f"{path}.".startswith(blocks) or module is words:
            continue
        if isinstance(module, nn.Embedding):
            yield module.weight[:, 0]
        elif not isinstance(module, nn.Linear | nn.LayerNorm):
            own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            yield from (table for name, table in own if name != "weight" and table.dim() > 1)


def _head(model: PreTrainedModel, family: Family, seen: Observation) -> tuple[Head | None, str]:
    """The head, if it passes the battery, or why there is none."""
    if model.base_model is model:
        return None, ""
    try:
        head = describe_head(seen, causal=family.stack.causal)
        note_head(model, head)
        assert_head(model, tolerance=_TOLERANCE, family=family)
    except Exception as error:  # as above: a head that is not followed, or a wrong description of it
        return None, f"{_first_line(error)}."
    return head, ""


def _prove_in_its_dtype(model: PreTrainedModel, family: Family) -> None:
    """The proof that every analysis requires, on the model itself and in its own arithmetic."""
    proof = Proof(type(model).__name__, family.name, model.dtype)

    def consume(layer: int, _: int, trace: LayerTrace) -> None:
        proof.layer(trace, f"layer {layer}")

    inputs = {name: tensor.to(model.device) for name, tensor in _one_input(model).items()}
    lengths = lengths_of(family, _with_mask(inputs), model)["stack"]
    layers = range(1, 1 + family.stack.depth(model.config))
    options = {"use_cache": False} if family.stack.causal else {}
    dtype = torch.promote_types(model.dtype, torch.float32)
    capture(model, family, {**inputs, **options}, lengths, layers, consume, dtype=dtype, below_attention=True)


def _with_mask(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {**inputs, **({"attention_mask": torch.ones_like(inputs["input_ids"])} if "input_ids" in inputs else {})}


def _one_input(model: PreTrainedModel) -> dict[str, Any]:
    """One sequence of random tokens or pixels, without padding."""
    reads = "image" if model.main_input_name == "pixel_values" else "text"
    if model.main_input_name not in ("input_ids", "pixel_values"):
        raise _refused(model, f"It reads {model.main_input_name!r}, and only texts and images are tried")
    inputs = random_inputs(Family("", (), Stack("", _nothing), reads=reads), model)
    return {
        name: tensor[:1].to(model.dtype) if tensor.is_floating_point() else tensor[:1]
        for name, tensor in inputs.items()
        if "mask" not in name
    }


def _nothing(_: Config) -> tuple[Topology, ...]:
    return ()


def _tiny(model: PreTrainedModel) -> PreTrainedModel:
    """A tiny random model with the class and the configuration of a large one, its sizes made small."""
    try:
        config: PreTrainedConfig = shrunk_like(model.config)
        torch.manual_seed(0)
        tiny = type(model)._from_config(config)  # pyright: ignore[reportPrivateUsage]
    except Exception as error:  # whatever a configuration that was made small may raise
        what = f"It is too large to be copied, and no tiny model can be made of its configuration ({error})"
        raise _refused(model, what) from error
    for parameter in tiny.parameters():
        parameter.data.normal_(0, 0.3)
    return tiny.eval()


def _refused(model: PreTrainedModel, why: str) -> UnsupportedArchitectureError:
    return UnsupportedArchitectureError(f"{type(model).__name__} could not be described automatically. {why}.")
