"""A corpus run on one machine: experiments over a corpus in shards, in one pass, with tables, figures and a manifest.

Every finished shard is on disk before the next begins, so that whatever ends the run, the same command goes on from there
and gives the same tables to the last bit. What is computed for a sequence is the experiments' concern.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from normscope.analyzer import Analyzer, load
from normscope.corpora import Corpus, CorpusError, Problems
from normscope.corpora.memory import TextList
from normscope.corpora.ranks import read_ranks
from normscope.corpus_run import output
from normscope.corpus_run.progress import shown
from normscope.corpus_run.settings import AnotherRunError, claim
from normscope.corpus_run.shards import Shards
from normscope.corpus_run.workers import Shard, Work, compute_here, compute_in_processes, threads_for
from normscope.errors import InputError
from normscope.experiments import Experiment, ModelFacts, Outcome, Partial, RunFacts, experiment, merged
from normscope.experiments.observer import COMPLETENESS, Plan

__all__ = ["AnotherRunError", "RunInterrupted", "RunResult", "run"]

Masking = Literal["paper", "all", "none"]

_CLARK_SEQUENCES = 992
"""How many sequences the Wikipedia excerpts of Clark et al. have: with their format, this is the papers' corpus."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C: finished shards are kept."""


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
    source = {"model": model, **(loading or {})}
    analyzer = model if isinstance(model, Analyzer) else load(**source)
    with ExitStack() as stack:
        folder = (
            Path(out) if out is not None else Path(stack.enter_context(TemporaryDirectory(prefix="normscope-run-")))
        )
        job = _Job(
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
    return replace(item, masked=masking == "all")  # pyright: ignore[reportCallIssue]


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


class _Job:
    """One run: its experiments, model, corpus and folder."""

    def __init__(
        self,
        experiments: tuple[Experiment, ...],
        analyzer: Analyzer,
        corpus: Corpus | TextList | None,
        folder: Path,
        settings: dict[str, Any],
        masking: Masking,
        ranks: Mapping[int, int] | None,
    ) -> None:
        self.ranks = ranks
        self.experiments, self.analyzer, self.corpus, self.folder = experiments, analyzer, corpus, folder
        self.own_settings, self.seed = settings, int(settings["seed"])
        self.facts = ModelFacts.of_analyzer(analyzer)
        mask_id = getattr(analyzer.tokenizer, "mask_token_id", None)
        if masking == "all" and mask_id is None:
            raise InputError(
                f"{analyzer.name} has no mask token: nothing can be masked. Say masking='none' (--masking none)."
            )
        mask_token = str(getattr(analyzer.tokenizer, "mask_token", ""))
        self.plan = Plan(experiments, self.facts, mask_id, mask_token, self.seed)
        self.needs_corpus = any(item.needs(self.facts).corpus for item in experiments)
        if self.needs_corpus and corpus is None:
            raise InputError("These experiments need a corpus: name one (--corpus).")
        self.shards = Shards(folder / "shards")
        self.problems = Problems()
        self.sequences = self.tokens = 0
        self.tokens_fingerprint = ""

    def settings(self) -> dict[str, Any]:
        """Everything that the tables depend on."""
        facts = self.analyzer.facts
        return {
            "experiments": {item.name: item.options() for item in self.experiments},
            "model": {name: facts[name] for name in ("model", "model_type", "revision", "fingerprint", "dtype")},
            "corpus": None if self.corpus is None else self.corpus.settings(),
            "corpus_fingerprint": None if self.corpus is None else self.corpus.fingerprint(),
            "tokens_fingerprint": self.tokens_fingerprint,
            "normscope": facts["normscope_version"],
            **self.own_settings,
        }

    def claim(self, *, overwrite: bool) -> None:
        self._survey()
        claim(self.folder, self.settings(), overwrite=overwrite)
        self.shards.prepare()

    def _survey(self) -> None:
        """Read the corpus through once: what is wrong with it shows now and not hours later, and the end is known."""
        if self.corpus is None or not self.needs_corpus:
            return
        self.problems = Problems(self.corpus.bad_rows)
        digest = hashlib.sha256()
        for item in self.corpus.items(self.analyzer.tokenizer, self.problems):
            self.sequences += 1
            self.tokens += item.length
            ids = [item.token_ids, *([] if item.target is None else [item.target.features["input_ids"]])]
            digest.update(repr([list(map(int, each)) for each in ids]).encode())
        self.tokens_fingerprint = digest.hexdigest()[:16]
        if not self.sequences:
            found = ", ".join(f"{count} x {kind}" for kind, count in self.problems.counts.items()) or "it is empty"
            raise CorpusError(f"The corpus {self.corpus.path!r} has no sequence that can be used ({found}).")

    @property
    def _shard_count(self) -> int:
        return -(-self.sequences // int(self.own_settings["shard_size"]))

    def _missing(self) -> Iterator[Shard]:
        """The shards that are not there yet, with their sequences."""
        assert self.corpus is not None
        size = int(self.own_settings["shard_size"])
        gathered: Shard = (0, [])
        for number, item in enumerate(self.corpus.items(self.analyzer.tokenizer, Problems(self.corpus.bad_rows))):
            index = number // size
            if index != gathered[0]:
                if gathered[1]:
                    yield gathered
                gathered = (index, [])
            if not self.shards.done(index):
                gathered[1].append(item)
        if gathered[1]:
            yield gathered

    def compute(self, source: dict[str, Any] | None, jobs: int, *, progress: bool | None) -> None:
        if not self.needs_corpus:
            return
        if jobs > 1 and source is None:
            raise InputError("Several processes each load the model: name it (or its folder) instead of passing it.")
        threads = threads_for(jobs)
        work = Work(source or {}, self.plan, self.shards, threads)
        size = int(self.own_settings["shard_size"])
        done = sum(
            min(size, self.sequences - index * size) for index in range(self._shard_count) if self.shards.done(index)
        )
        if done == self.sequences:
            return
        shards = self._missing()
        counts = compute_here(self.analyzer, work, shards) if jobs == 1 else compute_in_processes(work, shards, jobs)
        try:
            for count in shown(counts, total=self.sequences, done=done, progress=progress):
                done += count
        except KeyboardInterrupt as error:
            raise RunInterrupted(
                f"Interrupted: {done} of {self.sequences} sequences are done and kept in {str(self.folder)!r}. "
                f"The same command goes on from there."
            ) from error

    def finish(self) -> dict[str, Outcome]:
        """Merge all shards in their order, and finish every experiment."""
        read = [self.shards.read(index) for index in range(self._shard_count)]
        self.completeness = merged(shard.get(COMPLETENESS, Partial()) for shard in read)
        facts = RunFacts(self.facts, self._corpus_of_papers(), self.seed, self.ranks)
        outcomes: dict[str, Outcome] = {}
        for item in self.experiments:
            partial = merged([item.from_model(self.analyzer), *(shard.get(item.name, Partial()) for shard in read)])
            outcomes[item.name] = item.finish(partial, facts)
        return outcomes

    def _corpus_of_papers(self) -> str:
        stated = str(self.own_settings["corpus_name"])
        if not stated and isinstance(self.corpus, Corpus) and self.corpus.found_format == "clark":
            return "wikipedia" if self.sequences == _CLARK_SEQUENCES else ""
        return stated

    def manifest(self, outcomes: Mapping[str, Outcome], seconds: float, *, written: bool) -> dict[str, Any]:
        worst = self.completeness.moments.get("worst")
        manifest = {
            "settings": self.settings(),
            "model": self.analyzer.facts,
            "sequences": self.sequences,
            "tokens": self.tokens,
            "rows_left_out_or_changed": self.problems.counts,
            "problems": self.problems.examples,
            "worst_completeness_error": None if worst is None else float(worst.maximum()),
            "masked": self.plan.mask_id is not None and any(needs.masked for needs, _ in self.plan.forms()),
            "threads": torch.get_num_threads(),
            "seconds": round(seconds, 1),
            "experiments": {},
        }
        for name, outcome in outcomes.items():
            written_names = output.write_outcome(self.folder, outcome) if written else {}
            manifest["experiments"][name] = {
                **written_names,
                "columns": dict(experiment_columns(self.experiments, name)),
            }
        if written:
            output.write_manifest(self.folder, manifest)
        return manifest


def experiment_columns(experiments: Sequence[Experiment], name: str) -> Mapping[str, str]:
    """What the columns of an experiment's tables mean."""
    return next(item.columns for item in experiments if item.name == name)
