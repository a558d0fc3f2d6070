"""The fold over a chain, with matrices as components: nested branches, stops on the way, and the transpose backwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from normscope.chain.fold import ChainRules, Point, backward, fold, fold_back, forward
from normscope.chain.trace import Fork, Residual, Scale, Wiring, map_components


class Forwards(ChainRules[Tensor, Tensor]):
    def transform(self, step: Tensor, value: Tensor) -> Tensor:
        return step @ value


class Backwards(ChainRules[Tensor, Tensor]):
    def transform(self, step: Tensor, value: Tensor) -> Tensor:
        return step.T @ value


def matrices(count: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(4, 4, generator=random, dtype=torch.float64) for _ in range(count)]


A, B, C, D = matrices(4)
X, G = matrices(2)[0][0], matrices(2)[1][0]
ONE = torch.eye(4, dtype=torch.float64)

CHAINS: dict[str, tuple[list[Wiring | Tensor], Tensor]] = {
    "no branch": ([A, Scale(0.5), B], 0.5 * B @ A),
    "one branch": ([A, Fork(), B, Scale(3.0), Residual(), C], C @ (3 * B + ONE) @ A),
    "two branches in a row": ([Fork(), A, Residual(), Fork(), B, Residual()], (B + ONE) @ (A + ONE)),
    "a changed bypass": ([A, Fork((B, Scale(2.0))), C, Residual(), D], D @ (C + 2 * B) @ A),
    "a branch in a branch": ([Fork(), A, Fork(), B, Residual(), C, Residual(), D], D @ (C @ (B + ONE) @ A + ONE)),
}
every_chain = pytest.mark.parametrize("name", CHAINS)


@every_chain
def test_a_fold_forwards_is_the_matrix_of_the_chain(name: str) -> None:
    steps, matrix = CHAINS[name]
    end = fold(steps, Forwards(), Point(X))
    torch.testing.assert_close(end.value, matrix @ X)
    assert end.bypasses == ()


@every_chain
def test_a_fold_backwards_is_the_transpose_of_the_chain(name: str) -> None:
    steps, matrix = CHAINS[name]
    start = fold_back(steps, Backwards(), Point(G))
    torch.testing.assert_close(start.value, matrix.T @ G)
    assert start.bypasses == ()


@every_chain
def test_a_fold_that_stops_at_any_step_continues_to_the_same_end(name: str) -> None:
    steps, matrix = CHAINS[name]
    for stop in range(len(steps) + 1):
        point = fold(steps[:stop], Forwards(), Point(X))
        torch.testing.assert_close(fold(steps[stop:], Forwards(), point).value, matrix @ X)


def test_a_change_inside_a_branch_leaves_the_bypass_as_it_was() -> None:
    steps, rules = CHAINS["one branch"][0], Forwards()
    point = fold(steps[:3], rules, Point(X))
    changed = replace(point, value=torch.zeros_like(X))
    torch.testing.assert_close(fold(steps[3:], rules, changed).value, C @ A @ X)


def test_a_covector_that_starts_inside_a_branch_meets_no_bypass_at_its_fork() -> None:
    point = backward(Point(G), B, Backwards())
    torch.testing.assert_close(backward(point, Fork(), Backwards()).value, B.T @ G)


def test_the_rules_say_how_a_bypass_is_added() -> None:
    class Kept(Forwards):
        def add(self, value: Tensor, bypass: Tensor) -> Tensor:
            return value

    point = forward(Point(X), Fork(), Kept())
    torch.testing.assert_close(fold([A, Residual()], Kept(), point).value, A @ X)


def test_components_are_changed_around_a_branch_too_and_wiring_stays() -> None:
    def turned(step: Tensor) -> Tensor:
        return step.T

    steps, _ = CHAINS["a changed bypass"]
    start = fold_back(map_components(turned, steps), Backwards(), Point(X))
    torch.testing.assert_close(start.value, A @ (C + 2 * B) @ D @ X)


def test_components_of_several_chains_are_joined_around_a_branch_too() -> None:
    steps, matrix = CHAINS["a changed bypass"]
    end = fold(map_components(torch.block_diag, steps, steps), Forwards(), Point(torch.cat([X, G])))
    torch.testing.assert_close(end.value, torch.cat([matrix @ X, matrix @ G]))
