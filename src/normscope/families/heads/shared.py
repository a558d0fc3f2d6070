"""What the descriptions of heads have in common: a table of heads, and the parts that several of them share."""

from __future__ import annotations

from normscope.families.heads.spec import (
    ActivationPart,
    DescribedHead,
    Head,
    HeadPart,
    LinearPart,
    NamedActivationPart,
    TokenAt,
)
from normscope.families.spec import LayerNormPart, RmsNormPart

Parts = tuple[HeadPart, ...]
Table = dict[str, DescribedHead]

FIRST: Parts = (TokenAt(),)
LM_HEAD = LinearPart("lm_head")
CLASSIFIER = LinearPart("classifier")
RMS: Parts = (RmsNormPart("base_model.norm"),)
MODERN: Parts = (LayerNormPart("base_model.final_norm"),)


def activated(linear: str, activation: str) -> Parts:
    """A linear layer and the activation that the model holds."""
    return (LinearPart(linear), ActivationPart(linear, activation))


def named(linear: str, name: str) -> Parts:
    """A linear layer and an activation that the model calls by name."""
    return (LinearPart(linear), NamedActivationPart(linear, name))


def answers(*parts: HeadPart) -> Head:
    return Head("question-answering", parts, ("start_logits", "end_logits"), ("start", "end"))


def choices(*parts: HeadPart) -> Head:
    return Head("multiple-choice", parts, labels=("choice",))


def for_each(prefixes: str, *tables: Table) -> Table:
    """The heads of several classes: every prefix with every task."""
    return {f"{prefix}{task}": head for prefix in prefixes.split() for table in tables for task, head in table.items()}


def modern_head(name: str) -> Parts:
    """ModernBERT's dense layer, activation and norm."""
    return (*activated(f"{name}.dense", f"{name}.act"), LayerNormPart(f"{name}.norm"))
