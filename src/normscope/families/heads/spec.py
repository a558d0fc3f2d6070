"""The words in which a task head is described: what acts between the last block and the logits, and in what order.

A head is data, like a family. Paths are dotted names below the model *with* its head; `base_model` at their beginning is
the bare model, whatever its name. The capture reads these descriptions; nothing here touches a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from normscope.families.spec import Config, NormPart

# ---- which tokens the rows of the logits are made of -----------------------------------------------------------------


@dataclass(frozen=True)
class TokenAt:
    """One row: the token at a fixed position (the first by default)."""

    position: int = 0


@dataclass(frozen=True)
class LastToken:
    """One row: the rightmost token whose id is not that of padding; the last position where no such id is set."""


@dataclass(frozen=True)
class EndToken:
    """One row: the position of the last end-of-sequence token in `input_ids`."""


@dataclass(frozen=True)
class LastPosition:
    """One row: the last position, whatever is there."""


@dataclass(frozen=True)
class MeanOfTokens:
    """One row: the mean of the tokens that the attention mask keeps."""


@dataclass(frozen=True)
class MeanOfPositions:
    """One row: the mean of all positions, padding included."""


@dataclass(frozen=True)
class MeanFrom:
    """One row: the mean of the positions from one on, of inputs without padding (the patches of an image)."""

    position: int


PickPart = TokenAt | MeanFrom | LastToken | EndToken | LastPosition | MeanOfTokens | MeanOfPositions

# ---- what is done to each row ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearPart:
    """A linear layer."""

    module: str


@dataclass(frozen=True)
class LinearShare:
    """What a linear layer makes of one of several equal shares of its inputs; the first has its bias."""

    module: str
    share: int
    shares: int


@dataclass(frozen=True)
class LinearRows:
    """A few of the outputs of a linear layer, by their numbers."""

    module: str
    rows: tuple[int, ...]


@dataclass(frozen=True)
class MatrixPart:
    """A product with a matrix that belongs to another module (the word embeddings), and a bias of its own."""

    weight: str
    bias: str


@dataclass(frozen=True)
class ActivationPart:
    """An activation that the model holds at a path, applied to what the module `after` outputs."""

    after: str
    activation: str


@dataclass(frozen=True)
class NamedActivationPart:
    """An activation that the model calls by the name it has in transformers, applied to what `after` outputs."""

    after: str
    name: str


@dataclass(frozen=True)
class SoftCapPart:
    """`cap * tanh(z / cap)` of what the module `after` outputs."""

    after: str
    cap: float


@dataclass(frozen=True)
class ScalePart:
    """A product with a number."""

    factor: float


@dataclass(frozen=True)
class ShiftPart:
    """A bias that the model itself holds."""

    bias: str


# ---- heads of several branches ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AveragePart:
    """The mean of what several chains make of the same states."""

    branches: tuple[tuple[HeadPart, ...], ...]


@dataclass(frozen=True)
class SpanPart:
    """Splinter's: the logit of a token is the product of what one chain makes of a question token and another of it.

    `module` is called with the states and the positions of the question tokens. Each label has a pair of chains; the last
    modules of the two output the factors.
    """

    module: str
    labels: tuple[tuple[tuple[HeadPart, ...], tuple[HeadPart, ...]], ...]


HeadPart = (
    PickPart
    | NormPart
    | LinearPart
    | LinearShare
    | LinearRows
    | MatrixPart
    | ActivationPart
    | NamedActivationPart
    | SoftCapPart
    | ScalePart
    | ShiftPart
    | AveragePart
    | SpanPart
)

Task = Literal[
    "causal-lm",
    "masked-lm",
    "seq2seq-lm",
    "sequence-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "next-sentence",
    "replaced-token",
    "ctc",  # a token of the vocabulary, or none, for each frame of a sound
    "image-classification",
    "states",  # of a bare model: the states that it outputs, one row for each token
]

LANGUAGE_MODELLING: tuple[Task, ...] = ("causal-lm", "masked-lm", "seq2seq-lm", "ctc")
"""Tasks whose labels are the ids of the vocabulary."""


@dataclass(frozen=True)
class Head:
    """A task head: the parts between the states that leave the last block and the logits, in order.

    `logits` names what the model gives them out as (several are the labels side by side). `labels` are the names of the
    labels where the task fixes them; they are the vocabulary or those of the configuration otherwise. A head reads the
    family's own stack of blocks, or only its encoder.
    """

    task: Task
    parts: tuple[HeadPart, ...]
    logits: tuple[str, ...] = ("logits",)
    labels: tuple[str, ...] | None = None
    reads_encoder: bool = False


DescribedHead = Head | Callable[[Config], Head]
"""A head, or what a function makes of the configuration where it depends on it."""
