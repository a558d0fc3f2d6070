"""Tables and figures that span the models of several runs: every number from its definition."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from runs.small import save_model

import normscope as ns
from normscope.experiments.chain import component_name
from normscope.report import tables_across, write_report
from normscope.report.across import Across, ModelRow, Number
from normscope.report.across_figures import drawn_across, drawn_effects, effects_across, omitted_effects
from normscope.report.run import Run
from normscope.runs import run
from normscope.scopes import scopes_of

TEXTS = ["The opera singer caught a soap bubble.", "It rained on the plain in Spain.", "A third one, and the last."]
NAMES = ["scope-similarity", "mixing-ratio", "expansion-rate"]
BERT = scopes_of(["Attn", "Res", "Ln", "Ff", "Res", "Ln"])
COMPONENTS = ["ATTN", "RES1", "LN1", "FF", "RES2", "LN2"]


@pytest.fixture(scope="module")
def models(analyzer: ns.Analyzer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    sizes = {"shallow": 1, "deep": 2}
    return {
        name: save_model(folder / name, analyzer.tokenizer, seed, layers)
        for seed, (name, layers) in enumerate(sizes.items())
    }


@pytest.fixture(scope="module")
def runs(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A run of each model in float64, without masks, so that the test can analyse the same texts."""
    folder = tmp_path_factory.mktemp("runs")
    for name, model in models.items():
        run(NAMES, model=model, corpus=TEXTS, masking="none", out=folder / name, loading={"dtype": torch.float64})
    return [folder / name for name in models]


