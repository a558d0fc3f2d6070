"""A corpus run on one machine: experiments over a corpus in shards, in one pass, with tables, figures and a manifest.

Every finished shard is on disk before the next begins, so that whatever ends the run, the same command goes on from there
and gives the same tables to the last bit. What is computed for a sequence is the experiments' concern.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import PreTrainedModel

from normscope.analyzer import Analyzer, load
from normscope.corpora import Corpus
from normscope.corpora.memory import TextList
from normscope.corpora.ranks import read_ranks
from normscope.corpus_run.job import Job, Masking, RunInterrupted
from normscope.corpus_run.settings import AnotherRunError
from normscope.errors import InputError
from normscope.experiments import Experiment, Outcome, experiment

__all__ = ["AnotherRunError", "RunInterrupted", "RunResult", "run"]


@dataclass(frozen=True)
class RunResult:
    """What a run found: the outcome of each experiment by name, its manifest, and its folder (if it has one)."""

    outcomes: dict[str, Outcome]
    manifest: dict[str, Any]
    folder: Path | None

    @property
    def tables(self) -> dict[str, Any]:
        return {name: table for outcome in self.outcomes.values() for name, table in outcome.tables.items()}


def run(
    experiments: Sequence[str | Experiment],
    *,
    model: str | Path | PreTrainedModel | Analyzer | None = None,
    corpus: str | Path | Corpus | Sequence[str] | None = None,
    out: str | Path | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    masking: Masking = "paper",
    seed: int = 0,
    jobs: int = 1,
    shard_size: int = 16,
    corpus_name: str = "",
    ranks: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | None = False,
    loading: Mapping[str, Any] | None = None,
    **corpus_options: Any,
) -> RunResult:
    """Run experiments over a corpus, in one pass.

    Args:
        experiments: names (see `normscope.experiments.EXPERIMENTS`) or experiments with options.
        model: as in `normscope.load`, or an analyzer.
        corpus: a file, a dataset's name, a `Corpus`, or a list of texts. `corpus_options` are the fields of `Corpus`.
        out: folder for tables, figures, manifest and shards; without it everything stays in memory. A folder with an
            unfinished run of the same settings is gone on with.
        options: options of experiments by experiment name.
        masking: mask tokens for the experiments whose paper does (`paper`), for all, or for none.
        seed: of masking, sampling and the bootstrap.
        jobs: processes to use. Each loads the model, and the cores are shared out between them.
        shard_size: sequences per shard.
        corpus_name: what the papers call the corpus (wikipedia, sst2, mnli, conll), if it is theirs: published values
            then stand beside the measured ones.
        ranks: a list of token frequency ranks (lines of `rank count id`); without it, tokens are counted in the corpus.
        overwrite: replace a run with other settings in the same folder.
        progress: show a progress bar (`None`: in a terminal).
        loading: further arguments of `normscope.load`, such as dtype, tokenizer or revision.
    """
    chosen = [
        item if isinstance(item, Experiment) else experiment(item, (options or {}).get(item)) for item in experiments
    ]
    if not chosen or len({item.name for item in chosen}) < len(chosen):
        raise InputError("Name at least one experiment, and each only once.")
    if jobs < 1 or shard_size < 1:
        raise InputError(f"jobs and shard_size are at least 1, not {jobs} and {shard_size}.")
    source: dict[str, Any] = {"model": model, **(loading or {})}
    analyzer = model if isinstance(model, Analyzer) else load(**source)
    with ExitStack() as stack:
        folder = (
            Path(out) if out is not None else Path(stack.enter_context(TemporaryDirectory(prefix="normscope-run-")))
        )
        job = Job(
            tuple(_with_masking(item, masking) for item in chosen),
            analyzer,
            _corpus(corpus, analyzer, seed, corpus_options),
            folder,
            {
                "masking": masking,
                "seed": seed,
                "shard_size": shard_size,
                "corpus_name": corpus_name,
                "ranks": None if ranks is None else str(ranks),
            },
            masking,
            None if ranks is None else read_ranks(ranks),
        )
        started = time.monotonic()
        job.claim(overwrite=overwrite)
        job.compute(None if isinstance(model, Analyzer | PreTrainedModel) else source, jobs, progress=progress)
        outcomes = job.finish()
        manifest = job.manifest(outcomes, time.monotonic() - started, written=out is not None)
    return RunResult(outcomes, manifest, None if out is None else folder)


def _with_masking(item: Experiment, masking: Masking) -> Experiment:
    if masking not in ("paper", "all", "none"):
        raise InputError(f"masking is paper, all or none, not {masking!r}.")
    if masking == "paper" or "masked" not in item.options():
        return item
    return replace(item, masked=masking == "all")


def _corpus(
    corpus: str | Path | Corpus | Sequence[str] | None, analyzer: Analyzer, seed: int, options: Mapping[str, Any]
) -> Corpus | TextList | None:
    if corpus is None:
        return None
    longest = analyzer.longest
    limits = dict(options)
    if longest is not None:
        limits["max_tokens"] = min(longest, int(options.get("max_tokens", 128)))
    if isinstance(corpus, Corpus):
        return replace(corpus, **options)
    try:
        if isinstance(corpus, str | Path):
            return Corpus(str(corpus), seed=seed, **limits)
        return TextList(tuple(corpus), max_tokens=limits.get("max_tokens", 128), unit=limits.get("unit", "line"))
    except TypeError as error:
        raise InputError(f"The corpus has no such option: {error}.") from error
