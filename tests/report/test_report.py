"""The report: one page with everything in it, every text escaped, also of runs of older versions."""

from __future__ import annotations

import json
import shutil
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from normscope import report
from normscope.errors import FileError, InputError
from normscope.experiments import EXPERIMENTS
from normscope.experiments.published import agreement
from normscope.report import write_report
from normscope.report.run import Run
from normscope.report.tables import pooled, pooled_tables
from normscope.runs import run

NAMES = ["mixing-ratio", "ff-amplification"]


@pytest.fixture(scope="module")
def finished(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over texts that would be markup if they were not escaped."""
    texts = ["<b>x</b> & <script>alert(1)</script> <b>x</b>"] * 2
    folder = tmp_path_factory.mktemp("runs") / "minilm"
    run(NAMES, model=analyzer, corpus=texts, out=folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def changed(folder: Path, change: Any) -> Path:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_report_is_one_file_with_nothing_outside_it(finished: Path, tmp_path: Path) -> None:
    page = write_report([finished, finished], tmp_path / "report.html").read_text()
    figures = sum(len(facts["figures"]) for facts in _manifest(finished)["experiments"].values())
    assert page.count("data:image/svg+xml;base64,") == 2 * figures + 1 > 1  # and one across both
    assert "side by side" in page and page.count("<script") == 1
    assert "http://" not in page and "https://" not in page
    assert all(f'<h2 id="{name}">' in page for name in NAMES)
    assert "paper (masked: mixing-ratio)" in page


def test_folders_that_are_called_alike_have_a_column_each(finished: Path, tmp_path: Path) -> None:
    twin = shutil.copytree(finished, tmp_path / "R&D <ä>" / finished.name)
    page = write_report([finished, twin], tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f"<th>mean: all-MiniLM-L6-v2 ({escape(str(folder))})</th>" in page for folder in (finished, twin))


def test_tokens_in_a_report_are_escaped(finished: Path, tmp_path: Path) -> None:
    page = write_report([finished], tmp_path / "report.html").read_text()
    assert "&lt;" in page and page.count("<script") == 1 and "<b>" not in page


def test_names_from_a_manifest_are_escaped(copy: Path) -> None:
    hostile = "\"'><img src=x onerror=alert(1)>"

    def change(manifest: dict[str, Any]) -> None:
        manifest["model"]["model"] = manifest["settings"]["corpus"]["path"] = hostile
        manifest["experiments"][hostile] = manifest["experiments"].pop("mixing-ratio")

    page = write_report([changed(copy, change)]).read_text()
    assert "onerror" in page and "<img src=x" not in page and hostile not in page


def test_a_run_of_version_0_1_is_reported(copy: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for facts in manifest["experiments"].values():
            del facts["masked"], facts["masking"]
        for name in ("layout", "value_bias", "dtype", "ranks_fingerprint"):
            del manifest["settings"][name]

    page = write_report([changed(copy, change)]).read_text()
    assert "<th>masking</th><td>paper</td>" in page


@pytest.fixture(scope="module")
def seeds(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three runs that differ in their seed, and so in what is masked."""
    folder = tmp_path_factory.mktemp("seeds")
    texts = ["The opera singer caught a soap bubble.", "It rained on the plain in Spain, and the rain fell."]
    for seed in range(3):
        run(["mixing-ratio"], model=analyzer, corpus=texts, seed=seed, out=folder / str(seed))
    return [folder / str(seed) for seed in range(3)]


def test_runs_together_are_means_and_deviations_over_them(seeds: list[Path], tmp_path: Path) -> None:
    runs = [Run.open(folder) for folder in seeds]
    table = pooled_tables(runs, "mixing-ratio")["mixing-ratio"].to_pylist()
    one = [{row["scope"]: row for row in run.table("mixing-ratio").to_pylist()} for run in runs]
    for row in table:
        values = [rows[row["scope"]]["mean"] for rows in one]
        assert len(set(values)) == 3 and row["runs"] == 3
        assert (row["mean"], row["mean ±"]) == (pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1)))
        assert row["maximum"] == max(rows[row["scope"]]["maximum"] for rows in one)
    page = write_report(seeds, tmp_path / "seeds.html", together=True).read_text()
    assert "mean ± deviation over 3 runs" in page and "<th>mean ±</th>" in page
    assert page.count("No published values") == 1 + sum("No published" in json.dumps(run.manifest) for run in runs)


def test_runs_of_other_options_and_single_ones_are_not_put_together(
    analyzer: Any, seeds: list[Path], tmp_path: Path
) -> None:
    run(["mixing-ratio"], model=analyzer, corpus=["A text."], masking="none", out=tmp_path / "other")
    with pytest.raises(InputError, match=r"other options \(masked\)"):
        write_report([seeds[0], tmp_path / "other"], together=True)
    with pytest.raises(InputError, match="at least two"):
        write_report(seeds[:1], together=True)


def test_a_run_is_not_put_together_with_itself_or_a_copy(seeds: list[Path], tmp_path: Path) -> None:
    copied = shutil.copytree(seeds[0], tmp_path / "copied")
    for twin in (seeds[0], copied):
        with pytest.raises(InputError, match=r"are the same run: same weights, same settings, same seed"):
            write_report([*seeds, twin], tmp_path / "report.html", together=True)
    assert write_report([seeds[0], copied], tmp_path / "report.html").exists()  # side by side it harms nobody


