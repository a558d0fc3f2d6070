"""`make coverage`: what it tries, counts and refuses. The whole of it runs for minutes, so that one type stands for all."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the tool by its name."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return import_module


def test_a_type_is_tried_with_its_bare_model_and_its_class_for_each_task(tools: Any) -> None:
    trials = tools("architectures.trial").try_type("gpt2")
    assert [(trial.class_name, trial.task, trial.outcome) for trial in trials] == [
        ("GPT2Model", "bare", "analysed"),
        ("GPT2LMHeadModel", "causal", "analysed"),
    ]
    assert all(0 < trial.error < 1e-5 for trial in trials)


def test_a_type_that_is_not_described_is_refused_with_its_reason(tools: Any) -> None:
    (bare, _) = tools("architectures.trial").try_type("rwkv")
    assert bare.outcome == "refused"
    assert "recurrence" in bare.reason


def test_counts_leave_out_what_cannot_be_built_and_images_without_attention(tools: Any) -> None:
    trial, page = tools("architectures.trial").Trial, tools("architectures.page")
    results = {
        "llama": [trial("LlamaForCausalLM", "causal", "analysed", 1e-7)],
        "mamba": [trial("MambaForCausalLM", "causal", "refused", reason="why")],
        "blt": [trial("BltForCausalLM", "causal", "not built", reason="why")],
        "vit": [trial("ViTForImageClassification", "image", "analysed", 1e-7)],
        "resnet": [trial("ResNetForImageClassification", "image", "refused", reason="why")],
    }
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in page.counts(results).splitlines()]
    assert rows[2] == ["causal", "3", "2", "1", "50 %", "90 %"]
    assert rows[5] == ["image", "1", "1", "1", "100 %", "80 %"]


def test_wrong_results_crashes_and_new_types_are_faults(tools: Any) -> None:
    trial, page = tools("architectures.trial").Trial, tools("architectures.page")
    results = {
        "llama": [trial("LlamaModel", "bare", "wrong", reason="off by 1"), trial("LlamaModel", "bare", "crashed")],
        "brand_new": [trial("BrandNewModel", "bare", "refused", reason="no family")],
    }
    assert len(page.faults(results)) == 2
    assert [fault.split(":")[0] for fault in page.unknown(results)] == ["brand_new"]
    assert page.unknown({"llama": [], "mamba": []}) == []


def test_a_type_that_describes_itself_is_marked(tools: Any) -> None:
    trial, page = tools("architectures.trial").Trial, tools("architectures.page")
    row = page._analysed("brand_new", [trial("BrandNewModel", "bare", "analysed", 1e-7)])
    assert row == "| `brand_new` |  | by itself | `BrandNewModel` | 1e-07 |  |"
    assert page.unknown({"brand_new": [trial("BrandNewModel", "bare", "analysed", 1e-7)]}) == []


def test_types_are_tried_again_after_a_run_of_all(tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    coverage, trial = tools("coverage"), tools("architectures.trial").Trial
    monkeypatch.setattr(coverage, "STATE", tmp_path / "coverage.jsonl")
    found = {"llama": [trial("LlamaModel", "bare", "analysed", 1e-7)], "rwkv": [trial("RwkvModel", "bare", "refused")]}
    coverage.recorder(found)
    assert coverage.done_before(fresh=False) == found
    assert list(coverage.done_before(fresh=False, again=["rwkv"])) == ["llama"]
    monkeypatch.setattr(coverage, "digest", lambda: "other sources")
    assert coverage.done_before(fresh=False) == {}
    assert list(coverage.done_before(fresh=False, again=["rwkv"])) == ["llama"]


def test_types_that_cannot_be_built_are_listed_by_task(tools: Any) -> None:
    trial, page = tools("architectures.trial").Trial, tools("architectures.page")
    results = {
        "llama": [trial("LlamaForCausalLM", "causal", "analysed", 1e-7)],
        "blt": [trial("BltModel", "bare", "not built"), trial("BltForCausalLM", "causal", "not built", reason="why")],
        "dinat": [trial("DinatForImageClassification", "image", "not built", reason="why")],
        "resnet": [trial("ResNetForImageClassification", "image", "not built", reason="why")],
    }
    assert page.not_built(results) == "`blt` (causal); `dinat` (image)"
