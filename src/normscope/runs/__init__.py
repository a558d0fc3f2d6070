"""A corpus run: experiments over a corpus in shards, in one pass, with tables, figures and a manifest.

Every finished shard is on disk before it counts as done, so that whatever ends a run, the same command resumes it, and its
tables are the same to the last bit. What is computed for a sequence is up to the experiments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Unpack, cast

from normscope.errors import require_corpus_extra

require_corpus_extra("A corpus run")

from normscope.corpora import Corpus, CorpusOptions
from normscope.experiments import Experiment, Outcome, experiment
from normscope.experiments.tables import Table
from normscope.models.options import LoadingOptions
from normscope.options import Masking, with_keywords
from normscope.request import RunOptions, RunSettings
from normscope.runs import output
from normscope.runs.cost import RunCost, cost_of
from normscope.runs.driver import RunInterrupted
from normscope.runs.engines import ChangedModelError, Engine, WorkerError
from normscope.runs.explaining import ExplainedCorpus, explain_corpus
from normscope.runs.folder import AnotherRunError, RunInProgressError
from normscope.runs.output import manifest_of
from normscope.runs.settings import Settings, arithmetic
from normscope.runs.starting import AnyModel, How, started

__all__ = [
    "AnotherRunError",
    "ChangedModelError",
    "ExplainedCorpus",
    "RunCost",
    "RunInProgressError",
    "RunInterrupted",
    "RunResult",
    "WorkerError",
    "cost_of",
    "explain_corpus",
    "run",
    "settings_of",
]


@dataclass(frozen=True)
class RunResult:
    """The result of a run: the outcome of each experiment by name, its manifest, and its folder (if it has one here)."""

    outcomes: dict[str, Outcome]
    manifest: dict[str, object]
    folder: Path | None

    @property
    def tables(self) -> dict[str, Table]:
        """Every table of every experiment, by its name."""
        return {name: table for outcome in self.outcomes.values() for name, table in outcome.tables.items()}

    def __repr__(self) -> str:
        facts = f"{self.manifest.get('sequences')} sequences, {self.manifest.get('tokens')} tokens"
        where = "" if self.folder is None else f", folder={str(self.folder)!r}"
        return f"RunResult({facts}{where})\ntables: {', '.join(self.tables)}"


class RunKeywords(RunOptions, CorpusOptions, total=False):
    """The keywords of `run` that are settings of the run, or options of its `Corpus`."""


@with_keywords(RunKeywords, RunSettings, Corpus)
def run(
    experiments: str | Experiment | Sequence[str | Experiment],
    *,
    model: AnyModel = None,
    corpus: str | Path | Corpus | Sequence[str] | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    jobs: int = 1,
    overwrite: bool = False,
    progress: bool | None = False,
    loading: LoadingOptions | None = None,
    engine: Engine | None = None,
    **settings: Unpack[RunKeywords],
) -> RunResult:
    """Run experiments over a corpus, in one pass.

    Args:
        experiments: names (see `normscope.experiments.EXPERIMENTS`) or experiments with options, one or a list.
        model: as in `normscope.load`, or an analyzer, or a model with its loading options.
        corpus: a file, a dataset's name, a `Corpus`, or a list of texts.
        out: folder for tables, figures, manifest and shards, or its URL (such as `s3://bucket/run`); without it everything
            stays in memory. In a folder with an unfinished run of the same settings, that run is resumed.
        options: options of experiments by experiment name.
        jobs: number of processes. Each loads the model, and the cores are divided between them.
        overwrite: replace a run with other settings in the same folder.
        progress: show a progress bar (`None`: in a terminal).
        loading: further options of `normscope.load`, such as dtype, tokenizer or revision.
        engine: what computes the shards, instead of `jobs` processes.

    Keyword Args:
        masking: mask tokens for the experiments whose paper does (`paper`), for all, or for none.
        seed: of masking, sampling and the bootstrap.
        shard_size: sequences per shard.
        corpus_name: the papers' name of the corpus (wikipedia, sst2, mnli, conll), if it is theirs: published values
            are then shown next to the measured ones.
        ranks: a list of token frequency ranks (lines of `rank count id`); without it, tokens are counted in the corpus.
        value_bias: count the value projection's bias with the `"token"` (as the papers do) or with the `"bias"`.
        ff_baseline: where the integrated gradients of feed-forwards start in the maps: at `"zero"`, or at the `"bias"`.
        dtype: arithmetic of the decomposition, float32 or float64 (default float32, or float64 for a float64 model).
        stack: the stack of an encoder-decoder model to analyse: `decoder` (the default) or `encoder`.
        approximate: for experiments that use only the ranks of maps: approximate the maps from the feed-forward on, as
            in `Analyzer.analyze`. Tables, figures, manifest and report say so, with the measured error.

    All other keywords are options of `Corpus`, such as `limit`.

    Examples:
        >>> from normscope.runs import run
        >>> result = run(["mixing-ratio"], corpus=["The opera singer caught a soap bubble."], out="runs/bubble")
        >>> result.tables["mixing-ratio"].num_rows > 0
        True
    """
    all_settings = settings_of(experiments, corpus=corpus, options=options, **settings)
    with started(all_settings, model, loading, out, How(jobs, overwrite, progress, engine)) as begun:
        driver, folder = begun.driver, begun.folder
        expected = begun.compute()
        outcomes = driver.finish()
        manifest = {**manifest_of(driver, begun.record, outcomes, begun.seconds), "expected": expected}
        if out is not None:
            output.write(folder.path, outcomes, manifest)
            folder.publish()
    return RunResult(outcomes, manifest, None if out is None or folder.mirror is not None else folder.path)


def settings_of(
    experiments: str | Experiment | Sequence[str | Experiment],
    *,
    corpus: str | Path | Corpus | Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Unpack[RunKeywords],
) -> Settings:
    """The settings of a run of any model, from the arguments of `run`."""
    named = [experiments] if isinstance(experiments, str | Experiment) else experiments
    selection = [
        item if isinstance(item, Experiment) else experiment(item, (options or {}).get(item)) for item in named
    ]
    own, of_corpus = _divided(settings)
    return Settings(
        experiments=tuple(_with_masking(item, own.masking) for item in selection),
        corpus=None if corpus is None else Corpus.of(corpus, of_corpus, seed=own.seed),
        **vars(own),
    )


def _divided(settings: RunKeywords) -> tuple[RunSettings, CorpusOptions]:
    """The settings of a run in plain types, and the options of its corpus."""
    known = {field.name for field in fields(RunSettings)}
    own: dict[str, Any] = {name: value for name, value in settings.items() if name in known}
    own["dtype"] = arithmetic(own.get("dtype"))
    own["ranks"] = None if own.get("ranks") is None else str(own["ranks"])
    others = {name: value for name, value in settings.items() if name not in known}
    return RunSettings(**own), cast(CorpusOptions, others)


def _with_masking(item: Experiment, masking: Masking) -> Experiment:
    """The experiment with its option `masked`, where it has one, as the run's masking says."""
    if masking == "paper" or "masked" not in item.options():
        return item
    return replace(item, masked=masking == "all")
