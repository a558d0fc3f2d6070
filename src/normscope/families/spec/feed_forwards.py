"""Feed-forwards: plain, gated, and mixtures of experts, after the attention or beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from normscope.families.spec.norms import NormPart


@final
@dataclass(frozen=True)
class PlainPart:
    """`second(activation(first(x)))`."""

    first: str
    activation: str
    second: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class GatedPart:
    """`down(activation(gate(x)) * up(x))`."""

    gate: str
    up: str
    activation: str
    down: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class FusedGatedPart:
    """The same with one projection for both, the activated half first."""

    gate_and_up: str
    activation: str
    down: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class ExpertsPart:
    """A few experts for each token, picked and weighed by a router; their weights are stacked, `[expert, out, in]`.

    `module` gives the output; `experts` is called with the states, the router's choices and their weights.
    """

    module: str
    experts: str
    activation: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class ClampedExpertsPart:
    """The experts of GPT-OSS: weights `[expert, in, out]`, gate and up interleaved, both clamped, one added to up."""

    module: str
    experts: str
    component: ClassVar[str] = "Ff"


@final
@dataclass(frozen=True)
class SharedExpertsPart:
    """Experts beside a network that serves every token, its weight one or the sigmoid of what `gate` gives out."""

    routed: ExpertsPart
    shared: GatedPart
    gate: str | None = None
    component: ClassVar[str] = "Ff"


FeedForwardPart = PlainPart | GatedPart | FusedGatedPart | ExpertsPart | ClampedExpertsPart | SharedExpertsPart


@final
@dataclass(frozen=True)
class BesideAttention:
    """A feed-forward that reads the query's own token, through `norm`, while attention reads all of them."""

    norm: NormPart
    feed_forward: PlainPart | GatedPart | FusedGatedPart
    component: ClassVar[str] = "Ff"
