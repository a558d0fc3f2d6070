"""expansion-rate (2021): how much the transformation f of the attention stretches vectors, from the weights alone.

The root mean square of the singular values of `x -> x W_V W_O + b` (all heads together), taken as a linear map of d + 1
dimensions as in the paper's Appendix C.1: its Frobenius norm over sqrt(d + 1). Where a norm stands before the attention, its
gamma and beta are part of f, and x is what the norm has centred and scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import torch
from matplotlib.figure import Figure
from torch import Tensor

from normscope.capture import blocks_of
from normscope.capture.values import projections, value_projection
from normscope.capture.weights import BlockWeights
from normscope.chain.trace import LayerNorm
from normscope.errors import UnsupportedArchitectureError
from normscope.experiments import declared, figures, published, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.partial import Moments, Partial
from normscope.experiments.tables import Row
from normscope.families.spec import (
    AttentionBesideMixer,
    AttentionPart,
    Config,
    DispatchedAttention,
    HookedAttention,
    LatentPerHead,
    LinearMixer,
    ProbedAttention,
    SequenceFirst,
    SideBySide,
    SplitHeads,
    Topology,
    Value,
)

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_PUBLISHED = "authors"
"""The form that the published values have: they come from the authors' code."""

_FORMS = ("affine", "linear", _PUBLISHED)


@dataclass(frozen=True)
class ExpansionRate(declared.ExpansionRate, Experiment):
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1; empty for the mean over layers",
        "expansion_rate": "root mean square of the singular values of f",
        "published": "the paper's mean, where the model is the paper's (MultiBERTs: over all 25) and the form the authors'",
        "published_minimum": "the paper's smallest value of a layer",
        "published_maximum": "the paper's largest value of a layer",
    }
    captions: ClassVar[dict[str, str]] = {
        "expansion-rate": "How much value and output projections stretch a vector, by layer.",
    }
    across_caption: ClassVar[str] = (
        "How much value and output projections stretch a vector. Published: 2021, Table 8, of the authors' form (-O "
        "expansion-rate.form=authors)."
    )

    def __post_init__(self) -> None:
        check_choice(self.name, "form", self.form, _FORMS)

    def needs(self, model: ModelFacts) -> Needs:
        return Needs(corpus=self.reads_corpus)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        return Partial()

    def from_model(self, analyzer: Analyzer) -> Partial:
        stack, config = analyzer.family.stack, analyzer.model.config
        blocks = blocks_of(analyzer.model, stack)
        of_layers: list[float] = []
        for index, topology in enumerate(stack.topologies(config)):
            weights = BlockWeights(blocks[index % len(blocks)], torch.float64)  # blocks may be shared
            attention = _attention(topology)
            of_layers.append(_Transformation.of(weights, attention, _heads(attention, config)).rate(self.form))
        return Partial(moments={"rate": Moments.once(np.array(of_layers))})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        rates = partial.moments["rate"].mean()
        layers = facts.model.layers
        records: list[dict[str, object]] = [
            {"layer": layer, "expansion_rate": float(rate)} for layer, rate in zip(layers, rates, strict=True)
        ]
        paper = published.paper_of_model(facts.model)
        if not paper.why_not and self.form != _PUBLISHED:
            paper = published.Paper(why_not=f"they are of the authors' code (-O {self.name}.form={_PUBLISHED}).")
        mean, smallest, largest = published_rates(paper)
        records.append(
            {
                "layer": None,
                "expansion_rate": float(rates.mean()),
                "published": mean,
                "published_minimum": smallest,
                "published_maximum": largest,
            }
        )
        return Outcome(
            {"expansion-rate": tables.from_records(records, _SCHEMA)},
            {"expansion-rate": lambda: _figure(rates, facts.model)},
            paper.notes,
        )

    @classmethod
    def sentence(cls, rows: list[Row]) -> str:
        rates = [row["expansion_rate"] for row in tables.rows_with(rows, "expansion_rate")]
        return f"Values and output projections stretch a vector {min(rates):.2g} to {max(rates):.2g} times, by layer."


