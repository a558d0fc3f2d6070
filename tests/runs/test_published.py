"""Published values stand next to measured ones where model, corpus and masking are the papers', and nowhere else."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.made import random_analysis, rows

from normscope.corpora import bundled
from normscope.experiments import ModelFacts, Observation, Partial, RunFacts, published
from normscope.experiments.expansion import ExpansionRate, published_rates
from normscope.experiments.groups import published_significant
from normscope.experiments.mixing import published_ratio
from normscope.experiments.outlier_dimensions import OutlierDimensions
from normscope.experiments.partial import Moments
from normscope.experiments.published import Paper, paper_of, paper_of_model
from normscope.experiments.scope_similarity import ScopeSimilarity
from normscope.methods.vectors import FeedForwardDimensions, MapWithoutDimensions
from normscope.models.source import short_name
from normscope.report import write_report
from normscope.runs import run

BASE = ModelFacts("bert-base-uncased", tuple(range(1, 13)), (), "bert", width=768, vocabulary=30522)
FACTS = RunFacts(BASE, "wikipedia", sequences=992, masked=frozenset({"mixing-ratio"}), format="clark", longest=128)
CACHE = "/home/me/.cache/huggingface/hub/models--google--multiberts-seed_3/snapshots/0123abcd"


def _model(name: str, layers: int, width: int, kind: str = "bert", vocabulary: int = 30522) -> ModelFacts:
    return ModelFacts(name, tuple(range(1, 1 + layers)), (), kind, width=width, vocabulary=vocabulary)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (BASE, "bert-base"),
        (_model("google-bert/bert-large-uncased", 24, 1024), "bert-large"),
        (_model("prajjwal1/bert-tiny", 2, 128), "bert-tiny"),
        (_model("prajjwal1/bert-medium", 8, 512), "bert-medium"),
        (_model("google/bert_uncased_L-4_H-512_A-8", 4, 512), "bert-small"),
        (_model(CACHE, 12, 768), "multiberts"),
        (_model(CACHE.replace("google--multiberts-seed_3", "bert-base-uncased") + "/", 12, 768), "bert-base"),
        (_model("FacebookAI/roberta-base", 12, 768, "roberta", 50265), "roberta-base"),
    ],
)
def test_a_model_is_recognised_by_name_and_shape(model: ModelFacts, known: str) -> None:
    assert paper_of_model(model) == Paper(known)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (_model("bert-base-uncased", 6, 384), "6 layers, width 384 and 30522 tokens; bert-base is"),
        (_model("bert-base-uncased", 12, 768, vocabulary=28996), "28996 tokens"),
        (_model("bert-base-uncased", 12, 768, "roberta"), "a roberta of 12 layers"),
        (_model("google/multiberts-seed_3-step_20k", 12, 768), "is not the name"),
        (_model("all-MiniLM-L6-v2", 6, 384), "is not the name"),
        (replace(BASE, width=0), "not known here"),
    ],
)
def test_another_model_is_not_and_the_note_says_why(model: ModelFacts, why: str) -> None:
    paper = paper_of_model(model)
    assert paper.model == "" and why in paper.notes[0]
    assert published_rates(paper) == (None, None, None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"corpus": ""}, "--corpus-name"),
        ({"corpus": "wikitext"}, "wikipedia, sst2, mnli, conll"),
        ({"sequences": 32}, "32 sequences were analysed, and 992 in the paper"),
        ({"sequences": 991}, "991 sequences were analysed, and 992 in the paper"),
        ({"longest": 256}, "longest sequence has 256 tokens, and at most 128"),
        ({"too_long": 3}, r"cut or left out at 128 tokens \(3 of them\).*--max-tokens"),
        ({"format": "text"}, r"lists of tokens in two segments \(--format clark\), and this corpus is text"),
        ({"masked": frozenset()}, "no tokens were masked"),
        ({"conventions": "ff_baseline='bias'"}, "the run has ff_baseline='bias', and the paper has not"),
    ],
)
def test_another_corpus_or_masking_is_not_compared(change: dict[str, Any], why: str) -> None:
    assert paper_of(FACTS, "mixing-ratio", masked=True) == Paper("bert-base", "wikipedia")
    paper = paper_of(replace(FACTS, **change), "mixing-ratio", masked=True)
    assert published_ratio(paper, "Attn") is None and re.search(why, paper.notes[0])


def test_the_sequences_of_roberta_may_be_longer_than_those_of_bert_and_not_cut() -> None:
    """The authors tokenize the text anew for RoBERTa, and do not cut it."""
    roberta = _model("roberta-base", 12, 768, "roberta", 50265)
    facts = replace(FACTS, model=roberta, longest=171)
    assert published_ratio(paper_of(facts, "mixing-ratio", masked=True), "Attn") == pytest.approx(0.844)
    assert "cut" in paper_of(replace(facts, too_long=1, longest=128), "mixing-ratio", masked=True).why_not


def test_the_sentences_of_a_corpus_are_counted_and_may_not_be_cut() -> None:
    sentences = replace(FACTS, corpus="sst2", sequences=872, format="parquet", longest=66)
    assert paper_of(sentences, "mixing-ratio", masked=True) == Paper("bert-base", "sst2")
    assert paper_of(replace(sentences, too_long=1), "mixing-ratio", masked=True).model == ""


@pytest.mark.parametrize("form", ["affine", "linear", "authors"])
def test_published_expansion_rates_are_those_of_the_authors_form(form: str) -> None:
    experiment = ExpansionRate(form)
    rates = Partial(moments={"rate": Moments.once(np.linspace(0.6, 1.1, 12))})
    outcome = experiment.finish(rates, RunFacts(BASE))
    mean = outcome.tables["expansion-rate"].to_pylist()[-1]
    expected = (0.88, 0.63, 1.05) if form == "authors" else (None, None, None)
    assert tuple(mean[f"published{which}"] for which in ("", "_minimum", "_maximum")) == expected
    assert ("form=authors" in " ".join(outcome.notes)) == (form != "authors")


def test_a_run_tells_how_long_its_sequences_are_and_how_many_were_cut(
    analyzer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the name and the shape of the model are pretended: what a run says of its corpus is its own."""
    folder = tmp_path / "bert-base-uncased"
    analyzer.model.save_pretrained(folder)
    analyzer.tokenizer.save_pretrained(folder)
    monkeypatch.setitem(published.SHAPES, "bert-base", ("bert", 6, 384, 30522))
    monkeypatch.setitem(published.SEQUENCES, "sst2", 2)
    texts = ["A soap bubble burst in the opera.", "Nobody laughed."]

    def note(**options: Any) -> tuple[str, list[float | None]]:
        result = run(["mixing-ratio"], model=folder, corpus=texts, corpus_name="sst2", **options)
        notes = result.manifest["experiments"]["mixing-ratio"]["notes"]
        return " ".join(notes), [row["published"] for row in result.tables["mixing-ratio"].to_pylist()]

    assert note()[1] == pytest.approx([0.925, 0.803, 0.463, 0.225, 0.185])
    assert note(max_tokens=6) == (
        "No published values: sequences were cut or left out at 6 tokens (1 of them), and none in the paper (--max-tokens).",
        [None] * 5,
    )
    assert "no tokens were masked" in note(masking="none")[0]
    assert "value_bias='bias' and ff_baseline='bias'" in note(value_bias="bias", ff_baseline="bias")[0]


