"""The maps of one sequence by a method: a request, one pass, and the analysis of what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from normscope.inputs import TokenSequence
from normscope.methods import resolve
from normscope.methods.across import AcrossLayers
from normscope.methods.layer import LayerMethod
from normscope.models.model import Model
from normscope.passes import Pass, Tell
from normscope.request import MapSelection
from normscope.results.analysis import Analysis
from normscope.results.from_pass import analysis_of


def maps_by(
    model: Model,
    sequence: TokenSequence,
    method: LayerMethod,
    scopes: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    tell: Tell | None = None,
) -> Analysis:
    """The maps of all layers by a method, for a sequence that is ready for the model."""
    selection = MapSelection(scopes=scopes, dtype=dtype)
    request = resolve.map_request(model, method, resolve.wanted_of(selection), selection)
    if method.across_layers:
        return AcrossLayers(model, method, request).analyses([sequence], model.layers, None, tell)[0]
    (measured,) = Pass(model, request).over([sequence], progress=False, tell=tell)
    return analysis_of(model, measured, method=method.facts)
