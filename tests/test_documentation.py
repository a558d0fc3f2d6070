"""Pages that claim to be complete: every folder has its place, and every name of a result its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from support.tiny_architectures import BART, ids, tiny
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import normscope as ns
from normscope.experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "normscope"
SCHEMA = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")


def architecture() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def package_folders() -> list[str]:
    """Every folder of the package that holds modules, such as `families/spec`."""
    return sorted({str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")} - {"."})


@pytest.mark.parametrize("folder", package_folders())
def test_every_folder_of_the_package_is_named_in_the_architecture(folder: str) -> None:
    parent, name = Path(folder).parent, Path(folder).name
    assert re.search(rf"(?<![\w/])(?:{parent}/)?{name}/", architecture())


def test_every_path_that_the_architecture_names_exists() -> None:
    named = set(re.findall(r"[\w./-]+/(?!\w)|[\w./-]+\.(?:py|md|ts)\b|[\w./-]+/\w+\.json\b", architecture()))
    assert len(named) > 30
    starts = (PACKAGE, PACKAGE / "families", ROOT, ROOT / "front-end" / "src")
    assert [name for name in sorted(named) if not any((start / name).exists() for start in starts)] == []


def test_every_layer_that_the_architecture_names_is_a_module_or_a_package() -> None:
    contract = architecture().split("checks this contract:")[1].split("```")[1]
    layers = re.findall(r"\w+", contract)
    assert len(layers) > 20
    assert [name for name in layers if not ((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists())] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_of_an_experiment_has_its_question_its_command_and_whether_it_agrees(name: str) -> None:
    page = (ROOT / "docs" / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings[0] in ("What the paper asked", "The question")
    assert headings[1:] == ["Command", "How to read it", "Agreement"]
    assert f"\nnormscope run {name} " in page and f"<!-- facts of {name} -->" in page
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", page)
    assert pictures and all((ROOT / "docs" / "experiments" / picture).exists() for picture in pictures)


def assert_described(dataset: xr.Dataset, *, attributes: bool = True) -> None:
    names: set[Any] = {*dataset.variables, *dataset.dims, *(dataset.attrs if attributes else ())}
    described = {name.replace("key_", "query_") if name != "key_group" else name for name in map(str, names)}
    assert {name for name in described if f"`{name}`" not in SCHEMA} == set()


def test_the_schema_page_has_every_name_of_an_analysis(analyzer: ns.Analyzer) -> None:
    assert_described(analyzer.analyze("The cat sleeps.", heads=True, projections=True).dataset)


def test_the_schema_page_has_every_name_of_an_encoder_decoder_analysis() -> None:
    analyzer = ns.load(tiny("bart", AutoModelForSeq2SeqLM, **BART))
    tree = analyzer.analyze(ids(5, 6, 7), decoder_text=ids(8, 9)).tree
    assert set(tree.children) == {"decoder", "encoder"}
    for node in tree.subtree:
        assert_described(node.to_dataset())


def test_the_schema_page_has_every_name_of_an_explanation() -> None:
    analyzer = ns.load(tiny("gpt2", AutoModelForCausalLM, n_layer=2, n_head=3))
    assert_described(analyzer.explain(ids(5, 6, 7), target=8, heads=True).dataset)


def test_the_schema_page_has_every_name_of_a_similarity(analyzer: ns.Analyzer) -> None:
    texts = ("A man plays guitar.", "Someone makes music.")
    for options in ({}, {"table": False}, {"pooling": "late-interaction"}):
        assert_described(analyzer.similarity(*texts, **options).dataset)
    (hit,) = analyzer.search(texts[0], [texts[1]])
    assert_described(hit.dataset)


def test_the_schema_page_is_that_of_the_present_version(analyzer: ns.Analyzer) -> None:
    version = analyzer.analyze("The cat sleeps.", scopes="AttnW", layers=1).attrs["schema_version"]
    assert f"version **{version}**" in SCHEMA and f"| `schema_version` | {version} |" in SCHEMA
