"""Fuzz normscope: argument vectors, calls, files, model folders, corpora and run folders, drawn by hypothesis.

Whatever is drawn must end in a result that is right, or in a refusal that says why (`tools/fuzzing/targets.py` has what
that means for each target). Bounded by attempts and by seconds; the same seed draws the same attempts.

    python tools/fuzz.py --attempts 500 --seconds 300
    python tools/fuzz.py --only files --seed 7
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing import samples
from fuzzing.attempts import Fooled, World, attempt
from fuzzing.targets import TARGETS
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from rich.console import Console
from rich.progress import Progress

from normscope.cli import console as session

__all__ = ["Fooled", "attempt", "fuzz"]

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
BEGIN, END = "<!-- fuzz -->", "<!-- /fuzz -->"


class TimeUp(BaseException):
    """Ends a target when its seconds are over."""


@dataclass
class Report:
    """What became of the attempts of a target."""

    target: str
    outcomes: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def row(self) -> list[str]:
        attempts = sum(self.outcomes.values())
        numbers = [attempts, self.outcomes["done"], self.outcomes["refused"], len(self.failures)]
        return [self.target, *map(str, numbers), f"{self.seconds:.0f}"]


def fuzz(target: str, world: World, attempts: int, seconds: float, number: int) -> Report:
    """Run a target until its attempts or its seconds are over, or until it is fooled."""
    report = Report(target)
    started = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(target, total=attempts)

        @seed(number)
        @settings(
            max_examples=attempts,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        )
        @given(st.data())
        def draws(data: st.DataObject) -> None:
            if time.monotonic() - started > seconds:
                raise TimeUp
            try:
                report.outcomes[TARGETS[target](world, data.draw)] += 1
            except Fooled as error:
                report.failures = [str(error)]  # the last is the simplest
                raise
            bar.advance(task)

        try:
            draws()
        except (TimeUp, Flaky):  # hypothesis calls an attempt flaky that time ended when it was repeated
            pass
        except BaseExceptionGroup as group:
            report.failures = [str(each) for each in group.exceptions]
        except Fooled:
            pass
    report.seconds = time.monotonic() - started
    return report


def table(reports: list[Report], number: int) -> str:
    """What was tried, as the page shows it."""
    head = ["target", "attempts", "with a result", "refused", "fooled", "seconds"]
    rows = [head, ["---"] * len(head), *(report.row for report in reports)]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{BEGIN}\nSeed {number}:\n\n{lines}\n{END}"


def write_page(text: str) -> None:
    """Put the table into the documentation."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: text, page, flags=re.DOTALL), encoding="utf-8")


def main() -> int:
    """Fuzz, and say what was found; the exit code is 1 if anything was fooled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=300, help="attempts of each target (default 300)")
    parser.add_argument("--seconds", type=float, default=120, help="seconds for each target (default 120)")
    parser.add_argument("--seed", type=int, default=0, help="what the attempts are drawn from (default 0)")
    parser.add_argument("--only", choices=sorted(TARGETS), action="append", help="these targets (default all)")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    session.quiet()
    with tempfile.TemporaryDirectory(prefix="normscope-fuzz-") as folder:
        world = World(samples.make(Path(folder, "samples")), Path(folder, "attempt"))
        reports = [
            fuzz(target, world, options.attempts, options.seconds, options.seed)
            for target in options.only or list(TARGETS)
        ]
    text = table(reports, options.seed)
    print(text.removeprefix(BEGIN).removesuffix(END).strip())
    for report in reports:
        for failure in report.failures:
            print(f"\n{report.target} was fooled: {failure}")
    if options.write:
        write_page(text)
    return int(any(report.failures for report in reports))


if __name__ == "__main__":
    sys.exit(main())
