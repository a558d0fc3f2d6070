"""Sampled pairs of tokens, and their parts along the chain after a feed-forward.

From them a sketch learns along which directions parts lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.decompose.carrier import OpenCarrier
from normscope.decompose.lens import Samples, views_of
from normscope.trace import Norm

if TYPE_CHECKING:
    from normscope.decompose.factored import KeyGroup

_KEYS = 64
_ROWS_PER_KEY = 4
SAMPLED_PAIRS = _KEYS * _ROWS_PER_KEY


@dataclass(frozen=True)
class Pairs:
    """Some keys of a group, spread evenly, and for each of them some query rows that see it."""

    group: KeyGroup
    keys: Int[Tensor, " sampled_key"]
    rows: Int[Tensor, "sampled_key sampled_row"]

    @staticmethod
    def sampled(group: KeyGroup, seed: int) -> Pairs:
        visible, device = group.visible(), group.weights.device
        keys = torch.linspace(0, visible - 1, min(_KEYS, visible), device=device).long()
        seen = group.weights[keys].abs().sum(-1).cpu() > 0
        generator = torch.Generator().manual_seed(seed)
        rows = torch.multinomial(seen + 1e-9, _ROWS_PER_KEY, replacement=True, generator=generator)
        return Pairs(group, keys, rows.to(keys.device))

    @cached_property
    def weights(self) -> Float[Tensor, "sampled_key sampled_row head"]:
        return self.group.weights[self.keys[:, None], self.rows] * self.group.scale[self.rows, None]

    def through(self, output: Float[Tensor, "head d_head outputs"]) -> Float[Tensor, "sampled_key sampled_row outputs"]:
        """The pairs' parts after a matrix for each head."""
        return torch.bmm(self.weights, torch.bmm(self.group.values[:, self.keys], output).transpose(0, 1))

    def of_factors(
        self, factors: Float[Tensor, "key head outputs"]
    ) -> Float[Tensor, "sampled_key sampled_row outputs"]:
        """The same from the factors of all keys."""
        return torch.bmm(self.weights, factors[self.keys])

    def parts(self, output: Float[Tensor, "head d_head d"]) -> Float[Tensor, "sample d"]:
        return self.through(output).flatten(0, 1)


@dataclass(frozen=True)
class Later:
    """The chain after a feed-forward: its norms, and the bypasses that join with the number of norms before them."""

    norms: tuple[Norm, ...] = ()
    bypasses: tuple[tuple[int, OpenCarrier], ...] = ()

    def known_samples(self, pairs: Sequence[Pairs]) -> list[Samples]:
        """The parts of sampled pairs that bypasses bring back."""
        samples: list[Samples] = []
        for joined, bypass in self.bypasses:
            outputs = {group.kind: group.output for group in bypass.groups}
            parts = [each.parts(outputs[each.group.kind]) for each in pairs if each.group.kind in outputs]
            if parts:
                samples.append(Samples([*[None] * joined, *views_of(torch.cat(parts), self.norms[joined:])]))
        return samples
