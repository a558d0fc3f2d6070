"""What is requested of a model: values of its logits, or of its last states, and the labels that people name them by.

How a question is read from what a user says is `wording`'s concern; how it is answered is not decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from normscope.chain.head_trace import HeadTrace, Target
from normscope.chain.trace import Linear
from normscope.errors import InputError, SelectionError, listing
from normscope.explain.probabilities import each_by_itself, has_probabilities
from normscope.families.heads import head_of, labels_of
from normscope.families.heads.spec import LANGUAGE_MODELLING, Task
from normscope.models.model import Model
from normscope.options import DEFAULT_OBJECTIVE, Objective

ROW_PER_TOKEN: tuple[Task, ...] = ("token-classification", "question-answering", "replaced-token", "ctc")
"""Tasks other than language modelling whose logits have a row for every token."""

LabelName = str | int
"""A label as people name it: a word of the vocabulary, a class by its name, or the number of either."""


@dataclass(frozen=True)
class Wanted:
    """A user's question: a label (default: what the model predicts), another to contrast it with, and where.

    Instead of a label, the model's own continuation for some tokens, or a direction of the last state.
    """

    target: LabelName | Sequence[int] | None = None
    against: LabelName | None = None
    at: int | str | None = None
    continue_for: int | None = None
    direction: Float[Tensor, " d"] | Literal["state"] | None = None
    decoder_text: str | Sequence[int] | None = None
    """What the decoder of an encoder-decoder reads, where the label is not its own next token."""
    objective: Objective | None = "logit"
    """What of the label's logit is explained; `None` stands for what fits the model and the question."""


Rows = Sequence[tuple[int | None, Wanted]]
"""Rows of the logits, with what is wanted at each; `None` is the row that the model itself chooses for the label."""


@dataclass(frozen=True)
class Answer:
    """One value to explain: a row of the logits, a label or several labels with weights, and how they are called."""

    target: Target
    name: str
    position: int


class Question(ABC):
    """What is requested of one pass: which values, and what has to be captured of the model for them."""

    asks_head: ClassVar[bool]
    """Whether the question is about the model's own head."""

    @property
    def objective(self) -> str:
        """What is explained: a direction, or what of a logit."""
        return "direction"

    @abstractmethod
    def head_of(self, states: Float[Tensor, "token d"]) -> HeadTrace:
        """A head of the question's own, where the model's is not asked."""

    @property
    @abstractmethod
    def reads_tokens(self) -> bool:
        """Whether every value is read off a token of its own, and not off the whole input."""

    @abstractmethod
    def answers(self, logits: Float[Tensor, "row label"]) -> list[Answer]:
        """The values to explain."""


@dataclass(frozen=True)
class LogitQuestion(Question):
    """Logits of the model's own head, or differences of two."""

    model: Model
    rows: Rows
    asked: Wanted = Wanted()
    """What the user said."""

    asks_head: ClassVar[bool] = True

    @property
    def objective(self) -> str:
        return objective_for(self.model, self.asked)

    @property
    def reads_tokens(self) -> bool:
        task = head_of(self.model.module).task
        return task in LANGUAGE_MODELLING or task in ROW_PER_TOKEN

    def head_of(self, states: Float[Tensor, "token d"]) -> HeadTrace:
        raise ValueError("a question about logits has no head of its own")

    def answers(self, logits: Float[Tensor, "row label"]) -> list[Answer]:
        return [_answer(self.model, row, wanted, logits) for row, wanted in self.rows]

    def check_labels(self) -> None:
        """Raise for a label that the model does not have, before it is run."""
        names = labels_of(self.model.module)
        count = self.model.config.get_text_config().vocab_size if names is None else len(names)
        for _, wanted in self.rows:
            for label in (wanted.target, wanted.against):
                if label is not None:
                    _label(self.model, label, count)


@dataclass(frozen=True)
class DirectionQuestion(Question):
    """The last state of a token along a direction of the user's own, or along itself: for models without a head."""

    position: int
    direction: Float[Tensor, " d"] | None

    asks_head: ClassVar[bool] = False

    @property
    def reads_tokens(self) -> bool:
        return True

    def head_of(self, states: Float[Tensor, "token d"]) -> HeadTrace:
        own = states[self.position]
        direction = own / own.square().sum() if self.direction is None else self.direction.to(own)
        if direction.shape != own.shape:
            raise InputError(f"The direction has shape {tuple(direction.shape)}, but a state has {tuple(own.shape)}.")
        weight = Linear(direction[None])
        return HeadTrace(states, (weight,), states @ weight.weight.T)

    def answers(self, logits: Float[Tensor, "row label"]) -> list[Answer]:
        name = "the state itself" if self.direction is None else "the direction"
        return [Answer(Target(self.position, {0: 1.0}), name, self.position)]


