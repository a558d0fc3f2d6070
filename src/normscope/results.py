"""From what a pass measured of a sequence to the datasets of its analysis, which say where they came from."""

from __future__ import annotations

from collections.abc import Mapping

import xarray as xr

from normscope import schema
from normscope.analysis import Analysis
from normscope.passes import Measured, Results

Facts = Mapping[str, str | int | float]


def analysis(measured: Measured, facts: Facts) -> Analysis:
    """The analysis of a sequence, with that of the encoder where it was measured."""
    main = main_dataset(measured, facts)
    if measured.encoder is None:
        return Analysis(main)
    return Analysis(main, Analysis(_encoder_dataset(measured, measured.encoder, facts)))


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
    attributes = {**facts, **texts}
    return schema.build(results.variables(), results.layers, queries, measured.positions, keys, attributes)


def _encoder_dataset(measured: Measured, results: Results, facts: Facts) -> xr.Dataset:
    sequence = measured.sequence
    attributes, positions = {**facts, "text": sequence.text}, range(len(sequence))
    return schema.build(results.variables(), results.layers, sequence, positions, {"self": sequence}, attributes)
