"""One run from its corpus to its manifest: surveyed, computed shard by shard, merged, finished, written.

Knows shards, processes and files; what is computed for a sequence is the experiments' concern.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from normscope.analyzer import Analyzer
from normscope.corpora import Corpus, CorpusError, Problems
from normscope.corpora.memory import TextList
from normscope.corpus_run import output
from normscope.corpus_run.progress import shown
from normscope.corpus_run.settings import claim
from normscope.corpus_run.shards import Shards
from normscope.corpus_run.workers import Shard, Work, compute_here, compute_in_processes, threads_for
from normscope.errors import InputError
from normscope.experiments import Experiment, ModelFacts, Outcome, Partial, RunFacts, merged
from normscope.experiments.observer import COMPLETENESS, Plan

Masking = Literal["paper", "all", "none"]

_CLARK_SEQUENCES = 992
"""How many sequences the Wikipedia excerpts of Clark et al. have: with their format, this is the papers' corpus."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C: finished shards are kept."""


class Job:
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
        manifest: dict[str, Any] = {
            "settings": self.settings(),
            "model": self.analyzer.facts,
            "sequences": self.sequences,
            "tokens": self.tokens,
            "rows_left_out_or_changed": self.problems.counts,
            "problems": self.problems.examples,
            "worst_completeness_error": None if worst is None else float(worst.maximum()[0]),
            "masked": self.plan.mask_id is not None and any(form.masked for form in self.plan.forms()),
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
