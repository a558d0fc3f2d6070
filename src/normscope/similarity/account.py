"""The account of a similarity: the table of pairs of tokens, the margins and the constant, which add up to the product.

With both passes frozen, the rows of an embedding are `e[r] = sum_k p[r, k] + beta[r]`, and the similarity is a weighted sum
of products of rows of the one with rows of the other. The parts `p` of one text are carried forward through its layers (as
much work as one frozen forward pass for each token) and become covectors, which are pulled back through the other text: one
for each token, and one for the bias. Where tokens outnumber the dimensions of an embedding, each dimension is pulled back
through both texts instead. No vector of a pair of tokens is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from normscope.decompose.head import through_head
from normscope.decompose.propagate import Block, Columns, starting_vectors
from normscope.pullback import pull_back_rows, pull_back_states
from normscope.pullback.many import PreparedBlock, PreparedEnd
from normscope.similarity.recording import RecordedText

TILE_ELEMENTS = 1 << 21
"""How many neurons of all vectors go through a layer at a time."""


@dataclass(frozen=True)
class Interaction:
    """The pairs of rows of two embeddings that are multiplied, and the factor of the sum of their products.

    `value = factor * sum_p <first[first_rows[p]], second[second_rows[p]]>`.
    """

    first_rows: Int[Tensor, " pair"]
    second_rows: Int[Tensor, " pair"]
    factor: float

    @property
    def swapped(self) -> Interaction:
        """The same seen from the second text."""
        return Interaction(self.second_rows, self.first_rows, self.factor)

    def at_first(self, vectors: Float[Tensor, "_ target d"], rows: int) -> Float[Tensor, "target row d"]:
        """The covectors at the rows of the first embedding, for vectors at the rows of the second."""
        made = vectors.new_zeros(rows, *vectors.shape[1:])
        made.index_add_(0, self.first_rows, vectors[self.second_rows])
        return (made * self.factor).transpose(0, 1)

    def products(self, first: Float[Tensor, "row k d"], second: Float[Tensor, "row l d"]) -> Float[Tensor, "k l"]:
        """The products of every vector of the one with every vector of the other."""
        return torch.einsum("pkd,pld->kl", first[self.first_rows], second[self.second_rows]) * self.factor


@dataclass(frozen=True)
class Table:
    """`cells[k, l] + first_margin[k] + second_margin[l] + constant`, summed, is the value.

    `errors` are relative errors of completeness: of the products of every vector of the one text with the other embedding,
    and of the parts of the one.
    """

    cells: Float[Tensor, "first second"]
    first_margin: Float[Tensor, " first"]
    second_margin: Float[Tensor, " second"]
    constant: Float[Tensor, ""]
    errors: Float[Tensor, " check"]

    @property
    def transposed(self) -> Table:
        """The same with the texts the other way round."""
        return Table(self.cells.T, self.second_margin, self.first_margin, self.constant, self.errors)


class Decomposed:
    """A recorded text with the parts of its embedding, computed once for all texts that it is compared with."""

    def __init__(self, recorded: RecordedText) -> None:
        self.recorded = recorded
        self.rows, self.dimensions = recorded.embedding.shape

    @property
    def width(self) -> int:
        """The number of frozen passes for its parts: one for each token and one for the bias, or one for each dimension."""
        return min(self.recorded.length, self.rows * self.dimensions) + 1

    @cached_property
    def bias(self) -> Float[Tensor, "row d"]:
        """The part of the embedding that belongs to no token."""
        return _carried(self._blocks, self.recorded, Columns(range(0), bias=True))[:, 0]

    @cached_property
    def parts(self) -> Float[Tensor, "row token d"]:
        """The part of every token in the embedding."""
        length = self.recorded.length
        if length > self.rows * self.dimensions:
            return self.parts_by_dimension
        tile = _tile(self.recorded)
        tiles = [range(start, min(start + tile, length)) for start in range(0, length, tile)]
        return torch.cat([_carried(self._blocks, self.recorded, Columns(tokens)) for tokens in tiles], 1)

    @cached_property
    def parts_by_dimension(self) -> Float[Tensor, "row token d"]:
        """The same by pulling every dimension back."""
        units = torch.eye(self.rows * self.dimensions).to(self.recorded.embedding)
        shares = pulled_shares(self.recorded, units.unflatten(-1, (self.rows, self.dimensions)))
        return shares.unflatten(0, (self.rows, self.dimensions)).transpose(1, 2)

    @cached_property
    def _blocks(self) -> list[Block]:
        return [Block(trace) for trace in self.recorded.layers]

    def error(self) -> Float[Tensor, ""]:
        """How far parts and bias are from the embedding, relative to its length."""
        own = self.recorded.embedding
        return ((self.parts.sum(1) + self.bias - own).norm(dim=-1) / own.norm(dim=-1)).amax()


def table(first: Decomposed, second: Decomposed, interaction: Interaction) -> Table:
    """The table of two texts. The parts of the second are pulled back through the first if that is cheaper."""
    beta, own = first.bias, first.recorded.embedding
    if second.recorded.length >= first.rows * first.dimensions:
        by_token = torch.cat([second.parts, second.bias[:, None]], 1)
        shares = interaction.products(first.parts, by_token).T
        covectors = interaction.at_first(by_token, first.rows)
    else:
        covectors = interaction.at_first(torch.cat([second.parts, second.bias[:, None]], 1), first.rows)
        shares = pulled_shares(first.recorded, covectors)
    biases = (covectors * beta).sum((1, 2))
    values = (covectors * own).sum((1, 2))
    sizes = shares.abs().sum() + biases.abs().sum()
    errors = torch.stack([(shares.sum(1) + biases - values).abs().sum() / sizes, second.error()])
    return Table(shares[:-1].T, shares[-1], biases[:-1], biases[-1], errors)


@dataclass(frozen=True)
class Shares:
    """The share of every token of one text in the similarity; with the bias, shares add up to the value."""

    shares: Float[Tensor, " token"]
    bias: Float[Tensor, ""]


def shares_of(first: RecordedText, second: RecordedText, interaction: Interaction) -> Shares:
    """The shares of the tokens of the first text: the embedding of the second, pulled back, with the share of biases."""
    covectors = interaction.at_first(second.embedding[:, None], len(first.embedding))
    with torch.no_grad():
        head = pull_back_rows(first.head, covectors)
        covector, bias = head.covector, head.bias
        for trace in reversed(first.layers):
            below = pull_back_states(trace, covector)
            covector, bias = below.covector, bias + below.bias.to(bias.device)
        shares = (covector * first.layers[0].hidden).sum(-1)
    return Shares(shares[0], bias[0])


def pulled_shares(recorded: RecordedText, covectors: Float[Tensor, "target row d"]) -> Float[Tensor, "target token"]:
    """The products of every token's part with covectors at the rows of the embedding."""
    with torch.no_grad():
        end = PreparedEnd(recorded.head)
        blocks = [PreparedBlock(trace) for trace in recorded.layers[:-1]]
        blocks.append(PreparedBlock(recorded.layers[-1], end.tokens))
        shares: list[Tensor] = []
        for targets in covectors.split(_tile(recorded)):
            carried = end.pull(targets)
            for block in reversed(blocks[1:]):
                carried = block.pull(carried)
            shares.append(blocks[0].shares(carried))
        return torch.cat(shares)


def _carried(blocks: list[Block], recorded: RecordedText, columns: Columns) -> Float[Tensor, "row column d"]:
    """The parts of some tokens, or of the biases, in the embedding."""
    with torch.no_grad():
        vectors, _ = starting_vectors(blocks[0], columns)
        for block in blocks:
            vectors = block.carry(vectors, None, columns)
        missing = recorded.length - len(vectors)
        if missing:  # of a causal model, tokens before the first of the columns hold nothing of them
            vectors = torch.cat([vectors.new_zeros(missing, *vectors.shape[1:]), vectors])
        return through_head(recorded.head.steps, vectors, bias=columns.bias)


def _tile(recorded: RecordedText) -> int:
    """How many vectors of every token go through the layers together."""
    width = 4 * recorded.layers[0].hidden.shape[-1]
    return max(1, TILE_ELEMENTS // (recorded.length * width))
