"""Counts, seeds and names that nobody can mean, or no disk can have: refused in a sentence, before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from normscope.cli.checks import check_corpus, check_counts, check_folder
from normscope.corpora import Corpus, CorpusError, Problems
from normscope.errors import FileError, InputError
from normscope.experiments import experiment
from normscope.experiments.observer import Plan
from normscope.paths import refuse_unfinished
from normscope.runs import run
from normscope.runs.engines import Work
from normscope.runs.folder import locked_folder
from normscope.runs.settings import Settings
from normscope.runs.spool import Spool

HUGE = 10**40
LONG = "x" * 300


def test_more_processes_than_a_machine_can_have_are_refused() -> None:
    with pytest.raises(InputError, match=f"--jobs is at most 1024, not {HUGE}"):
        check_counts(jobs=HUGE, shard_size=1)
    with pytest.raises(InputError, match=f"jobs is at most 1024, not {HUGE}"):
        run(["mixing-ratio"], corpus=["It rained."], jobs=HUGE)


def test_there_are_no_more_workers_than_shards() -> None:
    plan = object.__new__(Plan)  # not looked at
    assert [Work(plan, None, shards=count).most_workers(8) for count in (None, 3, 0)] == [8, 3, 1]


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed is at least 0, not -1"):
        Settings((experiment("mixing-ratio", None),), seed=-1)


def test_a_limit_or_a_shard_beyond_all_numbers_is_the_whole_corpus(analyzer: Any, tmp_path: Path) -> None:
    items = list(Corpus.of_texts(["It rained.", "It snowed."], {"limit": HUGE}).items(analyzer.tokenizer, Problems()))
    with (tmp_path / "spool").open("w+b") as file:
        spool = Spool(file, HUGE)
        spool.fill(items)
        assert (spool.shard_count, spool.sequences_of(0)) == (1, 2)


def test_a_folder_whose_name_is_too_long_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written: File name too long"):
        check_folder(str(tmp_path / LONG))
    for path in (tmp_path / LONG, tmp_path / "new" / LONG / "run"):
        with pytest.raises(FileError, match=r"cannot be \w+: File name too long"), locked_folder(path):
            pass
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileError, match="cannot be read: File name too long"):
        refuse_unfinished(tmp_path / LONG)


def test_names_of_corpus_files_that_are_too_long_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("It rained.\n", encoding="utf-8")
    corpus = str(tmp_path / "a.txt")
    for asked in ((corpus, {"gold": LONG}, None), (corpus, {}, Path(LONG)), (LONG, {}, None)):
        with pytest.raises((FileError, CorpusError), match=r"'x+' cannot be read: File name too long"):
            check_corpus(["mixing-ratio"], *asked)
