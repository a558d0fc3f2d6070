"""From logits to probabilities, as the model's own task means them: labels that exclude each other, or each by itself.

A regression has none, and neither have tasks whose labels at one row are no alternatives.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from normscope.families.heads import head_of
from normscope.families.heads.spec import Task

EACH = "each label by itself"
"""What is said of the probabilities of labels that do not exclude each other."""

_NOT_A_CHOICE: tuple[Task, ...] = ("question-answering", "replaced-token", "multiple-choice")
"""Tasks whose labels at one row are not alternatives."""

_OF_WHOLE_INPUTS: tuple[Task, ...] = ("sequence-classification", "image-classification")
"""Tasks whose problem a configuration may say."""


def has_probabilities(model: PreTrainedModel, labels: int) -> bool:
    """Whether a row of this many logits stands for probabilities."""
    regression = _problem(model) == "regression"
    return labels > 1 and not regression and head_of(model).task not in _NOT_A_CHOICE


def each_by_itself(model: PreTrainedModel) -> bool:
    """Whether several labels may be true at once: the probability of each is a sigmoid of its own."""
    return _problem(model) == "multi_label_classification"


def probabilities(model: PreTrainedModel, logits: Float[Tensor, "... label"]) -> Float[Tensor, "... label"]:
    """The probabilities of the labels, for a model that has them."""
    return logits.sigmoid() if each_by_itself(model) else logits.softmax(-1)


def _problem(model: PreTrainedModel) -> str | None:
    return getattr(model.config, "problem_type", None) if head_of(model).task in _OF_WHOLE_INPUTS else None
