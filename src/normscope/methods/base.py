"""What a method is: a name, what it measures, what it costs and where it comes from; its options are its fields.

A method says nothing of models: how it is computed is the concern of its subclass, one kind for maps of layers and one for
attributions of a prediction.
"""

from __future__ import annotations

import json
from abc import ABC
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from normscope.methods.registry import Declaration

Gives = Literal["layer maps", "attribution"]
"""What comes out: maps of every layer (`Analyzer.analyze`), or the tokens' shares of a prediction (`Analyzer.explain`)."""


@dataclass(frozen=True)
class Method(Declaration, ABC):
    """A way to say what flows between tokens, or what made a model say this. Fields of subclasses are its options."""

    summary: ClassVar[str]
    """One sentence: what a number of the result means."""
    quantity: ClassVar[str]
    """What is measured, as results say it: `norm`, `projection`, `weight`, `logit`, ..."""
    signed: ClassVar[bool] = False
    cost: ClassVar[str]
    """In words, relative to a plain forward pass."""
    operations: ClassVar[str]
    """The leading term of the multiplications, in n tokens, hidden size d, F neurons, H heads, L layers."""
    paper: ClassVar[str]
    gives: ClassVar[Gives]
    follows: ClassVar[bool] = False
    """Whether it follows what flows through the layers: edges, heads, feed-forwards."""
    passes: ClassVar[int] = 2
    """About how many passes of the model, forwards or back, one attribution takes."""
    passes_per_token: ClassVar[bool] = False
    """Whether it is about one pass for every token instead."""

    def calls(self, length: int) -> int:
        """About how many passes an attribution of one prediction takes, for an input of this many tokens."""
        return length if self.passes_per_token else self.passes

    @property
    def options(self) -> dict[str, object]:
        """The options with their values."""
        return {option.name: getattr(self, option.name) for option in fields(self)}

    @property
    def facts(self) -> dict[str, str | int]:
        """What a result says about how it was made."""
        options = {"method_options": json.dumps(self.options)} if self.options else {}
        return {"method": self.name, **options}


@dataclass(frozen=True)
class GivesLayerMaps(Method):
    """A method whose results are maps of layers."""

    gives: ClassVar[Gives] = "layer maps"


@dataclass(frozen=True)
class GivesAttribution(Method):
    """A method of `Analyzer.explain`."""

    gives: ClassVar[Gives] = "attribution"
