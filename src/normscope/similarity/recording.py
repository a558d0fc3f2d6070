"""Texts recorded for similarities: one captured pass through the bare model, every trace proved, and its embedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from normscope.capture import Side, module_between
from normscope.capture.heads import HeadListener
from normscope.capture.hooks import model_lock
from normscope.chain.head_trace import HeadTrace
from normscope.chain.trace import LayerTrace
from normscope.errors import UnsupportedArchitectureError
from normscope.explain.model_values import refuse_module_between
from normscope.families.heads import states_head
from normscope.inputs import Batch
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
    model: Model, spec: EmbeddingSpec, texts: Sequence[TextInput], dtype: torch.dtype | None = None
) -> list[RecordedText]:
    """Run the model on texts, those of similar lengths together, and keep what its layers did."""
    whole, model = model, bare(model)
    refuse_module_between(model, module_between(model.module, model.family.stack))
    arithmetic = dtype or torch.promote_types(model.weight_dtype, torch.float32)
    found: dict[int, RecordedText] = {}
    for batch in batches_of(model, texts):
        with model_lock(whole.module):
            passed = list(_Pass(model, batch, arithmetic).run())
        for index, layers, states in passed:
            with torch.no_grad():
                head = embedding_trace(states, spec, texts[index])
            model.proof.embedding(head)
            found[index] = RecordedText(texts[index], layers, head)
    return [found[index] for index in range(len(texts))]


class _Pass:
    """One captured pass of a batch: the traces of all layers of every text, each proved and joined to the one before."""

    def __init__(self, model: Model, batch: Batch, dtype: torch.dtype) -> None:
        self.model, self.batch, self.dtype = model, batch, dtype
        self.layers: list[list[LayerTrace]] = [[] for _ in batch.indices]

    def run(self) -> Iterator[tuple[int, list[LayerTrace], HeadTrace]]:
        """The place of every text with its layers, and with what acts between the last of them and the model's output."""
        model, lengths = self.model, self.batch.lengths
        end = states_head(model.module, model.family)
        listener = HeadListener(model.module, model.family, lengths, dtype=self.dtype, head=end)
        side = Side(model.family.stack, lengths, model.layers, self._keep)
        model.capture(self.batch, [side], dtype=self.dtype, head=listener)
        for index, layers, states in zip(self.batch.indices, self.layers, listener.traces(), strict=True):
            self._check_joined(layers[-1], states.states, "the pooling", len(layers))
            yield index, layers, states

    def _keep(self, layer: int, sequence: int, trace: LayerTrace) -> None:
        self.model.proof.layer(trace, f"layer {layer}")
        before = self.layers[sequence]
        if before:
            self._check_joined(before[-1], trace.hidden, f"layer {layer}", layer - 1)
        before.append(trace)

    def _check_joined(self, below: LayerTrace, entering: torch.Tensor, reader: str, layer: int) -> None:
        leaving = below.states[-1]
        if leaving is None or not torch.equal(leaving.to(entering.device), entering):
            raise UnsupportedArchitectureError(
                f"What enters {reader} is not what leaves layer {layer} of {self.model.name}: something acts between them, "
                f"through which nothing can be followed yet."
            )
