"""How a model makes an embedding of its last states, as data: pooling, dense layers, norms, lengths, prompts.

Read from a folder of sentence-transformers (`folder`), or made of the name of a pooling. Nothing here runs a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from jaxtyping import Float
from torch import Tensor, nn

from normscope.chain.activations import Activation
from normscope.chain.trace import LayerNorm, Linear
from normscope.errors import InputError, listing, unknown
from normscope.options import LATE_INTERACTION, Pooling, PoolingMode

MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)

Task = Literal["query", "document"]
"""The role of a text in retrieval; a text without one has the model's default prompt, if there is one."""


@dataclass(frozen=True)
class Pool:
    """One row from all tokens: the results of the modes, concatenated. The tokens of a prompt can be left out."""

    modes: tuple[PoolingMode, ...]
    include_prompt: bool = True


@dataclass(frozen=True)
class Dense:
    """`activation(linear(x))`, with a residual plus `x`, or plus another matrix times `x`.

    `module` is what the model has for the matrix, if it is a part of the model and not of a file beside it.
    """

    linear: Linear
    activation: Activation | None
    residual: Linear | Literal["itself"] | None = None
    module: nn.Module | None = None


@dataclass(frozen=True)
class Centre:
    """A LayerNorm of the embedding."""

    norm: LayerNorm


@dataclass(frozen=True)
class UnitLength:
    """Every row divided by its length."""


@dataclass(frozen=True)
class AttentionPool:
    """One row of all tokens by an attention whose query is a vector of the model's own, and a feed-forward (SigLIP).

    `module` is the whole, as the model has it; the others are what it is made of.
    """

    module: nn.Module
    probe: Float[Tensor, "1 d"]
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int
    norm: LayerNorm
    first: Linear
    activation: Activation
    second: Linear


EmbeddingStep = Pool | Dense | Centre | UnitLength | AttentionPool


@dataclass(frozen=True)
class Expansion:
    """The padding of queries in late interaction: a token, up to a length, and whether the others attend to it."""

    length: int
    token: str | None
    attend: bool
    cuts: bool
    """Whether longer queries are cut to the length."""


@dataclass(frozen=True)
class Reading:
    """How texts are read: at most this many tokens, in lower case or not, and with which instructions before them."""

    longest: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    default_prompt: str = ""
    query_length: int | None = None
    document_length: int | None = None
    expansion: Expansion | None = None
    filled: Expansion | None = None
    """The padding of every text, whatever its task."""
    end: int | Literal["highest"] | None = None
    """The token whose first occurrence is embedded (or that of the highest id), which has to be the last of a text."""


@dataclass(frozen=True)
class EmbeddingSpec:
    """From the last states of a model to its embedding: one row, or for late interaction one for each token.

    `source` says where the description comes from. `skipped` are tokens of documents that late interaction does not match.
    """

    steps: tuple[EmbeddingStep, ...]
    source: str
    measure: str = "cosine"
    """What the model's files compare embeddings by: a `Measure`, or something that cannot be decomposed."""
    reading: Reading = Reading()
    skipped: tuple[str, ...] = ()
    mean_of_matches: bool = False
    """Whether late interaction divides the sum of the matches by their number."""
    logit: tuple[float, float] | None = None
    """The factor and the bias by which the model itself turns a cosine into its logit."""

    @property
    def is_late(self) -> bool:
        """Whether every token keeps a vector of its own."""
        return not any(isinstance(step, Pool | AttentionPool) for step in self.steps)

    @property
    def pooling(self) -> str:
        """The pooling by name, for facts and messages."""
        modes = [mode for step in self.steps if isinstance(step, Pool) for mode in step.modes]
        modes += ["attention" for step in self.steps if isinstance(step, AttentionPool)]
        return "+".join(modes) or LATE_INTERACTION


def named_pooling(name: Pooling, reading: Reading) -> EmbeddingSpec:
    """The description of a plain transformer with a pooling of a name, such as `mean`, or of several, `mean+max`."""
    source = f"the pooling that was requested, {name!r}"
    if name == LATE_INTERACTION:
        return EmbeddingSpec((UnitLength(),), source, LATE_INTERACTION, reading)
    return EmbeddingSpec((Pool(pooling_modes(name)),), source, reading=reading)


def pooling_modes(name: str) -> tuple[PoolingMode, ...]:
    """The modes that a name lists, joined by `+`."""
    found: list[PoolingMode] = []
    for part in str(name).split("+"):
        mode = part.strip()
        if mode not in MODES:
            raise InputError(
                unknown(f"There is no pooling {name!r}", str(name), "Poolings", (*MODES, LATE_INTERACTION))
                + " Several are joined by a plus, such as mean+max."
            )
        found.append(mode)
    return tuple(found)


def prompt_of(reading: Reading, task: Task | None, given: str | None, model: str) -> str:
    """The instruction before a text: the one that is given, that of the task, or the model's default."""
    if given is not None:
        if not isinstance(cast(object, given), str):
            raise InputError(f"A prompt is a text, not {given!r:.60}.")
        return given
    names = {"query": ("query",), "document": ("document", "passage", "corpus"), None: ()}[task]
    named = [reading.prompts[name] for name in names if reading.prompts.get(name)]
    if named:
        return named[0]
    if not reading.default_prompt:
        return ""
    if reading.default_prompt not in reading.prompts:
        raise InputError(
            f"The default prompt of {model} is called {reading.default_prompt!r}, but its folder has "
            f"{listing(reading.prompts) or 'no prompts'}. Give the prompt itself."
        )
    return reading.prompts[reading.default_prompt]