@pytest.fixture(scope="module")
def seeds(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of each model, which differ in what is masked; the second model is the first by another name."""
    folder = tmp_path_factory.mktemp("seeds")
    for seed in (0, 1):
        run(["mixing-ratio"], model=models["shallow"], corpus=TEXTS, seed=seed, out=folder / f"shallow-{seed}")
        renamed(shutil.copytree(folder / f"shallow-{seed}", folder / f"deep-{seed}"), "deep")
    return [folder / f"{name}-{seed}" for name in models for seed in (0, 1)]


def renamed(folder: Path, model: str) -> Path:
    """A run as if its model had another name."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["model"]["model"] = model
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def by_title(tables: list[Across]) -> dict[str, Across]:
    return {table.experiment: table for table in tables}


def own_rows(table: Across) -> dict[str, ModelRow]:
    return {row.name: row for row in table.rows if not row.of_paper}


def mean_and_error(sequences: list[float]) -> tuple[Any, Any]:
    """The mean over sequences and its standard error, for comparison; sums of a run are exact in steps below 1e-9."""
    error = np.std(sequences, ddof=1) / np.sqrt(len(sequences))
    return pytest.approx(np.mean(sequences), rel=1e-8), pytest.approx(error, rel=1e-5, abs=1e-8)


def test_a_row_has_the_correlation_around_every_component(models: dict[str, Path], runs: list[Path]) -> None:
    table = by_title(tables_across(runs))["scope-similarity"]
    assert table.columns == COMPONENTS and list(own_rows(table)) == ["shallow", "deep"]
    for name, folder in models.items():
        analyses = [ns.load(folder, dtype=torch.float64).analyze(text) for text in TEXTS]
        for component, first, second in zip(COMPONENTS, BERT[:-1], BERT[1:], strict=True):
            of_sequences: list[float] = []
            for analysis in analyses:
                one, other = (analysis.map(scope).values.astype(float) for scope in (first, second))
                of_layers = [np.corrcoef(one[k].ravel(), other[k].ravel())[0, 1] for k in range(len(one))]
                of_sequences.append(float(np.mean(of_layers)))
            number = own_rows(table)[name].numbers[component]
            assert (number.value, number.error) == mean_and_error(of_sequences)


def test_a_row_has_the_mixing_ratio_of_every_scope(models: dict[str, Path], runs: list[Path]) -> None:
    table = by_title(tables_across(runs))["mixing-ratio"]
    assert table.columns == ["AttnW", "Attn", "AttnResW", "AttnRes", "AttnResLn"]
    for name, folder in models.items():
        ratios = [ns.load(folder, dtype=torch.float64).mixing_ratios(text) for text in TEXTS]
        for scope in ("AttnW", "Attn", "AttnRes", "AttnResLn"):
            own = [each.sel(scope=scope).values for each in ratios]
            number = own_rows(table)[name].numbers[scope]
            _, error = mean_and_error([float(each.mean()) for each in own])
            pooled = np.concatenate([each.ravel() for each in own]).mean()
            assert (number.value, number.error) == (pytest.approx(pooled, rel=1e-8), error)


def test_a_row_has_the_expansion_rate_of_its_layers(models: dict[str, Path], runs: list[Path]) -> None:
    table = by_title(tables_across(runs))["expansion-rate"]
    for name, folder in models.items():
        rates: list[float] = []
        for layer in ns.load(folder, dtype=torch.float64).model.encoder.layer:
            modules = layer.attention.self.value, layer.attention.output.dense
            (value, value_bias), (output, bias) = [
                (m.weight.detach().numpy(), m.bias.detach().numpy()) for m in modules
            ]
            extended = np.eye(17)
            extended[:16, :16] = value.T @ output.T
            extended[16, :16] = value_bias @ output.T + bias
            rates.append(float(np.sqrt(np.mean(np.linalg.svd(extended, compute_uv=False) ** 2))))
        found = {column: number.value for column, number in own_rows(table)[name].numbers.items()}
        expected = {"mean": np.mean(rates), "minimum": min(rates), "maximum": max(rates)}
        assert found == pytest.approx(expected, rel=1e-8)


def test_the_papers_models_are_rows_of_their_own(runs: list[Path]) -> None:
    tables = by_title(tables_across(runs))
    (bert,) = tables["scope-similarity"].published
    assert bert.name == "paper: BERT-base"
    assert [tables["scope-similarity"].cell(bert, component) for component in COMPONENTS] == [
        *("0.48", "0.41", "0.91", "0.79", "0.96", "0.73")
    ]
    mixing = tables["mixing-ratio"]
    tiny = next(row for row in mixing.published if row.name == "paper: BERT-tiny")
    assert [mixing.cell(tiny, column) for column in mixing.columns] == ["94.1", "90.4", "47.1", "37.8", "37.3"]
    rates = {row.name: tables["expansion-rate"].cell(row, "mean") for row in tables["expansion-rate"].published}
    assert rates["paper: RoBERTa-base"] == "1.30" and len(rates) == 9


def test_other_ways_of_comparing_maps_have_tables_of_their_own_without_published_values(
    models: dict[str, Path], runs: list[Path], tmp_path: Path
) -> None:
    options = {"scope-similarity": {"correlations": ("spearman", "pearson")}}
    run(["scope-similarity"], model=models["deep"], corpus=TEXTS, options=options, out=tmp_path / "both")
    twin = renamed(shutil.copytree(tmp_path / "both", tmp_path / "twin"), "twin")
    first, second = tables_across([runs[0], tmp_path / "both", twin])
    assert "Pearson's r" in first.title and len(first.measured) == 3 and first.published
    assert "Spearman's" in second.title and len(second.measured) == 2 and not second.published
    assert first.note == "Besides the model, these runs differ in: correlations, masking of tokens."


def test_seeds_of_one_model_are_one_row_with_their_deviation(seeds: list[Path]) -> None:
    table = by_title(tables_across(seeds, together=True))["mixing-ratio"]
    assert [(row.name, row.runs) for row in table.measured] == [("shallow", 2), ("deep", 2)]
    for row, folders in zip(table.measured, (seeds[:2], seeds[2:]), strict=True):
        for column, number in row.numbers.items():
            tables = [Run.open(folder).table("mixing-ratio").to_pylist() for folder in folders]
            means = [next(each["mean"] for each in rows if each["scope"] == column) for rows in tables]
            assert number.value == pytest.approx(sum(means) / 2)
            assert number.error == pytest.approx(abs(means[0] - means[1]) / 2**0.5)


def test_models_whose_names_differ_in_a_seed_are_one_row_together(seeds: list[Path], tmp_path: Path) -> None:
    copies = [shutil.copytree(folder, tmp_path / folder.name) for folder in seeds]
    folders = [renamed(folder, f"google/multiberts-seed_{seed}") for seed, folder in enumerate(copies)]
    assert [row.name for row in tables_across(folders)[0].measured] == [f"multiberts-seed_{seed}" for seed in range(4)]
    (row,) = tables_across(folders, together=True)[0].measured
    assert (row.name, row.runs) == ("multiberts", 4)


def test_models_of_one_name_are_told_apart_by_their_runs(seeds: list[Path], tmp_path: Path) -> None:
    names = [row.name for row in tables_across(seeds)[0].measured]
    assert names == ["shallow (shallow-0)", "shallow (shallow-1)", "deep (deep-0)", "deep (deep-1)"]
    twin = shutil.copytree(seeds[0], tmp_path / "elsewhere" / seeds[0].name)
    names = [row.name for row in tables_across([seeds[0], twin])[0].measured]
    assert names == [f"shallow ({seeds[0]})", f"shallow ({twin})"]


def test_a_run_without_an_experiment_is_not_in_its_table(
    models: dict[str, Path], runs: list[Path], tmp_path: Path
) -> None:
    run(["expansion-rate"], model=models["deep"], out=tmp_path / "rates")
    (table,) = tables_across([runs[0], tmp_path / "rates"])
    assert table.experiment == "expansion-rate" and len(table.measured) == 2
    assert tables_across(runs[:1]) == []


def without_column(folder: Path, table: str, column: str) -> Path:
    """A run as if its table were of a version that had no such column, and whose manifest had no checksums."""
    path = folder / "tables" / f"{table}.parquet"
    pq.write_table(pq.read_table(path).drop_columns(column), path)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize(
    ("table", "column"),
    [("mixing-ratio", "mean"), ("scope-similarity", "relation"), ("expansion-rate", "expansion_rate")],
)
def test_a_run_of_another_version_is_left_out_with_a_sentence_that_says_so(
    runs: list[Path], tmp_path: Path, table: str, column: str
) -> None:
    old = without_column(shutil.copytree(runs[0], tmp_path / "old"), table, column)
    said = f"Left out: shallow (old). The table '{table}' there is of another version of normscope"
    html = said.replace("'", "&#39;")
    three = by_title(tables_across([*runs, old]))
    assert said in three[table].note and len(three[table].measured) == 2
    assert all("Left out" not in across.note for name, across in three.items() if name != table)
    assert html in write_report([*runs, old], tmp_path / "three.html").read_text()
    assert table not in by_title(tables_across([runs[1], old]))
    assert html in write_report([runs[1], old], tmp_path / "two.html").read_text()


def test_a_value_of_the_same_model_and_corpus_stands_on_its_row(runs: list[Path], tmp_path: Path) -> None:
    number = Number(0.2, 0.01, published=0.188)
    table = Across("mixing-ratio", "", ["AttnResLn"], [ModelRow("own", {"AttnResLn": number})], percent=True, digits=1)
    (axes,) = drawn_across(table).axes
    marks = {str(line.get_marker()): line.get_xdata()[0] for line in axes.lines if line.get_marker() in ("o", "D")}
    assert marks == {"o": pytest.approx(20.0), "D": pytest.approx(18.8)}


def test_the_figure_has_a_dot_for_every_number_of_its_table(runs: list[Path]) -> None:
    for table in tables_across(runs):
        figure = drawn_across(table)
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert names == [row.name for row in table.rows]
        for axes, column in zip(figure.axes, table.columns, strict=False):
            dots = [(line.get_xdata()[0], line.get_marker()) for line in axes.lines if line.get_marker() in ("o", "D")]
            expected = [
                (pytest.approx(table.shown(row.numbers[column].value)), "D" if row.of_paper else "o")
                for row in table.rows
                if column in row.numbers
            ]
            assert dots == expected
            low, high = axes.get_xlim()
            assert all(low <= value <= high for value, _ in dots)


def test_the_page_has_the_tables_and_figures_that_span_models(runs: list[Path], tmp_path: Path) -> None:
    page = write_report(runs, tmp_path / "both.html").read_text()
    assert '<h2 id="across-models">' in page and page.count("<td>paper: BERT-tiny</td>") == 2
    assert page.index('id="across-models"') < page.index('id="runs"')
    table = by_title(tables_across(runs))["scope-similarity"]
    assert table.cell(table.rows[0], "FF") in page
    assert "across-models" not in write_report(runs[:1], tmp_path / "one.html").read_text()


def test_numbers_are_shown_with_digits_that_say_something() -> None:
    table = Across("mixing-ratio", "", ["Attn"], [], percent=True, digits=1)
    cells = [Number(0.4638, 0.0123), Number(0.4638, 0.0003), Number(0.4638)]
    assert [table.cell(ModelRow("", {"Attn": each}), "Attn") for each in cells] == ["46.4 ± 1.2", "46.4 ± 0.03", "46.4"]
    assert table.cell(ModelRow("", {"Attn": cells[0]}), "Attn", error=False) == "46.4"
    assert table.cell(ModelRow("", {}), "Attn") == ""


def test_components_are_counted_along_the_chain_of_any_block() -> None:
    named = [component_name(scope) for scope in scopes_of(["Attn", "Res", "Cross", "Res", "Ln", "Ff", "Res"])]
    assert named == [None, "ATTN", "RES1", None, "CROSS", "RES2", "LN1", "FF", "RES3"]


class RunWithEffects(Run):
    """A finished run with this table of word-split."""

    def __init__(self, name: str, folder: str, rows: list[dict[str, Any]]) -> None:
        experiments = {"word-split": {"tables": ["word-split"], "masking": "the experiment masks no tokens"}}
        settings = {"experiments": {"word-split": {}}}
        manifest = {"model": {"model": name}, "settings": settings, "sequences": 3, "experiments": experiments}
        super().__init__(Path(folder), manifest)
        self.__dict__["rows"] = rows

    def table(self, name: str) -> Any:
        return pa.Table.from_pylist(self.__dict__["rows"])


def layer_rows(effects: list[float | None], *, significant: bool) -> list[dict[str, Any]]:
    return [
        {"kind": "ff", "layer": layer, "effect": effect, "significant": significant}
        | {"low": None if effect is None else effect - 0.1, "high": None if effect is None else effect + 0.2}
        for layer, effect in enumerate(effects, 1)
    ]


def test_effects_stand_at_the_depth_of_their_layers_with_their_intervals() -> None:
    runs = [
        RunWithEffects("four", "a", layer_rows([0.1, None, 0.3, -0.4], significant=True)),
        RunWithEffects("two", "b", layer_rows([0.5, 0.6], significant=False)),
    ]
    (effects,) = effects_across(runs)
    assert [(p.depth, p.effect) for p in effects.lines["ff"]["four"]] == [(0.25, 0.1), (0.75, 0.3), (1.0, -0.4)]
    assert [(p.depth, p.low, p.high) for p in effects.lines["ff"]["two"]] == [
        (0.5, pytest.approx(0.4), pytest.approx(0.7)),
        (1.0, pytest.approx(0.5), pytest.approx(0.8)),
    ]
    assert effects.published == {
        "paper: BERT-base": pytest.approx([layer / 12 for layer in (3, 4, 5, 6, 7, 9, 10, 11)])
    }
    axes = drawn_effects(effects).axes[0]
    filled = [
        line for line in axes.lines if line.get_linewidth() == 0 and len(line.get_xdata()) and line.get_marker() == "o"
    ]
    assert [list(line.get_ydata()) for line in filled] == [[0.1, 0.3, -0.4]]


def test_effects_of_seeds_are_means_with_a_band_of_one_deviation() -> None:
    runs = [RunWithEffects("one", str(seed), layer_rows([0.2 + seed], significant=seed > 0)) for seed in (0, 1)]
    (effects,) = effects_across(runs, together=True)
    (point,) = effects.lines["ff"]["one"]
    assert point.effect == pytest.approx(0.7) and point.significant is None
    assert (point.low, point.high) == (pytest.approx(0.7 - 0.5**0.5), pytest.approx(0.7 + 0.5**0.5))


def test_runs_without_effects_have_no_figure_of_them() -> None:
    empty = [RunWithEffects(name, name, layer_rows([None, None], significant=False)) for name in ("a", "b")]
    assert effects_across(empty) == []
    older = [RunWithEffects(name, name, [{"kind": "ff", "layer": 1}]) for name in ("a", "b")]
    assert effects_across(older) == [] and omitted_effects(empty) == {}
    ((title, note),) = omitted_effects(older).items()
    assert title == "Effects of word-split by depth" and note.startswith(
        "Left out: a (a), b (b). The table 'word-split'"
    )


def test_a_run_of_another_version_is_left_out_of_the_effects_with_a_sentence() -> None:
    runs = [
        RunWithEffects("new", "new", layer_rows([0.1], significant=True)),
        RunWithEffects("old", "old", [{"kind": 1}]),
    ]
    (effects,) = effects_across(runs)
    assert list(effects.lines["ff"]) == ["new"] and effects.note.startswith("Left out: old (old).")
    assert omitted_effects(runs) == {}