def test_the_values_are_those_of_the_papers_tables() -> None:
    base = Paper("bert-base", "wikipedia")
    assert [published_ratio(base, scope) for scope in ("AttnW", "Attn", "AttnResW", "AttnRes", "AttnResLn")] == [
        pytest.approx(value) for value in (0.971, 0.852, 0.486, 0.223, 0.188)
    ]
    assert (published_ratio(base, "AttnRes", "maximum"), published_ratio(base, "AttnResLn", "minimum")) == (
        pytest.approx(0.657),
        pytest.approx(0.013),
    )
    assert [base.value("mixing-ratio", "depth", scope) for scope in ("AttnResLn", "AttnRes")] == [-0.67, None]
    assert [published_ratio(base, "AttnResLn", layer=layer) for layer in (1, 12, 13)] == [0.24, 0.11, None]
    assert base.value("mixing-frequency", "spearman without special tokens", "AttnRes") == -0.86
    assert Paper("bert-mini", "wikipedia").value("mixing-frequency", "spearman", "AttnResLn") == 0.42
    assert Paper("bert-base", "conll").value("mixing-frequency", "spearman without special tokens", "AttnW") == 0.09
    many = Paper("multiberts", "wikipedia")
    assert (published_ratio(many, "Attn", "deviation"), published_rates(many)) == (0.004, (0.88, 0.65, 1.43))
    assert many.value("mixing-frequency", "deviation without special tokens", "Attn") == 0.09
    words = [layer for layer in range(1, 13) if published_significant(base, "word-split", layer)]
    entities = [
        layer for layer in range(1, 13) if published_significant(Paper("bert-base", "conll"), "entities", layer)
    ]
    assert (words, entities) == ([3, 4, 5, 6, 7, 9, 10, 11], [*range(3, 12)])
    assert published_significant(many, "word-split", 3) is None


