"""Topologies that fit the observed calls of a block: which module reads the output of another, or the sum of two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from normscope.describing.observe import BlockRun, same
from normscope.describing.parts import (
    Attended,
    FedForward,
    Normed,
    attentions_of,
    feed_forwards_of,
    linear_calls,
    norms_of,
    plain_number,
)
from normscope.errors import listing
from normscope.families.spec import (
    BranchNorm,
    Config,
    DispatchedAttention,
    FusedGatedPart,
    GatedPart,
    Parallel,
    PlainPart,
    PostNorm,
    PreNorm,
    Sandwich,
    ScaledPreNorm,
    Topology,
)

_EXACT = 1e-7
"""A factor so near one is one."""


@dataclass(frozen=True)
class Proposal:
    """The topologies that fit one block, most likely first, whether it is causal, and what was found and is missing."""

    topologies: list[Topology]
    causal: bool
    found: str
    missing: str


def propose(run: BlockRun, config: Config) -> Proposal:
    """What one block may be."""
    linears, norms = linear_calls(run), norms_of(run)
    attentions = attentions_of(run, linears, norms, config)
    found = [f"norms at {listing(norm.part.module for norm in norms) or 'no place'}"]
    if not attentions:
        seen = listing(run.attentions) or "none that goes through the attention interface"
        missing = (
            f"an attention whose weights and projected values give what a linear layer reads (attentions seen: {seen})"
        )
        return Proposal([], False, listing(found), missing)
    attention = attentions[0]
    found.insert(0, f"attention with values from {attention.part.value.module}, projected by {attention.part.output}")
    networks = feed_forwards_of(run, linears, attention)
    if not networks:
        return Proposal([], attention.causal, listing(found), "a feed-forward of linear layers or stacked experts")
    kinds = dict.fromkeys(type(network.part).__name__ for network in networks)
    found.append(f"feed-forwards ({listing(kinds)})")
    vectors = _vectors(run.module, run.reads.shape[-1])
    fitting = [
        topology
        for one in _scaled_attentions(attention, vectors)
        for network in networks
        for other in _scaled_networks(network, vectors)
        for topology in _Block(run, norms, one, other).topologies()
    ]
    missing = "" if fitting else "an order of norms and residual sums that gives the block's output"
    return Proposal(list(dict.fromkeys(fitting)), attention.causal, listing(found), missing)


def _vectors(block: nn.Module, size: int) -> list[tuple[str, Tensor]]:
    """Parameters that could multiply what a branch adds: vectors that are no weight or bias of a module."""
    names = ("weight", "bias")
    return [
        (name, parameter.detach())
        for name, parameter in block.named_parameters()
        if parameter.shape == (size,) and name.rpartition(".")[2] not in names
    ]


def _scaled_attentions(attention: Attended, vectors: list[tuple[str, Tensor]]) -> Iterator[Attended]:
    yield attention
    for path, vector in vectors:
        if isinstance(attention.part, DispatchedAttention):
            part = replace(attention.part, layer_scale=path)
            yield replace(attention, part=part, returns=attention.returns * vector)


def _scaled_networks(network: FedForward, vectors: list[tuple[str, Tensor]]) -> Iterator[FedForward]:
    yield network
    for path, vector in vectors:
        if isinstance(network.part, PlainPart | GatedPart | FusedGatedPart):
            yield replace(network, part=replace(network.part, layer_scale=path), returns=network.returns * vector)


@dataclass(frozen=True)
class _Block:
    """One attention and one feed-forward of a block, and where its norms and sums can lie."""

    run: BlockRun
    norms: list[Normed]
    attention: Attended
    network: FedForward

    def topologies(self) -> Iterator[Topology]:
        """Every order of parts that gives the block's output."""
        for attention in self._attention_with_norm():
            yield from self._parallel(attention)
            for after in (None, *self._reading(self.attention.returns)):
                yield from self._sequential(attention, after)

    def _attention_with_norm(self) -> Iterator[Attended]:
        if same(self.attention.reads, self.run.reads):
            yield self.attention
        for norm in self._reading(self.run.reads):
            if same(norm.returns, self.attention.reads):
                yield replace(self.attention, part=replace(self.attention.part, norm=norm.part))

    def _reading(self, states: Tensor) -> list[Normed]:
        return [norm for norm in self.norms if same(norm.reads, states)]

    def _parallel(self, attention: Attended) -> Iterator[Topology]:
        total = self.run.reads + self.attention.returns + self.network.returns
        for norm in self._reading(self.run.reads):
            if same(norm.returns, self.network.reads) and same(total, self.run.returns):
                yield Parallel(attention.part, norm.part, self.network.part)

    def _sequential(self, attention: Attended, after: Normed | None) -> Iterator[Topology]:
        branch = self.attention.returns if after is None else after.returns
        if after is not None and same(self.run.reads + branch, self.network.reads):
            for last in self._reading(self.network.returns):
                if same(self.network.reads + last.returns, self.run.returns):
                    yield BranchNorm(attention.part, after.part, self.network.part, last.part)
        for middle in (norm for norm in self.norms if norm.reads.shape == self.run.reads.shape):
            factor = _factor(middle.reads - self.run.reads, branch)
            if factor is not None and same(middle.returns, self.network.reads):
                yield from self._after_the_middle(attention, after, middle, factor)

    def _after_the_middle(
        self, attention: Attended, after: Normed | None, middle: Normed, factor: float
    ) -> Iterator[Topology]:
        network, output = self.network, self.run.returns
        if after is None and factor == 1:
            for last in self._reading(middle.returns + network.returns):
                if same(last.returns, output):
                    yield PostNorm(attention.part, middle.part, network.part, last.part)
        if after is None and same(middle.reads + factor * network.returns, output):
            if factor == 1:
                yield PreNorm(attention.part, middle.part, network.part)
            else:
                yield ScaledPreNorm(attention.part, middle.part, network.part, factor)
        if after is not None:
            for last in self._reading(network.returns):
                if same(middle.reads + factor * last.returns, output):
                    scale = None if factor == 1 else factor
                    yield Sandwich(attention.part, after.part, middle.part, network.part, last.part, scale)


def _factor(added: Tensor, branch: Tensor) -> float | None:
    """The number of times that a branch was added, or nothing if something else was."""
    if added.shape != branch.shape:
        return None
    factor = float((added * branch).sum() / branch.square().sum().clamp(min=1e-30))
    if abs(factor) < _EXACT or not same(added, factor * branch):
        return None
    return 1.0 if abs(factor - 1) < _EXACT else plain_number(factor)
