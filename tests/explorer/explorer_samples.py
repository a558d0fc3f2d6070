"""Analyses without a model, of any shape: what the explorer must show, however it came about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from normscope import Analysis
from normscope.results.explanation import Explanation

POST_NORM = ["AttnW", "Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes", "AttnResLnFfResLn"]
CROSS = [
    "AttnW",
    "Attn",
    "AttnRes",
    "AttnResLn",
    "CrossW",
    "AttnResLnCross",
    "AttnResLnCrossRes",
    "AttnResLnCrossResLn",
]
HOSTILE = [
    "[CLS]",
    "<script>window.hacked = 1</script>",
    "</script><img src=x onerror='window.hacked=1'>",
    "<!--",
    "שלום",
    "مرحبا",
    "👩‍👩‍👧‍👦",
    "x" * 200,
    "a\u202eb",
    "\n",
    "&amp;\"',",
    "=1+1",
    "[SEP]",
]


def sample(
    tokens: Sequence[str],
    *,
    layers: int = 3,
    scopes: Sequence[str] = POST_NORM,
    causal: bool = False,
    heads: int = 0,
    source: Sequence[str] = (),
    grid: tuple[int, int] | None = None,
    queries: Sequence[int] | None = None,
    text: str | None = None,
    encoder: Analysis | None = None,
    model: str = "sample",
) -> Analysis:
    """An analysis with random maps. `source` tokens are keys from the first scope with Cross in its name on."""
    random = np.random.default_rng(0)
    own, keys = len(tokens), [*tokens, *source]
    maps = random.gamma(0.6, 1.0, (len(scopes), layers, own, len(keys))).astype(np.float32)
    if causal:
        maps[..., :own][..., np.triu(np.ones((own, own), dtype=bool), 1)] = np.nan
    for index, scope in enumerate(scopes):
        if source and "Cross" not in scope:
            maps[index, ..., own:] = np.nan
        elif scope == "CrossW" or scope.endswith("Cross"):
            maps[index, ..., :own] = np.nan
    positions = np.arange(own) if queries is None else np.asarray(queries)
    special = np.array([token in ("[CLS]", "[SEP]") for token in keys])
    words = np.where(special, -1, np.arange(len(keys)))
    names = np.array(keys, dtype=object)
    groups = ["target"] * own + ["source"] * len(source) if source else ["self"] * own
    coordinates = {
        "layer": np.arange(1, layers + 1),
        "scope": list(scopes),
        "key": np.concatenate([np.arange(own), np.arange(len(source))]),
        "key_token": ("key", names),
        "key_special": ("key", special),
        "key_word": ("key", words),
        "key_word_text": ("key", names),
        "key_group": ("key", np.array(groups, dtype=object)),
        "query": positions,
        "query_token": ("query", names[positions]),
        "query_special": ("query", special[positions]),
        "query_word": ("query", words[positions]),
        "query_word_text": ("query", names[positions]),
    }
    ratios = random.uniform(size=(len(scopes), layers, len(positions))).astype(np.float32)
    variables = {
        "map": (("scope", "layer", "query", "key"), maps[:, :, positions]),
        "mixing_ratio": (("scope", "layer", "query"), ratios),
        "completeness": ("layer", np.full(layers, 3e-7, dtype=np.float32)),
    }
    if heads:
        coordinates |= {"head_scope": list(scopes[:2]), "head": np.arange(1, heads + 1)}
        shape = (2, layers, heads, len(positions), len(keys))
        variables["head_map"] = (
            ("head_scope", "layer", "head", "query", "key"),
            random.gamma(0.6, 1.0, shape).astype("f4"),
        )
    if grid is not None:
        rows, columns = grid
        before = np.full(own - rows * columns, -1)
        coordinates["key_row"] = ("key", np.concatenate([before, np.repeat(np.arange(rows), columns)]))
        coordinates["key_column"] = ("key", np.concatenate([before, np.tile(np.arange(columns), rows)]))
        variables["image"] = (("y", "x", "channel"), random.integers(0, 255, (32, 32, 3)).astype(np.uint8))
    facts = {"schema_version": 1, "model": model, "family": "none", "text": " ".join(tokens) if text is None else text}
    return Analysis(xr.Dataset(variables, coordinates, facts), encoder)


def sample_explanation(tokens: int, layers: int = 12, heads: int = 12) -> Explanation:
    """An explanation of random numbers, for its size."""
    random = np.random.default_rng(0)
    names = np.array([f"w{index}" for index in range(tokens)], dtype=object)
    coordinates = {
        "target": [0],
        "target_name": ("target", np.array(["x"], dtype=object)),
        "target_position": ("target", [tokens - 1]),
    }
    for axis in ("query", "key"):
        coordinates |= {
            axis: np.arange(tokens),
            f"{axis}_token": (axis, names),
            f"{axis}_special": (axis, np.zeros(tokens, dtype=bool)),
            f"{axis}_word": (axis, np.arange(tokens)),
            f"{axis}_word_text": (axis, names),
        }

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=(1, *shape)).astype(np.float32)

    variables = {
        "relevance": (("target", "depth", "query"), normal(layers + 1, tokens)),
        "edges": (("target", "layer", "query", "key"), normal(layers, tokens, tokens) ** 5),
        "heads": (("target", "layer", "head", "key"), normal(layers, heads, tokens)),
        "feed_forward": (("target", "layer", "query"), normal(layers, tokens)),
        "bias": (("target", "layer", "query"), normal(layers, tokens)),
        "value": ("target", [1.0]),
        "end_bias": ("target", [0.0]),
        "conservation_error": (("target", "depth"), np.zeros((1, layers + 1), dtype=np.float32)),
    }
    return Explanation(xr.Dataset(variables, coordinates, {"method": "pull-back", "model": "sample", "text": "a text"}))
