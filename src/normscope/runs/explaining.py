"""Explanations of a whole corpus in one file: a row for every token, word or sentence, and a manifest beside it.

Finished shards are kept next to the file until it is whole, so that whatever ends the work, the same call goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, get_args

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from normscope.corpora import Corpus, CorpusOptions
from normscope.errors import FileError, InputError, NormscopeError
from normscope.experiments.base import Outcome
from normscope.experiments.partial import Partial
from normscope.experiments.tables import Table
from normscope.methods.base import Method
from normscope.models.options import LoadingOptions
from normscope.options import FeedForwardBaseline, Objective, Weights, is_whole, whole_number, with_keywords
from normscope.paths import checksum, difference, ending
from normscope.request import Dtype
from normscope.results.files import replacing, sweep
from normscope.runs.driver import CANNOT
from normscope.runs.engines import Engine
from normscope.runs.explained_rows import REFUSED, ROWS, SCHEMA, ExplainedUnit, Explanations
from normscope.runs.folder import AnotherRunError
from normscope.runs.output import manifest_of, versions
from normscope.runs.settings import Settings, arithmetic, differences
from normscope.runs.starting import AnyModel, How, Started, started

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = ("parquet", "csv", "jsonl")
"""The endings of files that explanations of a corpus are written to."""

_UNFINISHED, _MANIFEST = ".unfinished", ".manifest.json"
_ALL = 2**31 - 1


@dataclass(frozen=True)
class ExplainedCorpus:
    """The explanations of a corpus: their file, if they were written to one, and the manifest.

    Made by `normscope.explain_corpus`.

    Examples:
        >>> import normscope as ns
        >>> explained = ns.explain_corpus(["The opera singer sang.", "It rained."], direction="state")
        >>> explained
        ExplainedCorpus(2 texts, 12 rows)
    """

    path: Path | None
    manifest: dict[str, Any]
    rows: Table | None = None

    @property
    def table(self) -> Table:
        """All rows, as an Arrow table.

        Examples:
            >>> ns.explain_corpus(["It rained."], direction="state").table.column_names[:3]
            ['text', 'where', 'target']
        """
        return self.rows if self.rows is not None else _read(cast(Path, self.path))

    def to_pandas(self) -> pd.DataFrame:
        """All rows, as a DataFrame.

        Examples:
            >>> ns.explain_corpus(["It rained."], direction="state").to_pandas()["token"].tolist()[:3]
            ['[CLS]', 'it', 'rained']
        """
        return self.table.to_pandas()

    def __repr__(self) -> str:
        facts = f"{self.manifest['sequences']} texts, {self.manifest['rows']} rows"
        where = "" if self.path is None else f", {str(self.path)!r}"
        return f"ExplainedCorpus({facts}{where})"


@dataclass(frozen=True)
class _WholeTexts:
    """The defaults of a corpus to explain: a text that was cut ends elsewhere, so that too long ones are left out."""

    max_tokens: int = _ALL
    too_long: str = "skip"


@with_keywords(CorpusOptions, Corpus, _WholeTexts)
def explain_corpus(
    corpus: str | Path | Corpus | Sequence[str],
    *,
    model: AnyModel = None,
    out: str | Path | None = None,
    units: ExplainedUnit = "token",
    target: str | int | Sequence[Any] | None = None,
    against: str | int | None = None,
    at: str | int | None = None,
    continue_for: int | None = None,
    direction: Literal["state"] | None = None,
    objective: Objective | None = None,
    method: str | Method = "pull-back",
    ff_baseline: FeedForwardBaseline = "zero",
    weights: Weights = "constant",
    dtype: Dtype | str | None = None,
    seed: int = 0,
    shard_size: int = 64,
    jobs: int = 1,
    overwrite: bool = False,
    progress: bool | None = False,
    loading: LoadingOptions | None = None,
    engine: Engine | None = None,
    **corpus_options: Unpack[CorpusOptions],
) -> ExplainedCorpus:
    """Explain what a model says to every text of a corpus: a table with a row for every token, word or sentence.

    Shares are those of `Analyzer.explain`, computed for many texts at once. Rows that cannot be explained are left out and
    counted, or end the work (`bad_rows="refuse"`). Whatever ends it, the same call goes on.

    Args:
        corpus: a file, a dataset's name, a `Corpus`, or a list of texts.
        model: as in `normscope.load`, or an analyzer, or a model with its loading options.
        out: the file to write: `.parquet`, `.csv` or `.jsonl`. A manifest is written beside it. Without it the table stays
            in memory.
        units: a row for every `"token"`, `"word"` or `"sentence"`, or for every `"turn"` of a chat.
        target: what is explained of every text, or a list with something for each text of a list. A column of a file can
            say it instead (`target_column`); by default it is what the model predicts.
        against, at, continue_for, direction, objective, method, ff_baseline, weights: as in `Analyzer.explain`.
        dtype: arithmetic of the pull-back, float32 or float64.
        seed: of the sample that `shuffle` draws.
        shard_size: how many texts are computed and kept together.
        jobs: number of processes. Each loads the model, and the cores are divided between them.
        overwrite: replace a file, or unfinished work, with other settings.
        progress: show a progress bar (`None`: in a terminal).
        loading: further options of `normscope.load`, such as dtype, tokenizer or revision.
        engine: what computes the shards, instead of `jobs` processes.

    All other keywords are options of `Corpus`, such as `limit`. Texts are not cut: those with more tokens than the model
    takes, or than `max_tokens`, are left out.

    Examples:
        >>> import normscope as ns
        >>> texts = ["The opera singer sang.", "It rained."]
        >>> explained = ns.explain_corpus(texts, direction="state", units="word")
        >>> explained.to_pandas().groupby("text")["attribution"].sum().shape
        (2,)
    """
    path = None if out is None else Path(out)
    if path is not None:
        ending(path, ENDINGS)
        _refuse_foreign(path, overwrite=overwrite)
    source, shared = _with_targets(corpus, target)
    texts = Corpus.of(source, _options(source, corpus_options), seed=seed)
    explanations = Explanations(
        target=shared,
        against=against,
        at=at,
        continue_for=continue_for,
        direction=direction,
        objective=objective,
        method=method,
        ff_baseline=ff_baseline,
        weights=weights,
        dtype=arithmetic(dtype),
        units=_unit(units),
        strict=texts.bad_rows == "refuse",
    )
    settings = Settings(experiments=(explanations,), corpus=texts, seed=seed, shard_size=shard_size)
    work = None if path is None else path.with_name(path.name + _UNFINISHED)
    with started(settings, model, loading, work, How(jobs, overwrite, progress, engine)) as begun:
        explained = None if path is None else _checked(begun, path)
        if explained is None:
            expected = begun.compute()
            explained = _collected(begun, path, expected)
        if work is not None:
            begun.folder.discard()
    if work is not None:
        with suppress(OSError):  # which another process has begun to use
            work.rmdir()
    return explained


def _checked(begun: Started, path: Path) -> ExplainedCorpus | None:
    """What was explained before with the same settings; nothing is left where something else was."""
    try:
        return _finished(path, begun.record, overwrite=begun.how.overwrite)
    except NormscopeError:
        if not any(map(begun.driver.shards.done, range(begun.driver.spool.shard_count))):
            begun.folder.discard()
        raise


def _options(source: object, given: CorpusOptions) -> CorpusOptions:
    """The options of the corpus: whole texts, unless something else is said."""
    whole: CorpusOptions = {} if isinstance(source, Corpus) else {"max_tokens": _ALL, "too_long": "skip"}
    return {**whole, **given}


def _with_targets(
    corpus: str | Path | Corpus | Sequence[str], target: Any
) -> tuple[str | Path | Corpus | Sequence[str], str | int | tuple[int, ...] | None]:
    """The corpus, whose texts say what is explained where something was given for each; and what is explained of all."""
    listed = target.tolist() if getattr(target, "ndim", 0) == 1 else target
    if not isinstance(listed, list | tuple):
        return corpus, listed
    items = cast("list[Any]", list(listed))
    in_memory = (
        corpus.texts if isinstance(corpus, Corpus) else None if isinstance(corpus, str | Path) else tuple(corpus)
    )
    if items and all(map(is_whole, items)) and (in_memory is None or len(items) != len(in_memory)):
        return corpus, tuple(whole_number(item, "A token id of the target") for item in items)
    if in_memory is None:
        raise InputError(
            "A target for each text is for a list of texts: a file says it in a column (target_column=...)."
        )
    if len(items) != len(in_memory):
        raise InputError(f"There are {len(items)} targets for {len(in_memory)} texts: give one for each.")
    labels = tuple(tuple(item) if isinstance(item, list) else item for item in items)
    own = corpus if isinstance(corpus, Corpus) else Corpus.of(in_memory, _options(None, {}))
    return replace(own, labels=labels), None


def _unit(units: str) -> ExplainedUnit:
    if units not in get_args(ExplainedUnit):
        raise InputError(f"Shares are summed by token, word, sentence or turn (units), not by {units!r:.40}.")
    return cast(ExplainedUnit, units)


# ---- files ---------------------------------------------------------------------------------------------------------------


def _manifest_of(path: Path) -> Path:
    return path.with_name(path.name + _MANIFEST)


def _refuse_foreign(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that is not known to be the explanations of a corpus."""
    if path.exists() and not overwrite and not _manifest_of(path).exists():
        raise AnotherRunError(
            f"{str(path)!r} exists, and no {_manifest_of(path).name} says what it is: it is not replaced. Choose another "
            f"name (--out), or replace it (--overwrite)."
        )