def published_rates(paper: published.Paper) -> tuple[float | None, float | None, float | None]:
    """Mean, minimum and maximum over layers; the paper's model alone counts, since no corpus is read."""
    model = published.Paper(paper.model)
    mean, smallest, largest = (model.value(ExpansionRate.name, name) for name in ("mean", "minimum", "maximum"))
    return mean, smallest, largest


_SCHEMA = pa.schema(
    {
        "layer": pa.int64(),
        **dict.fromkeys(("expansion_rate", "published", "published_minimum", "published_maximum"), pa.float64()),
    }
)


@dataclass(frozen=True)
class _Transformation:
    """`f(x) = (x value + value_bias) output + output_bias`, value being `[d, head * d_head]`."""

    value: Tensor
    value_bias: Tensor
    output: Tensor
    output_bias: Tensor

    @classmethod
    def of(cls, weights: BlockWeights, part: AttentionPart, heads: int) -> _Transformation:
        if isinstance(part.value, LatentPerHead):
            raise UnsupportedArchitectureError(
                f"The values come from a latent state through a norm ({part.value.norm.module}), so that no matrix takes "
                f"states to values: expansion-rate is for models whose values are a projection of their states."
            )
        changed = [getattr(part, name, None) is not None for name in ("output_norm", "activation", "unit_context")]
        if isinstance(part, LinearMixer) or any(changed):
            raise UnsupportedArchitectureError(
                "A layer mixes tokens by a convolution or recurrence, or normalises or activates what its heads output: no "
                "matrix takes states to what it outputs. expansion-rate is for models with attention alone."
            )
        output = weights.linear(part.output, getattr(part, "layer_scale", None))
        d_head = output.weight.shape[1] // heads
        outputs = sum(len(weights.linear(path).weight) for path in projections(part.value))
        groups = _groups(part.value, outputs // d_head, heads)
        projection, bias = value_projection(part.value, weights, groups, d_head)
        value = projection.repeat_interleave(heads // groups, dim=0).flatten(0, 1).T
        value_bias = value.new_zeros(groups, d_head) if bias is None else bias
        value_bias = value_bias.repeat_interleave(heads // groups, dim=0).flatten()
        if part.norm is not None:
            norm = weights.norm(part.norm, value.T)
            if isinstance(norm, LayerNorm) and norm.bias is not None:
                value_bias = value_bias + norm.bias @ value
            value = norm.weight[:, None] * value
        zero = output.weight.new_zeros(len(output.weight))
        return cls(value, value_bias, output.weight.T, zero if output.bias is None else output.bias)

    def rate(self, form: str) -> float:
        product = self.value @ self.output
        if form == "linear":
            return float(product.norm() / product.shape[0] ** 0.5)
        extended = torch.block_diag(product, product.new_ones(1, 1))
        extended[-1, :-1] = self.value_bias @ self.output
        if form == "affine":
            extended[-1, :-1] += self.output_bias
        else:
            extended[:-1, -1] = self.value @ self.output_bias
            extended[-1, -1] += self.value_bias @ self.output_bias
        return float(extended.norm() / len(extended) ** 0.5)


def _attention(topology: Topology) -> AttentionPart:
    for part in topology.chain():
        if isinstance(part, AttentionBesideMixer):
            return part.mixer
        if isinstance(part, DispatchedAttention | HookedAttention | ProbedAttention | LinearMixer):
            return part
    raise UnsupportedArchitectureError("A layer has no attention: expansion-rate is for models with attention alone.")


def _heads(attention: AttentionPart, config: Config) -> int:
    if isinstance(attention, ProbedAttention):
        return attention.heads(config)
    return int(config.get_text_config().num_attention_heads)


def _groups(value: Value, outputs: int, heads: int) -> int:
    """How many heads have values of their own, from the number of head-sized outputs of the (possibly fused) projection."""
    if isinstance(value, SplitHeads | SequenceFirst | SideBySide):
        return outputs
    return heads if outputs == 3 * heads else (outputs - heads) // 2


def _figure(rates: np.ndarray, model: ModelFacts) -> Figure:
    figure, (axes,) = figures.panels(1, width=4.6, height=3.2)
    axes.bar(model.layers, rates, color=figures.PALETTE[0])
    axes.axhline(1, color="k", linewidth=0.8, linestyle=":")
    axes.set(ylabel="expansion rate of f")
    figures.layer_ticks(axes, model.layers)
    return figure
