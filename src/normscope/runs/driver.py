"""Drives one run from its corpus to its outcomes.

The driver reads the corpus, passes shards to an engine, writes the results as they arrive, and merges them. What is computed
for a sequence is up to the experiments.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from normscope.analyzer import Analyzer
from normscope.corpora import Corpus, CorpusError, Item, Problems
from normscope.corpora.text import read_ranks
from normscope.corpora.tokenize import TOO_LONG
from normscope.errors import FileError, InputError, listing
from normscope.experiments import ModelFacts, Needs, Outcome, Partial, RunFacts
from normscope.experiments.base import Approximated
from normscope.experiments.faithfulness.base import Trial
from normscope.experiments.observer import APPROXIMATION, COMPLETENESS, Plan, check_ids, special_ids
from normscope.models.options import ModelOptions
from normscope.runs.engines import IDENTITY, ChangedModelError, Engine, Work, WorkerError
from normscope.runs.folder import RunFolder
from normscope.runs.settings import Settings
from normscope.runs.spool import Spool

_CLARK_SEQUENCES = 992
"""Number of sequences of the Wikipedia excerpts of Clark et al.: in their format, this is the papers' corpus."""


CANNOT = "cannot be explained"
"""How texts are counted that an experiment which runs the model cannot examine."""


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C: finished shards are kept."""


class Driver:
    """Drives one run."""

    def __init__(self, settings: Settings, analyzer: Analyzer, folder: RunFolder, spool: Spool) -> None:
        facts = analyzer.facts
        self.settings = replace(
            settings,
            model={name: facts[name] for name in IDENTITY},
            corpus=None if settings.corpus is None else settings.corpus.fitting(analyzer.longest),
        )
        self.analyzer = analyzer if settings.stack is None else analyzer.of_stack(settings.stack)
        self.folder, self.spool, self.shards = folder, spool, folder.shards
        self.facts = ModelFacts.of_analyzer(self.analyzer, settings.stack)
        for item in settings.experiments:
            item.check(self.analyzer)
        self.plan = plan_of(settings, analyzer, self.facts)
        self.needs = {item.name: item.needs(self.facts) for item in settings.experiments}
        self.problems = Problems()
        self.completeness = Partial()
        if self.needs_corpus and settings.corpus is None:
            raise InputError("These experiments need a corpus: name one (--corpus).")
        self.ranks = None if settings.ranks is None else read_ranks(settings.ranks)

    @property
    def needs_corpus(self) -> bool:
        return any(needs.corpus for needs in self.needs.values())

    @property
    def _needs_pairs(self) -> bool:
        """Whether a model with two stacks is given what its decoder reads by the corpus."""
        return not all(isinstance(item, Trial) and item.pairs_itself for item in self.settings.experiments)

    def prepare(self, *, overwrite: bool) -> dict[str, object]:
        """Read the corpus and claim the folder for this run; returns the record of its settings."""
        before = _stamps(self.settings.corpus)
        self._read_corpus()
        record = self.settings.record()
        if _stamps(self.settings.corpus) != before:
            raise CorpusError(
                f"The corpus {before[0][0]!r} changed while it was read. Run the same command again when nothing writes "
                f"to it any more."
            )
        self.folder.claim(record, overwrite=overwrite)
        return record

    def _read_corpus(self) -> None:
        """Read and tokenize the corpus, so that its errors are found before hours of work."""
        corpus = self.settings.corpus
        if corpus is None or not self.needs_corpus:
            return
        self.problems = Problems(corpus.bad_rows)
        items = corpus.items(self.analyzer.tokenizer, self.problems, special_ids(self.analyzer))
        self.spool.fill(self._checked(items))
        if not self.spool.sequences:
            reasons = ", ".join(f"{count} x {kind}" for kind, count in self.problems.counts.items()) or "it is empty"
            first = f" The first: {self.problems.examples[0]}" if self.problems.examples else ""
            raise CorpusError(f"The corpus {corpus.path!r} has no sequence that can be used ({reasons}).{first}")
        self.settings = replace(self.settings, tokens_fingerprint=self.spool.fingerprint)

    def _checked(self, items: Iterator[Item]) -> Iterator[Item]:
        """The sequences; the first that lacks what an experiment needs is an error."""
        for item in items:
            if self._needs_pairs and self.analyzer.family.encoder is not None and item.target is None:
                raise InputError(
                    f"{self.analyzer.name} is an encoder-decoder model: its corpus is sentence pairs (--format pairs). "
                    f"Its encoder alone reads any corpus (--stack encoder)."
                )
            check_ids(self.analyzer, item)
            for name, needs in self.needs.items():
                _check_item(name, needs, item)
            if self._is_usable(item):
                yield item

    def _is_usable(self, item: Item) -> bool:
        """Whether the experiments that run the model can examine a sequence; one that they cannot is a bad row."""
        for trial in self.settings.experiments:
            problem = trial.problem_of(self.analyzer, item) if isinstance(trial, Trial) else None
            if problem is not None:
                self.problems.bad_row(item.where, CANNOT, problem)
                return False
        return True

    def compute(self, engine: Engine, model: ModelOptions | None, *, progress: bool | None) -> None:
        """Compute and write the shards that are missing."""
        missing = [index for index in range(self.spool.shard_count) if not self.shards.done(index)]
        if not missing:
            return
        if self.shards.unsealed and progress is not False:
            Console(stderr=True, highlight=False).print(
                f"{listing(self.shards.unsealed)}: shards of an earlier version, without checksums, are computed again."
            )
        done = self.spool.sequences - sum(map(self.spool.sequences_of, missing))
        counts = self._written(engine, Work(self.plan, model, self.analyzer.facts, len(missing)))
        state = f"sequences are done and kept in {self.folder.name!r}. The same command resumes the run."
        try:
            for count in reported(counts, total=self.spool.sequences, done=done, progress=progress):
                done += count
        except KeyboardInterrupt as error:
            raise RunInterrupted(f"Interrupted: {done} of {self.spool.sequences} {state}") from error
        except (WorkerError, ChangedModelError, FileError) as error:
            raise type(error)(f"{error} {done} of {self.spool.sequences} {state}") from error

    def _written(self, engine: Engine, work: Work) -> Iterator[int]:
        """Write shards as the engine finishes them; yields the number of sequences of each."""
        for index, partials in engine.compute(work, self.spool.shards(lambda index: not self.shards.done(index))):
            if not self.shards.done(index):  # an engine may compute a shard twice
                self.shards.write(index, partials)
                yield self.spool.sequences_of(index)

    def finish(self) -> dict[str, Outcome]:
        """Merge the results of all shards, in their order, and finish every experiment."""
        totals = {item.name: item.from_model(self.analyzer) for item in self.settings.experiments}
        for partials in self.shards.read():
            totals = {name: total.merge(partials.get(name, Partial())) for name, total in totals.items()}
            self.completeness = self.completeness.merge(partials.get(COMPLETENESS, Partial()))
        facts = RunFacts(
            self.facts,
            self._corpus_of_papers(),
            self.settings.seed,
            self.ranks,
            self.spool.sequences,
            frozenset(name for name, needs in self.needs.items() if self.plan.masks(needs)),
            "" if self.settings.corpus is None else self.settings.corpus.path,
            self.approximated,
            "" if self.settings.corpus is None else self.settings.corpus.actual_format,
            self.spool.longest,
            sum(count for kind, count in self.problems.counts.items() if kind.startswith(TOO_LONG)),
            self.settings.conventions,
        )
        return {item.name: item.conclude(totals[item.name], facts) for item in self.settings.experiments}

    @property
    def approximated(self) -> Approximated | None:
        """How the maps of all sequences were approximated, and how far they are off."""
        worst = self.completeness.moments.get(APPROXIMATION)
        if self.settings.approximate is None or worst is None:
            return None
        missed, error = worst.maximum()
        return Approximated(self.settings.approximate, float(1 - missed), float(error))

    def _corpus_of_papers(self) -> str:
        corpus, stated = self.settings.corpus, self.settings.corpus_name
        if not stated and corpus is not None and corpus.actual_format == "clark":
            return "wikipedia" if self.spool.sequences == _CLARK_SEQUENCES else ""
        return stated


def _stamps(corpus: Corpus | None) -> list[tuple[str, int, int]]:
    """The files of a corpus, with the time of their last change and their size."""
    paths = [Path(name) for name in (corpus.path, corpus.gold) if name] if corpus is not None else []
    return [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in paths if path.is_file()]


def plan_of(settings: Settings, analyzer: Analyzer, facts: ModelFacts) -> Plan:
    """The plan for every sequence."""
    mask_id = getattr(analyzer.tokenizer, "mask_token_id", None)
    if settings.masking == "all" and mask_id is None:
        raise InputError(
            f"{analyzer.name} has no mask token: nothing can be masked. Use masking='none' (--masking none)."
        )
    return Plan(
        settings.experiments,
        facts,
        mask_id,
        str(getattr(analyzer.tokenizer, "mask_token", "")),
        settings,
    )


def _check_item(name: str, needs: Needs, item: Item) -> None:
    if needs.labels and item.entities is None:
        raise InputError(
            f"{name} needs entity labels, and {item.where} has none: give a corpus in CoNLL columns (--format conll)."
        )
    if needs.gold and item.gold is None:
        raise InputError(
            f"{name} needs sentence pairs with gold links, and {item.where} has none: "
            f"--corpus pairs.src-tgt --gold pairs.gold."
        )
    if needs.evidence and item.evidence is None:
        raise InputError(
            f"{name} needs rows of prefix, good, bad and evidence, and {item.where} is not one: give a CSV file with these "
            f"columns, or a folder of them (--format evidence)."
        )
    if needs.compared and item.compared is None:
        raise InputError(
            f"{name} needs pairs of texts to compare, and {item.where} is not one: give a TSV, CSV or Parquet file with the "
            f"columns first and second (--format text-pairs)."
        )
    if needs.asked and item.asked is None:
        raise InputError(
            f"{name} needs questions about sentences, and {item.where} is not one: give a JSONL file with the fields "
            f"sentences, question, answer and evidence (--format answers)."
        )


# ---- progress on standard error: a terminal has a bar, a log file has a line now and then -------------------------------


_SECONDS_BETWEEN_LINES = 30


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} sequences/s", style="progress.data.speed")


def reported(counts: Iterable[int], *, total: int, done: int, progress: bool | None) -> Iterator[int]:
    """Passes on counts of finished sequences, with a progress bar if requested and standard error can show it."""
    if progress is None and not sys.stderr.isatty():
        return _printed(counts, total, done)
    return _bar(counts, total, done, visible=progress is not False)


def _printed(counts: Iterable[int], total: int, done: int) -> Iterator[int]:
    start = last = time.monotonic()
    now_done = done
    for count in counts:
        now_done += count
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES and now_done < total:
            rate, last = (now_done - done) / (now - start), now
            left = f", about {(total - now_done) / rate / 60:.1f} minutes left" if rate else ""
            print(f"Analysed {now_done} of {total} sequences{left}.", file=sys.stderr, flush=True)
        yield count


def _bar(counts: Iterable[int], total: int, done: int, *, visible: bool) -> Iterator[int]:
    columns = (
        TextColumn("Analysing"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TextColumn("time left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not visible, transient=True) as bar:
        task = bar.add_task("", total=total, completed=done)
        for count in counts:
            bar.advance(task, count)
            yield count