def test_an_experiment_of_one_run_alone_is_shown_as_it_is_beside_those_put_together(
    analyzer: Any, seeds: list[Path], tmp_path: Path
) -> None:
    run(["mixing-ratio", "expansion-rate"], model=analyzer, corpus=["A text."], out=tmp_path / "more")
    page = write_report([seeds[0], tmp_path / "more"], tmp_path / "both.html", together=True).read_text()
    assert "mean ± deviation over 2 runs" in page
    assert "expansion_rate" in page and "<th>expansion_rate ±</th>" not in page


def test_rows_that_labels_do_not_tell_apart_are_not_pooled() -> None:
    table = pa.table({"word": ["a", "a"], "value": [1.0, 2.0]})
    assert pooled([table, table]) is None


def test_what_is_no_finished_run_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one"):
        write_report([])
    with pytest.raises(InputError, match="no finished run"):
        write_report([tmp_path])
    (copy / "tables" / "mixing-ratio.parquet").write_bytes(b"no table")
    with pytest.raises(FileError, match="mixing-ratio"):
        write_report([copy])
    (copy / "manifest.json").write_text('{"model": {}, "sequences": 3}')
    with pytest.raises(FileError, match="no experiments, settings, versions, finished"):
        write_report([copy])
    (copy / "manifest.json").unlink()
    with pytest.raises(InputError, match="not finished: run the same command again"):
        write_report([copy])
    assert not (copy / "report.html").exists()


@pytest.mark.parametrize("name", ["tables/mixing-ratio.parquet", "figures/mixing-ratio.svg"])
def test_a_table_or_figure_that_is_not_as_the_run_wrote_it_is_refused_by_name(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 3] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(FileError, match=rf"{name}' has another checksum than when it was published\. Run the same"):
        write_report([copy])
    (copy / name).unlink()
    with pytest.raises(FileError, match=rf"{name}' is missing"):
        write_report([copy])
    assert not (copy / "report.html").exists()


def test_the_manifest_has_a_checksum_of_every_file_and_older_ones_without_are_read(copy: Path) -> None:
    written = {str(path.relative_to(copy)) for part in ("tables", "figures") for path in (copy / part).iterdir()}
    assert set(_manifest(copy)["files"]) == written
    assert write_report([changed(copy, lambda manifest: manifest.pop("files"))]).exists()
    (copy / "tables" / "mixing-ratio.parquet").write_bytes(b"PAR1")
    with pytest.raises(FileError, match=r"mixing-ratio.*cannot be read"):
        write_report([copy])


def _manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def test_a_report_says_what_was_found_and_sorts_its_tables(finished: Path, tmp_path: Path, browser: Any) -> None:
    path = write_report([finished], tmp_path / "report.html")
    page = browser.new_page()
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.goto(path.as_uri())
    table = Run.open(finished).table("mixing-ratio").to_pylist()
    whole = next(row for row in table if row["scope"] == "AttnResLn" and row["tokens"] == "overall")
    assert f"{whole['mean']:.0%} of a state comes from other tokens" in page.locator(".finding").first.inner_text()
    assert page.locator("nav a").all_inner_texts() == ["Run", *NAMES]
    assert page.locator("figure figcaption").first.inner_text().startswith("Mean mixing ratio in percent")
    shown = page.locator("details[open] table.sorted").first
    head = shown.locator("th", has_text="mean")
    for order in (1, -1):
        head.press("Enter")
        values = [float(text) for text in shown.locator("tbody tr td:nth-child(3)").all_inner_texts()]
        assert values == sorted(values, key=lambda value: order * value)
    assert head.get_attribute("aria-sort") == "descending"
    assert "published" not in shown.locator("th").all_inner_texts()  # nothing is known of this model
    sides = head.evaluate("(head) => getComputedStyle(head).textAlign")
    assert sides == shown.locator("td.number").first.evaluate("(cell) => getComputedStyle(cell).textAlign") == "right"
    page.set_viewport_size({"width": 680, "height": 960})
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 680  # paper does not scroll
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert trouble == []  # the script is the one that the page's policy names
    page.close()


def test_published_values_are_compared_and_old_tables_say_nothing() -> None:
    table = pa.table({"scope": ["a", "b"], "mean": [0.5, 0.2], "published": [0.4, None]})
    assert agreement([table]) == (
        "1 published value next to measured ones: they differ by 0.1 (median) and 0.1 at most."
    )
    assert agreement([table.drop_columns(["published"])]) is None
    assert EXPERIMENTS["mixing-ratio"].finding([table]) is None
    assert EXPERIMENTS["mixing-ratio"].finding([]) is None


def test_an_experiment_that_this_version_does_not_know_has_figures_named_in_words_and_no_finding(copy: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["experiments"]["no-such-one"] = manifest["experiments"].pop("mixing-ratio")

    page = write_report([changed(copy, change)]).read_text()
    _, _, section = page.partition('<h2 id="no-such-one">')
    assert "<figcaption>Mixing ratio</figcaption>" in section and 'class="finding"' not in section


def test_an_error_that_was_not_measured_is_called_so(copy: Path) -> None:
    manifest = copy / "manifest.json"
    facts = json.loads(manifest.read_text(encoding="utf-8")) | {"worst_completeness_error": None}
    manifest.write_text(json.dumps(facts), encoding="utf-8")
    assert Run.open(copy).facts()["worst completeness error"] == "not measured"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_summary_ends_with_one_mark(name: str) -> None:
    summary = report._summary(name)  # pyright: ignore[reportPrivateUsage]
    assert summary[-1] in ".?" and summary[-2] not in ".?"
