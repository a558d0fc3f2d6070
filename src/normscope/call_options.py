"""The options of the analyzer's calls as types, so that a checker knows them; the calls themselves say what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from normscope.choices import FeedForwardBaseline, Products, ValueBias
from normscope.explain.question import LabelName
from normscope.inputs import Target
from normscope.measures.approximated import Approximate
from normscope.methods import LayerMethod, Method
from normscope.passes import Tell

Text = str | tuple[str, str]
"""One text, or a pair of them."""

Vector = Tensor | np.ndarray | Sequence[float]
"""A vector of torch, of numpy, or of plain numbers."""


class MixingOptions(TypedDict, total=False):
    """Options of `Analyzer.mixing_ratios`, which says what they mean."""

    target: Target | None
    scopes: str | Sequence[str] | None
    layers: int | Sequence[int] | None
    truncate: bool
    value_bias: ValueBias
    ff_baseline: FeedForwardBaseline
    dtype: torch.dtype | None
    progress: bool | None
    tell: Tell | None


class AnalysisOptions(MixingOptions, total=False):
    """Options of `Analyzer.analyze`, which says what they mean."""

    queries: int | Sequence[int] | None
    heads: bool
    method: str | LayerMethod
    projections: bool
    max_memory: int | None
    approximate: str | Approximate | None
    products: Products | None
    out: str | Path | None


class ExplainOptions(TypedDict, total=False):
    """Options of `Analyzer.explain`, which says what they mean."""

    target: LabelName | Sequence[int] | None
    against: LabelName | None
    at: int | None
    continue_for: int | None
    direction: Vector | Literal["state"] | None
    reply: str | Sequence[int] | None
    method: str | Method
    heads: bool
    ff_baseline: FeedForwardBaseline
    truncate: bool
    dtype: torch.dtype | None
    max_memory: int | None
    tell: Tell | None
