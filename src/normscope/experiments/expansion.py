"""expansion-rate (2021): how much the transformation f of the attention stretches vectors, from the weights alone.

The root mean square of the singular values of `x -> x W_V W_O` (all heads together): its Frobenius norm over sqrt(d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from normscope.capture import blocks_of
from normscope.capture.weights import BlockWeights
from normscope.errors import UnsupportedArchitectureError
from normscope.experiments import figures, published, tables
from normscope.experiments.base import Experiment, ModelFacts, Needs, Observation, Outcome, RunFacts, check_choice
from normscope.experiments.exact import Moments
from normscope.experiments.partial import Partial
from normscope.families.spec import DispatchedAttention, FusedTail, HookedAttention, LatentPerHead, SplitHeads

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_FORMS = ("linear", "authors")


@dataclass(frozen=True)
class ExpansionRate(Experiment):
    """Option `form`: `linear`, the linear map alone; `authors`, as their code has it: biases in an extra row and column
    (the output bias as a column), divided by sqrt(d + 1)."""

    form: str = "linear"

    name: ClassVar[str] = "expansion-rate"
    paper: ClassVar[str] = "Kobayashi et al. 2021"
    shows: ClassVar[str] = "expansion rate of f"
    summary: ClassVar[str] = (
        "how much the attention's value and output projections stretch vectors (from the weights alone)"
    )
    columns: ClassVar[dict[str, str]] = {
        "layer": "layer, from 1; empty for the mean over layers",
        "expansion_rate": "root mean square of the singular values of x -> x W_V W_O",
        "published": "the paper's mean, where the model is the paper's",
    }

    def __post_init__(self) -> None:
        check_choice(self.name, "form", self.form, _FORMS)

    def needs(self, model: ModelFacts) -> Needs:
        return Needs(corpus=False)

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        return Partial()

    def from_model(self, analyzer: Analyzer) -> Partial:
        stack, config = analyzer.family.stack, analyzer.model.config
        blocks = blocks_of(analyzer.model, stack)
        chain = stack.topology_of(config).chain()
        part = next(part for part in chain if isinstance(part, DispatchedAttention | HookedAttention))
        rates = [
            _rate(
                BlockWeights(block, torch.float64), part, int(config.get_text_config().num_attention_heads), self.form
            )
            for block in blocks
        ]
        of_layers = [rates[place % len(rates)] for place in range(len(analyzer.layers))]  # blocks may be shared
        return Partial(moments={"rate": Moments.once(np.array(of_layers))})

    def finish(self, partial: Partial, facts: RunFacts) -> Outcome:
        rates = partial.moments["rate"].mean()
        layers = facts.model.layers
        records: list[dict[str, object]] = [
            {"layer": layer, "expansion_rate": float(rate), "published": None}
            for layer, rate in zip(layers, rates, strict=True)
        ]
        known = published.expansion_rate(facts.model.name)
        records.append({"layer": None, "expansion_rate": float(rates.mean()), "published": known})
        return Outcome(
            {"expansion-rate": tables.from_records(records)}, {"expansion-rate": lambda: _figure(rates, facts.model)}
        )


def _rate(weights: BlockWeights, part: DispatchedAttention | HookedAttention, heads: int, form: str) -> float:
    output = weights.linear(part.output)
    projection = weights.linear(part.value.module)
    value = _value_rows(projection.weight, part, heads, output.weight.shape[1])
    product = value.T @ output.weight.T
    if form == "linear":
        return float(product.norm() / product.shape[0] ** 0.5)
    fused_bias = projection.weight.new_zeros(len(projection.weight)) if projection.bias is None else projection.bias
    value_bias = _value_rows(fused_bias[:, None], part, heads, output.weight.shape[1])[:, 0]
    output_bias = output.weight.new_zeros(len(output.weight)) if output.bias is None else output.bias
    extended = torch.block_diag(product, product.new_ones(1, 1))
    extended[:-1, -1] = value.T @ output_bias
    extended[-1, :-1] = value_bias @ output.weight.T
    extended[-1, -1] += value_bias @ output_bias
    return float(extended.norm() / len(extended) ** 0.5)


def _value_rows(matrix: Tensor, part: DispatchedAttention | HookedAttention, heads: int, size: int) -> Tensor:
    """`[head * d_head, d]`: the rows of a (possibly fused) projection that make the values, one block for every head."""
    d_head = size // heads
    match part.value:
        case SplitHeads():
            values = matrix.unflatten(0, (-1, d_head))
        case LatentPerHead():
            raise UnsupportedArchitectureError(
                f"The values come from a latent state through a norm ({part.value.norm.module}), so that no matrix takes "
                f"states to values: expansion-rate is for models whose values are a projection of their states."
            )
        case FusedTail():
            groups = (len(matrix) // d_head - heads) // 2
            values = matrix[-groups * d_head :].unflatten(0, (groups, d_head))
        case _:
            groups = heads if len(matrix) == 3 * size else (len(matrix) // d_head - heads) // 2
            values = matrix.unflatten(0, (groups, -1))[:, -d_head:]
    return values.repeat_interleave(heads // len(values), dim=0).flatten(0, 1)


def _figure(rates: np.ndarray, model: ModelFacts) -> Figure:
    figure, (axes,) = figures.panels(1, width=4.6, height=3.2)
    axes.bar(model.layers, rates, color=figures.PALETTE[0])
    axes.axhline(1, color="k", linewidth=0.8, linestyle=":")
    axes.set(xlabel="layer", ylabel="expansion rate of f", xticks=list(model.layers))
    return figure
