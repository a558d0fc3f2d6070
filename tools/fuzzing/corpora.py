"""Corpora of any bytes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from normscope.runs import run

from . import samples
from .attempts import Draw, Fooled, Outcome, World, attempt


def corpora(world: World, draw: Draw) -> Outcome:
    """Corpora of any bytes: read, or refused with their name; with `bad_rows="skip"` too."""
    folder = world.fresh()
    ending = draw(st.sampled_from(["txt", "jsonl", "csv", "tsv", "conll", "parquet", "json"]))
    path = folder / f"corpus.{ending}"
    line = st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=30)
    value = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=5,
    )
    row = st.dictionaries(st.sampled_from(["text", "sentence", "label"]), value).map(lambda v: json.dumps(v).encode())
    path.write_bytes(b"\n".join(draw(st.lists(line | row | st.just(samples.TEXT.encode()), max_size=8))))
    how = draw(st.sampled_from(["refuse", "skip"]))
    what = f"a corpus .{ending} with bad_rows={how!r}: {path.read_bytes()!r}"
    options: Any = {"corpus": str(path), "out": folder / "new-run", "bad_rows": how}
    outcome, found = attempt(what, lambda: run(["mixing-ratio"], model=world.analyzer("classifier"), **options))
    if outcome == "refused" and "Traceback" in str(found):
        raise Fooled(f"{what}: {found}")
    return outcome