def _answer(model: Model, row: int | None, wanted: Wanted, logits: Float[Tensor, "row label"]) -> Answer:
    count = logits.shape[-1]
    if row is None:
        row = int(logits[:, _label(model, wanted.target or 0, count)].argmax())
    label = int(logits[row].argmax()) if wanted.target is None else _label(model, wanted.target, count)
    name, weights = label_name(model, label), {label: 1.0}
    objective = objective_for(model, wanted)
    if objective == "contrast":
        other = (
            _runner_up(model, logits[row], label) if wanted.against is None else _label(model, wanted.against, count)
        )
        if other == label:
            raise InputError(f"Target and contrast are the same label, {name!r}: their difference is always zero.")
        weights[other] = -1.0
        name = f"{name} - {label_name(model, other)}"
    centred = objective in ("centred", "alternatives")
    if centred and not _are_alternatives(model, count):
        raise InputError(
            f"A logit is compared with the mean over labels that exclude each other (objective={objective!r}), and those of "
            f"{model.name} ({head_of(model.module).task}) do not. Use objective='logit'."
        )
    return Answer(Target(row, weights, centred, objective == "alternatives"), name, row)


def objective_for(model: Model, wanted: Wanted) -> Objective:
    """What is explained of a label: what was requested, or by default what its logit can be compared with."""
    if wanted.against is not None:
        return "contrast"
    if wanted.objective is not None:
        return wanted.objective
    names = labels_of(model.module)
    return DEFAULT_OBJECTIVE if names is None or _are_alternatives(model, len(names)) else "logit"


def _are_alternatives(model: Model, labels: int) -> bool:
    """Whether the labels of a row exclude each other, so that they have probabilities to weigh them by."""
    return has_probabilities(model.module, labels) and not each_by_itself(model.module)


def _runner_up(model: Model, logits: Float[Tensor, " label"], label: int) -> int:
    """The label with the largest logit other than one."""
    if len(logits) < 2:
        raise InputError(f"{model.name} has one label, and nothing to contrast it with. Use objective='logit'.")
    first, second = logits.topk(2).indices.tolist()
    return second if first == label else first


def label_name(model: Model, label: int) -> str:
    """A label as people read it: the text of a token, or the name of a class, with its number where others have it too."""
    names = labels_of(model.module)
    if names is not None:
        name = names[label] if label < len(names) else str(label)
        return f"{name} ({label})" if names.count(name) > 1 else name
    if model.tokenizer is None:
        return str(label)
    return token_text(model.tokenizer, label)


def _label(model: Model, wanted: LabelName | Sequence[int], count: int) -> int:
    names = labels_of(model.module)
    if isinstance(wanted, int):
        if not 0 <= wanted < count:
            raise SelectionError(f"There is no label {wanted}: {model.name} has {count}, from 0 to {count - 1}.")
        return wanted
    if names is None or not isinstance(wanted, str):
        (token,) = tokens_of(model, wanted)
        return token
    return label_of(wanted, names, model.name)


def label_of(wanted: str, names: Sequence[str], model: str) -> int:
    """The number of a class: that of just this name, or the only one of this name in another case."""
    exact = [label for label, name in enumerate(names) if name == wanted]
    found = exact or [label for label, name in enumerate(names) if name.casefold() == wanted.casefold()]
    if not found:
        raise SelectionError(f"There is no label {wanted!r}. The labels of {model}: {listing(names)}.")
    if len(found) > 1:
        several = listing(f"{label} ({names[label]})" for label in found)
        raise SelectionError(f"{model} has {len(found)} labels that are called {wanted!r}. Say its number: {several}.")
    return found[0]


# ---- tokens ------------------------------------------------------------------------------------------------------------


def tokens_of(model: Model, text: str | Sequence[int]) -> list[int]:
    """The token ids of a word or a continuation, as they stand in the middle of a text; ids stay as they are."""
    if not isinstance(text, str):
        return _known(model, list(text))
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise InputError(
            f"The target {text!r} is a text, but the model was loaded without a tokenizer: give the token's id."
        )
    if not text:
        raise InputError("The target is empty. Name a word, or leave it out for what the model predicts.")
    known = tokenizer.get_vocab()
    # What a decoder outputs may have a vocabulary of its own.
    side: dict[str, Any] = {"text" if model.family.encoder is None else "text_target": text}
    whole = next((known[name] for name in (text, _marked(text)) if name in known), None)
    ids = [whole] if whole is not None else cast("list[int]", tokenizer(**side, add_special_tokens=False)["input_ids"])
    if not ids or tokenizer.unk_token_id in ids:
        raise InputError(
            f"The target {text!r} is not in the vocabulary of {model.name}: its tokenizer has no token for it."
        )
    return ids


def token_text(tokenizer: PreTrainedTokenizerBase, number: int) -> str:
    """The text of a token, with the space before it that SentencePiece leaves out of a text's first word."""
    text, name = cast(str, tokenizer.decode([number])), tokenizer.convert_ids_to_tokens(number)
    return f" {text}" if isinstance(name, str) and name.startswith("\u2581") and not text.startswith(" ") else text


def _marked(text: str) -> str:
    """A word with a space before it as SentencePiece has it in its vocabulary."""
    return f"\u2581{text[1:]}" if text.startswith(" ") else text


def _known(model: Model, ids: list[int]) -> list[int]:
    count = model.config.get_text_config().vocab_size
    if not ids or not all(0 <= number < count for number in ids):
        raise InputError(f"The target is the token ids {ids}, but {model.name} has those from 0 to {count - 1}.")
    return ids
