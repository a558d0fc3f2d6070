"""From the pull-back of an answer to labelled arrays: the written schema of an `Answer`.

One dataset. Along `token` are all tokens that the model read, with their characters in the text; along `output` those that
it put out; along `segment` documents, question, turns and answer. The documentation's schema page says the same in prose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from normscope.explain.answering import AnswerEngine
from normscope.explain.spans import PulledSpans
from normscope.results import schema

KIND = "answer"
ATTRIBUTION, VALUE, BIAS, ERROR = "share", "span_value", "span_bias", "span_error"
TABLE, TABLE_VALUE, TABLE_BIAS, TABLE_ERROR = "table", "table_value", "table_bias", "table_error"
ROUTED, TABLE_ROUTED = "span_routed", "table_routed"
TABLES = (TABLE, TABLE_VALUE, TABLE_BIAS, TABLE_ROUTED, TABLE_ERROR)
"""The table, and what is known of each of its rows."""

SELECTED = "output_selected"

VARIABLES: schema.Variables = {
    **{name: name for name in ("token", "output", "segment")},
    **{f"token_{name}": "token" for name in ("token", "start", "end", "special", "sink", "output")},
    **{f"output_{name}": "output" for name in ("token", "start", "end", "probability", "selected")},
    **{f"segment_{name}": "segment" for name in ("name", "group", "start", "end")},
    ATTRIBUTION: "token",
    VALUE: "",
    BIAS: "",
    ROUTED: "",
    ERROR: "",
    TABLE: "output token",
    TABLE_VALUE: "output",
    TABLE_BIAS: "output",
    TABLE_ROUTED: "output",
    TABLE_ERROR: "output",
}
"""Everything that the dataset of an answer may have."""


def answer_dataset(engine: AnswerEngine, pulled: PulledSpans, attributes: schema.Attributes) -> xr.Dataset:
    """The dataset of an answer, without what is explained of it."""
    exchange, tokens = engine.exchange, engine.tokens
    names = _names(engine, exchange.ids)
    coordinates: dict[str, object] = {
        "token": np.arange(len(tokens)),
        "token_token": ("token", np.array(tokens.tokens, dtype=object)),
        "token_special": ("token", np.array(tokens.special, dtype=bool)),
        "token_sink": ("token", pulled.sinks.numpy()),
        "token_output": ("token", np.array(engine.token_outputs, dtype=np.int64)),
        **_offsets("token", engine.token_offsets),
        "output": np.arange(len(names)),
        "output_token": ("output", np.array(names, dtype=object)),
        "output_probability": ("output", _numpy(pulled.probabilities)),
        **_offsets("output", exchange.output_offsets),
        "segment": np.arange(len(exchange.segments)),
        "segment_name": ("segment", np.array([each.name for each in exchange.segments], dtype=object)),
        "segment_group": ("segment", np.array([each.kind for each in exchange.segments], dtype=object)),
        **_offsets("segment", [(each.start, each.end) for each in exchange.segments]),
    }
    about = {"schema_version": schema.VERSION, "kind": KIND, "text": exchange.text, **attributes}
    return xr.Dataset(coords=coordinates, attrs=about)


def with_span(dataset: xr.Dataset, pulled: PulledSpans, selected: Sequence[int], **attributes: object) -> xr.Dataset:
    """The dataset with the explanation of some of the answer's tokens."""
    flags = np.zeros(dataset.sizes["output"], dtype=bool)
    flags[list(selected)] = True
    variables = {
        ATTRIBUTION: ("token", _numpy(pulled.shares[0]), {"quantity": "logit"}),
        VALUE: ((), float(pulled.values[0])),
        BIAS: ((), float(pulled.bias[0])),
        ROUTED: ((), float(pulled.routed[0])),
        ERROR: ((), float(pulled.errors[0])),
    }
    return dataset.assign(variables).assign_coords({SELECTED: ("output", flags)}).assign_attrs(attributes)


def table_rows(dataset: xr.Dataset, pulled: PulledSpans, first: int, objective: str) -> xr.Dataset:
    """Tokens of the answer by themselves, from token `first` on; missing where a token is not read yet."""
    table = _numpy(pulled.shares)
    outputs = dataset["token_output"].values
    table[outputs[None] >= np.arange(first, first + len(table))[:, None]] = np.nan
    return xr.Dataset(
        {
            TABLE: (("output", "token"), table, {"quantity": "logit", "objective": objective}),
            TABLE_VALUE: ("output", _numpy(pulled.values)),
            TABLE_BIAS: ("output", _numpy(pulled.bias)),
            TABLE_ROUTED: ("output", _numpy(pulled.routed)),
            TABLE_ERROR: ("output", _numpy(pulled.errors)),
        }
    )


def _names(engine: AnswerEngine, ids: Sequence[int]) -> list[str]:
    tokenizer = engine.model.tokenizer
    assert tokenizer is not None
    return [str(name) for name in tokenizer.convert_ids_to_tokens(list(ids))]


def _offsets(dimension: str, spans: Sequence[tuple[int, int]]) -> dict[str, object]:
    ends = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return {f"{dimension}_start": (dimension, ends[:, 0]), f"{dimension}_end": (dimension, ends[:, 1])}


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)).cpu().numpy()
