"""Statistics of made-up token pairs: time, memory and disk of merging them shard by shard, and of the tables at the end.

Pairs of types are drawn as words are in texts (frequency by 1 / rank), with a change for each of six layers. Nothing is
analysed: only what happens to the results is measured.

    python benchmarks/pairs.py --pairs 20000000
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from normscope.experiments.amplification import UNIT, FeedForwardAmplification
from normscope.experiments.base import ModelFacts, RunFacts
from normscope.experiments.partial import Partial, Rows, merged
from normscope.runs.shards import Shards
from normscope.scopes import Scope

LAYERS = tuple(range(1, 7))
VOCABULARY = 30_000
SCOPES = tuple(map(Scope, ("Attn", "AttnRes", "AttnResLn", "AttnResLnFf", "AttnResLnFfRes", "AttnResLnFfResLn")))


def made_up(count: int, seed: int) -> Partial:
    """What a shard adds, before rows of equal keys are summed."""
    chance = np.random.default_rng(seed)
    types = np.exp(chance.random((2, count)) * np.log(VOCABULARY)).astype(np.int64)
    changes = np.rint(chance.normal(scale=1e-3, size=(len(LAYERS), count)) * UNIT).astype(np.int64)
    columns = {"query": types[0], "key": types[1], "occurrences": np.ones(count, np.int64)}
    pairs = pa.table(columns | {f"ff_{layer}": change for layer, change in zip(LAYERS, changes, strict=True)})
    seen = np.unique(types)
    vocabulary = pa.table(
        {"type": seen, "token": [f"type-{number}" for number in seen], "occurrences": np.ones_like(seen)}
    )
    return Partial(
        rows={
            "pairs": Rows((pairs,), keys=("query", "key")),
            "vocabulary": Rows((vocabulary,), keys=("type", "token")),
        }
    )


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=20_000_000, help="pairs of positions (20000000)")
    parser.add_argument("--shard", type=int, default=1_000_000, help="pairs in a shard (1000000)")
    options = parser.parse_args()
    experiment = FeedForwardAmplification(kinds=("ff",))
    facts = RunFacts(ModelFacts("made-up", LAYERS, SCOPES))
    with tempfile.TemporaryDirectory(prefix="normscope-pairs-") as folder:
        shards = Shards(Path(folder))
        shards.prepare("")
        before, seconds, longest, cpu = megabytes(), 0.0, 0.0, 0.0
        for index in range(-(-options.pairs // options.shard)):
            partial = made_up(options.shard, index).compacted()
            started, busy = time.monotonic(), time.process_time()
            shards.write(index, {experiment.name: partial})
            taken = time.monotonic() - started
            seconds, longest, cpu = seconds + taken, max(longest, taken), cpu + time.process_time() - busy
        written = megabytes()
        disk = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 2**20
        started, busy = time.monotonic(), time.process_time()
        outcome = experiment.finish(merged(partials[experiment.name] for partials in shards.read()), facts)
        last, last_cpu = time.monotonic() - started, time.process_time() - busy
        (totals,) = outcome.tables["ff-amplification-totals"].to_pylist()
    print(f"{totals['pairs']:,} pairs of {totals['types_of_pairs']:,} pairs of types, {disk:,.0f} MB on disk")
    print(f"written and merged in {seconds:.0f} s ({cpu:.0f} s of CPU), the longest step {longest:.0f} s")
    print(f"tables in {last:.0f} s ({last_cpu:.0f} s of CPU)")
    print(f"peak memory: {before:,.0f} MB with one shard, {written:,.0f} MB merging, {megabytes():,.0f} MB at the end")


if __name__ == "__main__":
    main()
