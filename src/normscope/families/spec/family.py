"""Stacks of blocks, and families: an architecture as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from normscope.errors import UnsupportedArchitectureError, listing
from normscope.families.spec.config import Config, hidden_layers, positions_from_zero
from normscope.families.spec.topologies import Topology


@final
@dataclass(frozen=True)
class Stack:
    """A stack of blocks: their path below the bare model (`*` for each index), their topology, and their number.

    The topology is one for all, or what a function makes of the configuration: one for all, or one for every layer. The
    layers of a stack may have different parts, but have the same components, since they have the same scopes.
    `between` is the path, below the bare model, of a module that lies between two of the blocks, if there is one.
    """

    blocks: str
    topology: Topology | Callable[[Config], Topology | Sequence[Topology]]
    causal: bool = False
    depth: Callable[[Config], int] = hidden_layers
    between: str | None = None

    def topologies(self, config: Config) -> tuple[Topology, ...]:
        """The topology of every layer of a model."""
        depth = self.depth(config)
        described = self.topology if isinstance(self.topology, Topology) else self.topology(config)
        topologies = (described,) * depth if isinstance(described, Topology) else tuple(described)
        if len(topologies) != depth:
            raise UnsupportedArchitectureError(
                f"The family describes {len(topologies)} layers at {self.blocks!r}, but the model has {depth}."
            )
        chains = sorted({" ".join(topology.components()) for topology in topologies})
        if len(chains) > 1:
            raise UnsupportedArchitectureError(
                f"The layers at {self.blocks!r} differ in their components ({' / '.join(chains)}), so that they have no "
                f"scopes in common. Only what a component is made of may differ from layer to layer."
            )
        return topologies

    def topology_of(self, config: Config, layer: int = 1) -> Topology:
        """The topology of a layer, from 1."""
        return self.topologies(config)[layer - 1]

    def components(self, config: Config) -> list[str]:
        """The names of the components of every layer, in chain order."""
        return self.topology_of(config).components()

    def without_cross(self) -> Stack:
        """The same blocks without their cross-attention, as in a decoder that has no encoder."""
        return replace(self, topology=_WithoutCross(self))


@final
@dataclass(frozen=True)
class _WithoutCross:
    stack: Stack

    def __call__(self, config: Config) -> list[Topology]:
        return [topology.without_cross() for topology in self.stack.topologies(config)]


@final
@dataclass(frozen=True)
class Family:
    """An architecture: the stack that is analysed, the encoder that it looks at (if any), and its limits.

    `reads` is what the model takes in: `"text"` or `"image"`.

    Examples:
        >>> import normscope as ns
        >>> family = ns.families()["bert"]
        >>> family.stack.blocks, family.stack.causal, family.reads
        ('encoder.layer.*', False, 'text')
    """

    name: str
    model_types: tuple[str, ...]
    stack: Stack
    encoder: Stack | None = None
    longest: Callable[[Config], int | None] = positions_from_zero
    reads: str = "text"

    def __repr__(self) -> str:
        return f"Family({self.name!r}, for {listing(self.model_types)})"
