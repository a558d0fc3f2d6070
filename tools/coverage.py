"""Which architectures of the installed transformers are analysed: tiny random models of every type, by the battery.

    python tools/coverage.py                        # all types; writes docs/architectures.md and the list of the package
    python tools/coverage.py --only llama,gpt2      # these types; prints, and writes nothing
    python tools/coverage.py --fresh                # do not continue an interrupted run
    python tools/coverage.py --again llama,gpt2     # keep what the last run found of all others: for a change of these alone

Each type runs in a process of its own with a time limit. An interrupted run continues where it was, unless the sources have
changed since. The exit code is 1 if anything is wrong or crashes, or if a type is neither described nor refused with a
reason in `normscope.families.refused`: a new release of transformers brings such types.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import resource
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import transformers
from architectures import page
from architectures.trial import Trial, classes_of, model_types, try_type
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

ROOT = Path(__file__).parents[1]
STATE = ROOT / "build" / "coverage.jsonl"
"""What an interrupted run has done: a line with the digest of the sources, then one for each type."""

Record = Callable[[str, list[Trial]], None]

SECONDS = 120
"""A type may take this much of the processor's time, and on a busy machine ten times as long."""

BYTES = 9 * 2**30
"""And this much address space: a model whose input cannot be made small must not take the machine down."""


def digest() -> str:
    """Of all that the outcome depends on."""
    sha = hashlib.sha256(transformers.__version__.encode())
    for folder in (ROOT / "src" / "normscope", ROOT / "tools" / "architectures"):
        for path in sorted(folder.rglob("*.py")):
            sha.update(path.read_bytes())
    return sha.hexdigest()[:16]


def done_before(fresh: bool, again: list[str] | None = None) -> dict[str, list[Trial]]:
    """What an interrupted run of the same sources found, or the last run of any, except of types to be tried `again`."""
    if fresh or not STATE.exists():
        return {}
    first, *lines = STATE.read_text(encoding="utf-8").splitlines()
    if first != digest() and again is None:
        return {}
    found: dict[str, list[Trial]] = {}
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was killed
            break
        found[entry["type"]] = [Trial(**trial) for trial in entry["trials"]]
    return {model_type: trials for model_type, trials in found.items() if model_type not in (again or ())}


def in_a_process(model_type: str) -> list[Trial]:
    """The trials of a type, in a process that cannot take the others down or hold them up."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(model_type, sender))
    process.start()
    sender.close()
    trials = None
    try:
        if receiver.poll(10 * SECONDS):
            trials = receiver.recv()
        reason = f"took more than {10 * SECONDS} s"
    except EOFError:
        reason = f"the process died, or took more than {SECONDS} s of the processor's time"
    finally:
        process.kill()
        process.join()
    if trials is None:
        return [Trial(name, task, "crashed", reason=reason) for task, name in classes_of(model_type).items()]
    return trials


def _send(model_type: str, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        sender.send(try_type(model_type))


def run(types: list[str], found: dict[str, list[Trial]], record: Record) -> dict[str, list[Trial]]:
    """Try what was not tried before."""
    columns = (TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=len(types))
        for model_type in types:
            bar.update(task, description=model_type)
            if model_type not in found:
                found[model_type] = in_a_process(model_type)
                record(model_type, found[model_type])
            bar.advance(task)
    return {model_type: found[model_type] for model_type in types}


def recorder(found: dict[str, list[Trial]]) -> Record:
    """Writes every type down as soon as it was tried."""
    STATE.parent.mkdir(exist_ok=True)

    def line(model_type: str, trials: list[Trial]) -> str:
        return json.dumps({"type": model_type, "trials": [asdict(trial) for trial in trials]}) + "\n"

    STATE.write_text(digest() + "\n" + "".join(line(*entry) for entry in found.items()), encoding="utf-8")

    def record(model_type: str, trials: list[Trial]) -> None:
        with STATE.open("a", encoding="utf-8") as file:
            file.write(line(model_type, trials))

    return record


def _forget(model_type: str, trials: list[Trial]) -> None:
    """Some types alone are tried anew every time."""


def main() -> int:
    """Try the types, print what came of them, and write the page; the exit code is 1 if something has to be mended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="types, separated by commas (default all)")
    parser.add_argument("--again", help="types, separated by commas, to be tried again after a run of all")
    parser.add_argument("--fresh", action="store_true", help="do not continue an interrupted run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    torch.set_num_threads(1)
    if options.only:
        results = run(options.only.split(","), {}, _forget)
        for model_type, trials in results.items():
            for trial in trials:
                print(f"{model_type:28} {page.line(trial)}")
        return int(bool(page.faults(results)))
    found = done_before(options.fresh, options.again.split(",") if options.again else None)
    results = run(model_types(), found, recorder(found))
    page.write(results)
    print(page.counts(results))
    faults = [*page.faults(results), *page.unknown(results)]
    print("\n".join(faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