def _finished(path: Path, record: dict[str, object], *, overwrite: bool) -> ExplainedCorpus | None:
    """What was explained before with the same settings; raises for a file with others, unless it is to be replaced."""
    if not path.exists() or not _manifest_of(path).exists():
        return None
    try:
        manifest: Any = json.loads(_manifest_of(path).read_text(encoding="utf-8"))
        settings, noted = manifest["settings"], manifest["files"][path.name]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if overwrite:
            return None
        raise FileError(
            f"{str(_manifest_of(path))!r} cannot be read ({error}). Replace both files (--overwrite)."
        ) from error
    if settings == record and difference(path, noted) is None:
        return ExplainedCorpus(path, manifest)
    if overwrite:
        return None
    how = f"differ in {', '.join(differences(settings, record))}" if settings != record else "are damaged"
    raise AnotherRunError(
        f"{str(path)!r} has other explanations: they {how}. Choose another name (--out), or replace them (--overwrite)."
    )


def _collected(begun: Started, path: Path | None, expected: dict[str, dict[str, object]]) -> ExplainedCorpus:
    """The rows of all shards in the order of the corpus: in a file with its manifest, or in memory."""
    driver, name = begun.driver, Explanations.name
    count, worst, kept = 0, 0.0, list[Table]()

    def tables() -> Iterator[Table]:
        nonlocal count, worst
        for partials in driver.shards.read():
            partial = partials.get(name, Partial())
            _note_refused(begun, partial)
            for table in _tables(partial):
                count += table.num_rows
                worst = max([worst, *_finite(table["error"])])
                yield table

    if path is None:
        kept = [SCHEMA.empty_table(), *tables()]
    else:
        sweep(path.parent, path.name, _manifest_of(path).name)
        with replacing(path) as temporary:
            _write(temporary, ending(path, ENDINGS), tables())
    manifest: dict[str, Any] = {
        **manifest_of(driver, begun.record, {name: Outcome({})}, begun.seconds),
        "rows": count,
        "worst_completeness_error": worst,
        "expected": expected,
        "versions": versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if path is None:
        return ExplainedCorpus(None, manifest, pa.concat_tables(kept).combine_chunks())
    manifest["files"] = {path.name: checksum(path)}
    with replacing(_manifest_of(path)) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    return ExplainedCorpus(path, manifest)


def _finite(column: Any) -> list[float]:
    """The different numbers of a column."""
    return [number for number in column.unique().to_pylist() if number is not None]


def _note_refused(begun: Started, partial: Partial) -> None:
    """Texts of which it was found out only while they were computed that they cannot be explained."""
    for chunk in partial.rows[REFUSED].chunks if REFUSED in partial.rows else ():
        table = pq.read_table(chunk) if isinstance(chunk, Path) else chunk
        for row in table.to_pylist():
            begun.driver.problems.bad_row(row["where"], CANNOT, row["why"])


def _tables(partial: Partial) -> Iterator[Table]:
    """The rows of a partial result, a piece at a time."""
    for chunk in partial.rows[ROWS].chunks if ROWS in partial.rows else ():
        if not isinstance(chunk, Path):
            yield chunk
            continue
        with pq.ParquetFile(chunk) as file:
            for batch in file.iter_batches():
                yield pa.Table.from_batches([batch]).replace_schema_metadata(None)


def _write(path: Path, kind: str, tables: Iterator[Table]) -> None:
    match kind:
        case "parquet":
            with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
                for table in tables:
                    writer.write_table(table)
        case "csv":
            with pa_csv.CSVWriter(path, SCHEMA) as writer:
                for table in tables:
                    writer.write_table(table)
        case _:
            with path.open("w", encoding="utf-8") as file:
                for table in tables:
                    file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())


def _read(path: Path) -> Table:
    """The rows of a file that was written here."""
    match ending(path, ENDINGS):
        case "parquet":
            return pq.read_table(path)
        case "csv":
            types = pa_csv.ConvertOptions(
                column_types={field.name: field.type for field in SCHEMA},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            )
            return pa_csv.read_csv(
                path, parse_options=pa_csv.ParseOptions(newlines_in_values=True), convert_options=types
            )
        case _:
            with path.open(encoding="utf-8") as file:
                return pa.Table.from_pylist([json.loads(line) for line in file], schema=SCHEMA)
