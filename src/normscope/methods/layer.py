"""Methods that give maps of every layer, for `Analyzer.analyze(..., method=)`: what they have in common.

Each is in a module of its own, with the measure that computes its maps, what it is called and means, and its options.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from normscope.chain.measure import AnyMeasure
from normscope.errors import InputError
from normscope.methods.approximate import Approximate
from normscope.methods.base import GivesLayerMaps
from normscope.options import PAPERS, Conventions
from normscope.results.schema import NORMS
from normscope.scopes import Scope


@dataclass(frozen=True)
class MapRequest:
    """What is requested of one stack: scopes that it has (`given` if the user named them), heads, and how biases count."""

    scopes: tuple[Scope, ...]
    given: bool = False
    heads: bool = False
    conventions: Conventions = PAPERS
    projections: bool = False
    layers: Sequence[int] = ()
    approximate: Approximate | None = None


@dataclass(frozen=True)
class LayerMethod(GivesLayerMaps):
    """A method whose results are maps of layers, and how they are computed."""

    across_layers: ClassVar[bool] = False
    """Whether maps follow the states from an earlier layer, so that all layers between are needed, and all queries."""

    @abstractmethod
    def measures(self, request: MapRequest) -> list[AnyMeasure]:
        """What to compute for a request."""

    @property
    def scope(self) -> Scope | None:
        """The scope that a rollout takes by default, where it is not the only one."""
        return None

    @property
    def facts(self) -> dict[str, str | int]:
        return super().facts if self.scope is None else {**super().facts, "scope": str(self.scope)}

    def layers_needed(self, asked: Sequence[int]) -> Sequence[int]:
        """The layers to go through for the maps of those requested."""
        return asked


def refuse_options(method: LayerMethod, request: MapRequest, *, takes: Sequence[str] = ()) -> None:
    """Refuse the options of norms that a method does not take."""
    given = {
        "scopes": request.given,
        "heads": request.heads,
        "value_bias": request.conventions.value_bias != "token",
        "projections": request.projections,
        "approximate": request.approximate is not None,
        "ff_baseline": request.conventions.ff_baseline != "zero",
        "gates": request.conventions.gates != "fixed",
    }
    for option, is_given in given.items():
        if is_given and option not in takes:
            raise InputError(
                f"The method {method.name!r} does not take {option}: leave it out, or use method={NORMS!r}."
            )
