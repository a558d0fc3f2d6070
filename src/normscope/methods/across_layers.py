"""Maps by a method in one call; methods that follow the states through several layers take one input after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from normscope.chain.measure import Request, query_positions
from normscope.inputs import TokenSequence
from normscope.methods import resolve
from normscope.methods.layer import LayerMethod
from normscope.models.model import Model
from normscope.options import PAPERS, Conventions
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


class AcrossLayers:
    """A request to a method across layers, applied to a model."""

    def __init__(self, model: Model, method: LayerMethod, request: Request, conventions: Conventions = PAPERS) -> None:
        self.model, self.method, self.conventions = model, method, conventions
        self.run = Pass(model, replace(request, queries=None))

    def analyses(
        self,
        sequences: Sequence[TokenSequence],
        layers: Sequence[int],
        queries: int | Sequence[int] | None,
        tell: Tell | None,
    ) -> list[Analysis]:
        """One at a time, as each keeps what it needs of all its layers; the maps of some layers and queries."""
        positions = [query_positions(queries, len(sequence.target or sequence)) for sequence in sequences]
        analyses: list[Analysis] = []
        for index, sequence in enumerate(sequences):
            (measured,) = self.run.over([sequence], tell=_counting_on(tell, index, len(sequences)))
            whole = analysis_of(self.model, measured, self.conventions, self.method.facts)
            analyses.append(_selected(whole, layers, positions[index]))
        return analyses


def _selected(whole: Analysis, layers: Sequence[int], positions: list[int]) -> Analysis:
    dataset = whole.dataset.sel(layer=list(layers)).isel(query=positions)
    if not whole.has_encoder:
        return Analysis(dataset)
    encoder = whole.encoder.dataset
    asked = [layer for layer in whole.encoder.layers if layer in layers or layer > max(layers)]
    return Analysis(dataset, Analysis(encoder.sel(layer=asked)))


def _counting_on(tell: Tell | None, before: int, sequences: int) -> Tell | None:
    if tell is None:
        return None
    return lambda done, total: tell(done + before * total, total * sequences)
