"""Published values of faithfulness, to stand beside a matching run: those of ALTI-Logit's table, for GPT-2 small.

The model has to be the paper's by name and by shape, and the sets the paper's; otherwise a note says why not.
"""

from __future__ import annotations

from collections.abc import Collection

from normscope.experiments.base import ModelFacts
from normscope.models.source import short_name

IOI = "ioi"
BLIMP = frozenset(
    {
        "anaphor_gender_agreement",
        "anaphor_number_agreement",
        "animate_subject_passive",
        "determiner_noun_agreement_1",
        "determiner_noun_agreement_irregular_1",
        "determiner_noun_agreement_with_adjective_1",
        "determiner_noun_agreement_with_adj_irregular_1",
        "npi_present_1",
        "distractor_agreement_relational_noun",
    }
)
"""The nine sets of BLiMP whose evidence is known (Yin & Neubig 2022)."""

_BLIMP_MEAN = {
    "random": 0.512,
    "gradient-norm": 0.546,
    "gradient-x-input": 0.475,
    "leave-one-out": 0.625,
    "alti-logit": 0.739,
}
_IOI = {
    "random": 0.245,
    "gradient-norm": 0.860,
    "gradient-x-input": 0.111,
    "leave-one-out": 0.865,
    "alti-logit": 1.0,
}
"""Ferrando et al. 2023: mean reciprocal rank of contrastive explanations of GPT-2 small. Their `logit`, .731 and 1.0, is a
method that is not among normscope's."""

_GPT2 = ("gpt2", 12, 768, 50257)


def gpt2_small(model: ModelFacts) -> bool:
    """Whether a model is GPT-2 small, by name and by shape."""
    shape = (model.model_type, len(model.layers), model.width, model.vocabulary)
    return short_name(model.name) == "gpt2" and shape == _GPT2


def reciprocal_rank(model: ModelFacts, collections: Collection[str], question: str, method: str) -> float | None:
    """The published mean reciprocal rank of a method on a set, or on the mean of the nine sets of BLiMP."""
    if question != "contrastive" or not gpt2_small(model):
        return None
    names = frozenset(collections)
    if names == frozenset({IOI}):
        return _IOI.get(method)
    return _BLIMP_MEAN.get(method) if names == BLIMP else None


def notes(model: ModelFacts) -> list[str]:
    """Why no published values stand beside a run."""
    if gpt2_small(model):
        return []
    return [f"No published values: those of ALTI-Logit's table are for GPT-2 small, and the model is {model.name!r}."]
