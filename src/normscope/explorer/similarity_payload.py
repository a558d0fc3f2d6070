"""From similarities to what the front end draws: both texts, the table between them, and how it adds up.

Owns the format of similarities (its other half is in `front-end/src/model`). Several passages of one query are one list, in
the order in which they were ranked. Of one similarity:

    {
      "facts":    {"model": ..., "pooling": ..., "measure": ..., ...},        every attribute of the result
      "value":    0.639,                    the model's own similarity
      "measure":  "cosine" | "dot" | "late-interaction",
      "unit":     "token" | "word",
      "error":    1.2e-7,                   relative error of completeness
      "first":    side, "second": side,
      "table":    block [first, second] or null (only the shares of tokens are known),
      "constant": 0.205 or null with the table,
      "matches":  {"token": [3, -1, ...], "value": [0.91, 0, ...]} or null    late interaction, for every first token
    }

A side is `{"text", "prompt", "tokens", "share", "margin", "bias"}`, of an image with its pixels as `image`. `tokens` has
one list for each column, as everywhere (`position`, `token`, `special`, `word`, `wordText`, `row`, `column`), and
`prompt`, which is 1 for tokens of the instruction before the text. `share[k]` is the row (or column) of the table plus
`margin[k]`; with `bias` the shares add up to `value`. `margin` is null without a table. Blocks are those of `packing.block`.
"""

from __future__ import annotations

from collections.abc import Sequence

from normscope.explorer import packing as pieces
from normscope.explorer.packing import Precision
from normscope.results.similarity import Similarity, check_one_model


def similarities_payload(similarities: Sequence[Similarity], precision: Precision = "full") -> dict[str, object]:
    """What the front end needs of one similarity, or of several of one model."""
    check_one_model(similarities)
    return {"similarities": [similarity_payload(each, precision) for each in similarities]}


def similarity_payload(similarity: Similarity, precision: Precision = "full") -> dict[str, object]:
    """What the front end needs of one similarity."""
    matches = similarity.matches
    return {
        "facts": pieces.facts(similarity.dataset),
        "value": similarity.value,
        "measure": similarity.measure,
        "unit": str(similarity.attrs["unit"]),
        "error": similarity.completeness,
        "first": _side(similarity, "first"),
        "second": _side(similarity, "second"),
        "table": pieces.block(similarity.table.values, precision) if similarity.has_table else None,
        "constant": similarity.constant if similarity.has_table else None,
        "matches": None
        if matches is None
        else {"token": matches["match"].values.tolist(), "value": matches.values.tolist()},
    }


def _side(similarity: Similarity, side: str) -> dict[str, object]:
    """One of the two texts."""
    dataset = similarity.dataset
    image = similarity.image(side)
    return {
        **({} if image is None else {"image": pieces.image(image)}),
        "text": str(dataset.attrs[f"{side}_text"]),
        "prompt": str(dataset.attrs[f"{side}_prompt"]),
        "tokens": pieces.tokens(dataset, side),
        "share": getattr(similarity, side).values.tolist(),
        "margin": dataset[f"{side}_margin"].values.tolist() if similarity.has_table else None,
        "bias": getattr(similarity, f"{side}_bias"),
    }
