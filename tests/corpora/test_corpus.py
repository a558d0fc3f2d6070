"""A corpus as a value: its options are the same in Python, as keyword arguments and on the command line."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from normscope.analyzer import load
from normscope.corpora import Corpus, CorpusError, CorpusOptions, Problems, Record, bundled
from normscope.corpora.tokenize import Encoder
from normscope.models.options import LoadingOptions, ModelOptions
from normscope.options import documented_fields
from normscope.runs.spool import from_json, to_json


@pytest.mark.parametrize(
    ("kind", "keywords", "without"),
    [(Corpus, CorpusOptions, {"path", "seed", "texts", "labels"}), (ModelOptions, LoadingOptions, {"model"})],
)
def test_keyword_arguments_are_the_fields_with_their_types(kind: type, keywords: type, without: set[str]) -> None:
    types = get_type_hints(kind)
    assert get_type_hints(keywords) == {
        field.name: types[field.name] for field in fields(kind) if field.name not in without
    }


def test_the_options_of_a_model_are_those_of_load() -> None:
    assert set(inspect.signature(load).parameters) == {field.name for field in fields(ModelOptions)}


@pytest.mark.parametrize("kind", [Corpus, ModelOptions])
def test_the_documentation_of_every_option_is_in_the_docstring(kind: type) -> None:
    for field in documented_fields(kind):
        assert f"{field.name}: {field.documentation.text}" in (kind.__doc__ or "")


@pytest.mark.usefixtures("unchecked_types")
def test_texts_that_are_none_are_refused() -> None:
    wrong: Any = ["a text", 3]
    with pytest.raises(CorpusError, match="Text 2 of the list is not a text, but 3"):
        Corpus(path="", texts=tuple(wrong))
    with pytest.raises(CorpusError, match="unit line or packed"):
        Corpus.of_texts(["a"], {"unit": "paragraph"})


def test_only_plain_text_is_packed(analyzer: Any) -> None:
    encoder = Encoder(analyzer.tokenizer, Problems(), max_tokens=8)
    for record in (Record("f:1", text=("a", "b")), Record("f:1", words=("a",), entities=(-1,))):
        with pytest.raises(CorpusError, match="f:1: only plain texts can be packed"):
            list(encoder.packed([record]))


def test_items_are_the_same_after_their_time_on_disk(analyzer: Any, tmp_path: Any) -> None:
    (tmp_path / "a.conll").write_text("Kuala B-LOC\nLumpur I-LOC\ntalks O\n")
    (tmp_path / "a.pairs").write_text("das haus ||| the house\n")
    (tmp_path / "gold").write_text("1-1 2p2\n")
    corpora = [
        Corpus(str(bundled()), limit=2),
        Corpus(str(tmp_path / "a.conll")),
        Corpus(str(tmp_path / "a.pairs"), gold=str(tmp_path / "gold")),
        Corpus.of_texts(["naïve \0 ☕"]),
    ]
    for corpus in corpora:
        for item in corpus.items(analyzer.tokenizer, Problems()):
            stored = from_json(json.loads(json.dumps(to_json(item))))
            for field in fields(item):
                mine, theirs = getattr(item, field.name), getattr(stored, field.name)
                assert (mine == theirs).all() if hasattr(mine, "shape") else mine == theirs, field.name
