"""From what a pass measured of a sequence to the datasets of its analysis, which say where they came from."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from normscope.chain.measure import Variables
from normscope.decompose import Approximation
from normscope.models.model import Model
from normscope.options import PAPERS, Conventions, counted
from normscope.passes import Measured, Results
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.scopes import ENCODER_WHOLE, WHOLE_LAYER

Facts = Mapping[str, str | int | float]


def analysis(measured: Measured, facts: Facts) -> Analysis:
    """The analysis of a sequence, with that of the encoder where it was measured."""
    main = main_dataset(measured, facts)
    if measured.encoder is None:
        return Analysis(main)
    return Analysis(main, Analysis(_encoder_dataset(measured, measured.encoder, facts)))


def analysis_of(
    model: Model, measured: Measured, conventions: Conventions = PAPERS, method: Facts | None = None
) -> Analysis:
    """The analysis of a sequence that a model's pass measured, by a method with these facts (default: norms)."""
    return analysis(measured, {**model.facts, **model.whole_layers, **counted(conventions), **(method or {})})


def mixing_ratios(measured: Measured, facts: Facts) -> xr.DataArray:
    """`[scope, layer, query]`: the mixing ratios alone, with the completeness error of each layer."""
    dataset = main_dataset(measured, facts)
    ratios = dataset[schema.MIXING_RATIO].assign_attrs(dataset.attrs)
    return ratios.assign_coords({schema.COMPLETENESS: dataset[schema.COMPLETENESS]})


def main_dataset(measured: Measured, facts: Facts) -> xr.Dataset:
    """The dataset of the stack that is analysed: of an encoder-decoder, the decoder."""
    source, results = measured.sequence, measured.main
    queries, keys, texts = source, {"self": source}, {"text": source.text}
    if source.target is not None:
        queries, keys = source.target, {"target": source.target, "source": source}
        texts = {"text": source.target.text, "source_text": source.text}
    variables = results.variables()
    attributes = {**_own(facts), **texts, **_approximation(variables)}
    return schema.build(variables, results.layers, queries, measured.positions, keys, attributes)


def _own(facts: Facts, *, encoder: bool = False) -> dict[str, str | int | float]:
    """The facts about one of two stacks: each has whole layers of its own."""
    own = {name: value for name, value in facts.items() if name != ENCODER_WHOLE}
    return {**own, WHOLE_LAYER: facts[ENCODER_WHOLE]} if encoder and ENCODER_WHOLE in facts else own


def _approximation(variables: Variables) -> dict[str, str | float]:
    """What a result says of itself if its maps are approximate; nothing if they are exact."""
    if schema.APPROXIMATION_SPEARMAN not in variables:
        return {}

    def values(name: str) -> np.ndarray:
        variable = variables[name]
        assert isinstance(variable, tuple)
        return variable[1]

    numbers = (schema.APPROXIMATION_NEURONS, schema.APPROXIMATION_DIRECTIONS, schema.APPROXIMATION_PATTERNS)
    kinds = {
        Approximation(float(neurons), int(directions) or None, patterns=int(patterns) or None).name
        for neurons, directions, patterns in zip(*map(values, numbers), strict=True)
    }
    if schema.APPROXIMATION_PRODUCTS in variables:
        kinds = {Approximation(products=each.item()).name for each in values(schema.APPROXIMATION_PRODUCTS)}
    return {
        "approximate": ", ".join(sorted(kinds)),
        "approximate_spearman": float(values(schema.APPROXIMATION_SPEARMAN).min()),
        "approximate_error": float(values(schema.APPROXIMATION_ERROR).max()),
    }


def _encoder_dataset(measured: Measured, results: Results, facts: Facts) -> xr.Dataset:
    sequence = measured.sequence
    variables = results.variables()
    attributes, positions = (
        {**_own(facts, encoder=True), "text": sequence.text, **_approximation(variables)},
        range(len(sequence)),
    )
    return schema.build(variables, results.layers, sequence, positions, {"self": sequence}, attributes)
