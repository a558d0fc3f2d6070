"""Norms of a block: what each does to a state, and the module that does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final


@final
@dataclass(frozen=True)
class LayerNormPart:
    """Centres and scales; with or without weight and bias."""

    module: str
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class FixedLayerNormPart:
    """Centres and scales with neither weight nor bias, by an epsilon that its module does not tell."""

    module: str
    epsilon: float
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class RmsNormPart:
    """Scales by the root of the mean square."""

    module: str
    component: ClassVar[str] = "Ln"


@final
@dataclass(frozen=True)
class UnitRmsNormPart:
    """The same with a weight that counts from one: `1 + w` (Gemma)."""

    module: str
    component: ClassVar[str] = "Ln"


NormPart = LayerNormPart | FixedLayerNormPart | RmsNormPart | UnitRmsNormPart
