"""What is requested of a run reaches every sequence, or is refused before the work begins; the manifest records it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from support import rule_model
from support.tiny_models import shaken
from transformers import BartConfig, BartForConditionalGeneration, LlamaForCausalLM

import normscope as ns
from normscope.corpora import Corpus, CorpusError
from normscope.errors import InputError
from normscope.experiments import Observation, Partial
from normscope.experiments.base import ModelFacts
from normscope.experiments.dispersion import Dispersion
from normscope.models.options import ModelOptions
from normscope.report import write_report
from normscope.runs import AnotherRunError, run, settings_of
from normscope.runs.settings import differences

pytestmark = pytest.mark.usefixtures("empty_pictures")

TEXT = "The Opera singer caught a soap bubble."


@dataclass(frozen=True)
class Seen(Dispersion):
    """An experiment without the option `masked` that keeps the tokens that it is shown."""

    tokens: ClassVar[list[list[str]]] = []

    def observe(self, observation: Observation, model: ModelFacts) -> Partial:
        self.tokens.append(observation.tokens)
        return super().observe(observation, model)


@pytest.fixture
def seen() -> list[list[str]]:
    Seen.tokens.clear()
    return Seen.tokens


# ---- masking -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("masking", "expected"), [("paper", False), ("all", True), ("none", False)])
def test_masking_holds_for_experiments_without_such_an_option(
    analyzer: Any, seen: list[list[str]], masking: Any, expected: bool
) -> None:
    result = run([Seen()], model=analyzer, corpus=[TEXT], masking=masking)
    assert ("[MASK]" in seen[0]) == expected
    assert result.manifest["masked"] == result.manifest["experiments"]["dispersion"]["masked"] == expected


def test_the_manifest_says_of_each_experiment_what_was_masked(analyzer: Any) -> None:
    names = ["mixing-ratio", "dispersion", "expansion-rate"]

    def masking(**options: Any) -> dict[str, tuple[bool, str]]:
        experiments = run(names, model=analyzer, corpus=[TEXT], **options).manifest["experiments"]
        return {name: (facts["masked"], facts["masking"]) for name, facts in experiments.items()}

    nothing = (False, "it reads no sequences")
    assert masking() == {
        "mixing-ratio": (True, "as in the paper"),
        "dispersion": (False, "the experiment masks no tokens"),
        "expansion-rate": nothing,
    }
    everything = (True, "requested for all experiments")
    assert masking(masking="all") == {
        "mixing-ratio": everything,
        "dispersion": everything,
        "expansion-rate": nothing,
    }
    assert masking(masking="none")["mixing-ratio"] == (False, "masking was switched off")


def test_without_a_mask_token_nothing_is_masked_and_manifest_and_report_say_why(analyzer: Any, tmp_path: Path) -> None:
    tokenizer = type(analyzer.tokenizer).from_pretrained(analyzer.tokenizer.name_or_path)
    tokenizer.mask_token = None
    maskless = ns.load(analyzer.model, tokenizer)
    manifest = run(["mixing-ratio"], model=maskless, corpus=[TEXT], out=tmp_path / "run").manifest
    assert manifest["masked"] is False
    assert manifest["experiments"]["mixing-ratio"]["masked"] is False
    assert "has no mask token" in manifest["experiments"]["mixing-ratio"]["masking"]
    assert any("No tokens were masked" in note for note in manifest["experiments"]["mixing-ratio"]["notes"])
    page = write_report([tmp_path / "run"]).read_text()
    assert "nothing can be masked for mixing-ratio" in page and "No tokens were masked" in page
    with pytest.raises(InputError, match="has no mask token"):
        run(["mixing-ratio"], model=maskless, corpus=[TEXT], masking="all")


def test_a_causal_model_with_a_mask_token_is_masked_by_name_alone() -> None:
    words = rule_model.tokenizer()
    words.add_special_tokens({"mask_token": "[MASK]"})
    sizes = rule_model.sizes(layers=2, heads=1, hidden=8, neurons=4)
    sizes.vocab_size = len(words)
    model = ns.load(shaken(LlamaForCausalLM(sizes), 0.4), words)

    def facts(**options: Any) -> dict[str, Any]:
        return run(["mixing-ratio"], model=model, corpus=["one two key three"], **options).manifest["experiments"][
            "mixing-ratio"
        ]

    plain = facts()
    assert plain["masked"] is False and "is causal and not trained on masked tokens" in plain["masking"]
    assert any("No tokens were masked" in note and "--masking all" in note for note in plain["notes"])
    assert facts(masking="all")["masked"] is True


# ---- value bias and arithmetic -------------------------------------------------------------------------------------------


def test_value_bias_and_arithmetic_reach_a_run(analyzer: Any, tmp_path: Path) -> None:
    def mean(scope: str, **options: Any) -> float:
        rows = run(["mixing-ratio"], model=analyzer, corpus=[TEXT], masking="none", **options).tables["mixing-ratio"]
        return next(row["mean"] for row in rows.to_pylist() if row["scope"] == scope)

    for options in ({"value_bias": "bias"}, {"dtype": torch.float64}, {"value_bias": "token"}):
        expected = float(analyzer.mixing_ratios(TEXT, **options).sel(scope="AttnRes").astype("float64").mean())
        assert mean("AttnRes", **options) == pytest.approx(expected, rel=1e-12)
    assert mean("AttnRes", value_bias="bias") != pytest.approx(mean("AttnRes"), rel=1e-3)
    assert mean("AttnRes", dtype=torch.float64) != mean("AttnRes")


def test_the_baseline_of_feed_forwards_reaches_a_run_and_is_one_of_its_settings(analyzer: Any, tmp_path: Path) -> None:
    def similarities(**options: Any) -> list[float]:
        result = run(["scope-similarity"], model=analyzer, corpus=[TEXT], masking="none", **options)
        rows = result.tables["scope-similarity"].to_pylist()
        return [row["similarity"] for row in rows if row["second"] == "AttnResLnFf"]

    expected = [
        np.mean([np.corrcoef(one.ravel(), two.ravel())[0, 1] for one, two in zip(before, after, strict=True)])
        for analysis in [analyzer.analyze(TEXT, ff_baseline="bias")]
        for before, after in [
            (analysis.map(scope).values, analysis.map("AttnResLnFf").values) for scope in analysis.scopes[:4]
        ]
    ]
    assert similarities(ff_baseline="bias") == pytest.approx(expected, abs=1e-6)
    assert similarities() != pytest.approx(expected, abs=1e-3)
    options: dict[str, Any] = {"model": analyzer, "corpus": [TEXT], "out": tmp_path / "run"}
    run(["mixing-ratio"], **options)
    with pytest.raises(AnotherRunError, match="differs in ff_baseline"):
        run(["mixing-ratio"], ff_baseline="bias", **options)


def test_a_run_of_the_version_before_is_not_gone_on_with(analyzer: Any, tmp_path: Path) -> None:
    """It has partial results of ranks, which would be merged with correlations of values."""
    options: dict[str, Any] = {"model": analyzer, "corpus": [TEXT], "out": tmp_path / "run"}
    run(["scope-similarity"], **options)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    del record["experiments"]["scope-similarity"]["correlations"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    with pytest.raises(AnotherRunError, match=r"differs in experiments\.scope-similarity\.correlations"):
        run(["scope-similarity"], **options)


def test_value_bias_and_arithmetic_are_settings_of_a_run(analyzer: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": analyzer, "corpus": [TEXT], "out": tmp_path / "run"}
    run(["mixing-ratio"], dtype="float64", **options)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["dtype"] == "float64"
    with pytest.raises(AnotherRunError, match="differs in dtype, value_bias"):
        run(["mixing-ratio"], value_bias="bias", **options)
    with pytest.raises(InputError, match="float32 or float64"):
        run(["mixing-ratio"], dtype=torch.bfloat16, **options)


@pytest.mark.usefixtures("unchecked_types")
@pytest.mark.parametrize(
    "wrong", [{"masking": "some"}, {"value_bias": "both"}, {"ff_baseline": "both"}, {"shard_size": 0}]
)
def test_a_setting_that_does_not_exist_is_refused(analyzer: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        run(["mixing-ratio"], model=analyzer, corpus=[TEXT], **wrong)


# ---- options of the corpus -----------------------------------------------------------------------------------------------


def test_one_experiment_needs_no_list() -> None:
    for alone, listed in (("dispersion", ["dispersion"]), (Dispersion(), [Dispersion()])):
        assert settings_of(alone).experiments == settings_of(listed).experiments


def test_a_list_of_texts_has_the_options_of_a_corpus(analyzer: Any, seen: list[list[str]]) -> None:
    texts = [TEXT, "A much longer text, which is to be left out, for it has far too many tokens.", TEXT, TEXT]
    options: dict[str, Any] = {"limit": 2, "too_long": "skip", "max_tokens": 12}
    result = run([Seen()], model=analyzer, corpus=texts, **options)
    assert len(seen) == result.manifest["sequences"] == 2
    assert result.manifest["rows_left_out_or_changed"] == {"too long, left out": 1}
    cased = type(analyzer.tokenizer).from_pretrained(analyzer.tokenizer.name_or_path, do_lower_case=False)
    run([Seen()], model=ns.load(analyzer.model, cased), corpus=[TEXT], lowercase=True)
    assert "opera" in seen[-1]


def test_options_that_a_list_of_texts_does_not_have_are_refused(analyzer: Any) -> None:
    with pytest.raises(CorpusError, match="'field'"):
        run(["mixing-ratio"], model=analyzer, corpus=[TEXT], field="x")
    with pytest.raises(TypeError, match="Did you mean 'limit'"):
        run(["mixing-ratio"], model=analyzer, corpus=[TEXT], limits=2)  # pyright: ignore[reportCallIssue]


def test_a_corpus_is_cut_to_what_the_model_takes(analyzer: Any, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("soap " * 600)
    corpus = Corpus(str(tmp_path / "long.txt"), max_tokens=10_000)
    result = run(["dispersion"], model=analyzer, corpus=corpus)
    assert result.manifest["tokens"] == 512
    assert result.manifest["settings"]["corpus"]["max_tokens"] == 512


# ---- what experiments need -----------------------------------------------------------------------------------------------


def test_entities_on_texts_without_labels_are_refused_before_any_work(analyzer: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"entities needs entity labels, and text 1 has none.*--format conll"):
        run(["mixing-ratio", "entities"], model=analyzer, corpus=[TEXT], out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_alignment_without_gold_is_refused_before_any_work(analyzer: Any, tmp_path: Path) -> None:
    sizes = {
        f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    config = BartConfig(vocab_size=30522, d_model=8, max_position_embeddings=32, decoder_start_token_id=102, **sizes)
    translator = ns.load(BartForConditionalGeneration(config).eval(), analyzer.tokenizer)
    (tmp_path / "a.pairs").write_text("das haus ||| the house\n")
    with pytest.raises(InputError, match=r"alignment needs sentence pairs with gold links, and .*a\.pairs:1 has none"):
        run(["alignment"], model=translator, corpus=tmp_path / "a.pairs", out=tmp_path / "run")
    with pytest.raises(InputError, match="its corpus is sentence pairs"):
        run(["mixing-ratio"], model=translator, corpus=[TEXT], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- loading options -----------------------------------------------------------------------------------------------------


def test_loading_options_reach_the_model_or_are_refused(analyzer: Any) -> None:
    result = run(["expansion-rate"], loading={"dtype": "float64"})
    assert result.manifest["model"]["dtype"] == "float64"
    result = run(["mixing-ratio"], model=analyzer.model, corpus=[TEXT], loading={"tokenizer": analyzer.tokenizer})
    assert result.manifest["sequences"] == 1
    with pytest.raises(InputError, match="no dtype 'int8'"):
        ModelOptions(dtype="int8")
    with pytest.raises(InputError, match="already has its loading options"):
        run(["expansion-rate"], model=analyzer, loading={"dtype": "float64"})


def test_a_setting_that_an_earlier_record_lacks_is_named_even_if_it_is_none() -> None:
    assert differences({"seed": 1}, {"seed": 1, "approximate": None}) == ["approximate"]
    assert differences({"corpus": {"unit": "packed"}}, {"corpus": {"unit": "lines"}}) == ["corpus.unit"]