def test_short_names_are_found_in_paths() -> None:
    assert short_name("C:\\models\\bert-base-uncased\\") == "bert-base-uncased"
    assert short_name(CACHE) == "multiberts-seed_3"


def test_similarities_of_the_paper_stand_beside_pearsons_r_of_plain_maps_alone() -> None:
    item = Observation(random_analysis(0, ["a", "b", "c"], layers=12))
    model = replace(BASE, scopes=ModelFacts.of_analysis(item.analysis).scopes)
    facts = replace(FACTS, model=model, masked=frozenset({"scope-similarity"}))
    experiment = ScopeSimilarity(("pearson", "spearman"), ("none", "row", "column"))
    outcome = experiment.finish(experiment.observe(item, model), facts)
    found = {
        (row["correlation"], row["normalisation"]): row["published"]
        for row in rows(outcome, "scope-similarity", first="Attn", second="AttnRes")
    }
    assert found.pop(("pearson", "none")) == 0.41
    assert list(found.values()) == [None] * 5
    plain = {"correlation": "pearson", "normalisation": "none"}
    (layer,) = rows(outcome, "scope-similarity-layers", **plain, second="AttnResLnFf", layer=10, first="AttnResLn")
    assert layer["published"] == 0.40
    (whole,) = rows(outcome, "scope-similarity", **plain, first="AttnRes", second="AttnResLnFfResLn")
    assert whole["published"] == 0.99


def test_removals_of_the_paper_stand_beside_pearsons_r_of_plain_maps_alone() -> None:
    analysis = random_analysis(0, ["a", "b", "c"], layers=12)
    dimensions = np.random.default_rng(0).random((12, 3, 200))
    changed = {MapWithoutDimensions(0.01): analysis.map("AttnResLn").values, FeedForwardDimensions(): dimensions}
    item = Observation(analysis, results=changed)
    model = replace(BASE, scopes=ModelFacts.of_analysis(analysis).scopes)
    facts = replace(FACTS, model=model, masked=frozenset({"outlier-dimensions"}))
    experiment = OutlierDimensions(correlations=("pearson", "spearman"))
    outcome = experiment.finish(experiment.observe(item, model), facts)
    found = {
        (row["correlation"], row["layer"]): (row["published_before"], row["published_after"])
        for row in outcome.tables["outlier-dimensions"].to_pylist()
        if row["published_before"] is not None
    }
    assert found == {("pearson", 10): (0.40, 0.88), ("pearson", 11): (0.50, 0.94)}


def test_a_namesake_of_another_shape_gets_no_values_and_manifest_and_report_say_so(
    analyzer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "bert-base-uncased"
    analyzer.model.save_pretrained(folder)
    analyzer.tokenizer.save_pretrained(folder)
    out = tmp_path / "run"
    options: dict[str, Any] = {"unit": "packed", "max_tokens": 16, "limit": 2, "corpus_name": "wikipedia"}
    result = run(["mixing-ratio"], model=folder, corpus=str(bundled()), out=out, **options)
    assert {row["published"] for row in result.tables["mixing-ratio"].to_pylist()} == {None}
    (note,) = json.loads((out / "manifest.json").read_text())["experiments"]["mixing-ratio"]["notes"]
    assert "width 384" in note and "width 384" in write_report([out]).read_text()
