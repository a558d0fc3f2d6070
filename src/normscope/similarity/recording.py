"""A text recorded for a similarity: one captured pass through the bare model, every trace proved, and its embedding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from normscope.capture import Side, module_between
from normscope.capture.heads import HeadListener
from normscope.chain.head_trace import HeadTrace
from normscope.chain.trace import LayerTrace
from normscope.errors import UnsupportedArchitectureError
from normscope.explain.model_values import refuse_module_between
from normscope.families.heads import states_head
from normscope.models.model import Model
from normscope.similarity.plain import Rows, bare, batches_of
from normscope.similarity.spec import EmbeddingSpec
from normscope.similarity.steps import embedding_trace
from normscope.similarity.texts import TextInput


@dataclass(frozen=True)
class RecordedText:
    """A text with the traces of all layers, from the first to the last, and of the way from there to its embedding."""

    text: TextInput
    layers: list[LayerTrace]
    head: HeadTrace

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.text.sequence)

    @property
    def embedding(self) -> Rows:
        """The embedding, computed plainly of the states of this pass."""
        return self.head.logits


def record(
    model: Model,
    spec: EmbeddingSpec,
    text: TextInput,
    dtype: torch.dtype | None = None,
    tell: Callable[[], None] | None = None,
) -> RecordedText:
    """Run the model once on a text and keep what its layers did; `tell` is called before each layer."""
    model = bare(model)
    refuse_module_between(model, module_between(model.module, model.family.stack))
    arithmetic = dtype or torch.promote_types(model.weight_dtype, torch.float32)
    (batch,) = batches_of(model, [text])
    layers: list[LayerTrace] = []

    def keep(layer: int, _: int, trace: LayerTrace) -> None:
        if tell is not None:
            tell()
        model.proof.layer(trace, f"layer {layer}")
        if layers and not torch.equal(_output(layers[-1]).to(trace.hidden.device), trace.hidden):
            raise _between(model, f"layer {layer}", f"layer {layer - 1}")
        layers.append(trace)

    side = Side(model.family.stack, batch.lengths, model.layers, keep)
    end = states_head(model.module, model.family)
    listener = HeadListener(model.module, model.family, batch.lengths, dtype=arithmetic, head=end)
    model.capture(batch, [side], dtype=arithmetic, head=listener)
    (states,) = listener.traces()
    if not torch.equal(_output(layers[-1]).to(states.states.device), states.states):
        raise _between(model, "the pooling", f"layer {len(layers)}")
    with torch.no_grad():
        head = embedding_trace(states, spec, text)
    model.proof.embedding(head)
    return RecordedText(text, layers, head)


def _output(trace: LayerTrace) -> torch.Tensor:
    state = trace.states[-1]
    assert state is not None
    return state


def _between(model: Model, reader: str, writer: str) -> UnsupportedArchitectureError:
    return UnsupportedArchitectureError(
        f"What enters {reader} is not what leaves {writer} of {model.name}: something acts between them, through which "
        f"nothing can be followed yet."
    )
