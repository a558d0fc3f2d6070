"""How much the statistics of the experiments add to the analysis itself: at most 30 % is allowed.

    python benchmarks/experiment_statistics.py [SEQUENCES] [TOKENS]

Analyses packed sequences of the bundled text with the embedded model for all experiments that encoders have, and times the
analysis (maps, head maps, statistics of traces) apart from what the experiments make of it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import normscope
from normscope.corpora import Corpus, Problems, bundled
from normscope.experiments import EXPERIMENTS, ModelFacts, Observation, experiment
from normscope.experiments import observer as seam
from normscope.experiments.partial import Partial

ALLOWED = 0.30

OF_TEXT = (
    *("dispersion", "categories", "weight-vs-norm", "frequency", "mixing-ratio", "mixing-frequency"),
    *("scope-similarity", "ff-amplification", "word-split", "ff-norms", "outlier-dimensions"),
)
"""The experiments that plain text is enough for."""


def main(sequences: int, tokens: int) -> int:
    """Print a table; the exit code says whether the statistics stay within their share."""
    analyzer = normscope.load()
    model = ModelFacts.of_analyzer(analyzer)
    names = [name for name in OF_TEXT if name in EXPERIMENTS]
    chosen = tuple(experiment(name) for name in names)
    corpus = Corpus(str(bundled()), unit="packed", max_tokens=tokens, limit=sequences)
    items = list(corpus.items(analyzer.tokenizer, Problems()))
    plan = seam.Plan(chosen, model, analyzer.tokenizer.mask_token_id, "[MASK]", 0)
    spent = dict.fromkeys(names, 0.0)
    started = time.perf_counter()
    timed = tuple(_timed(each, spent) for each in chosen)
    seam.observe(analyzer, replace(plan, experiments=timed), items)
    whole = time.perf_counter() - started
    analysis = whole - sum(spent.values())
    print(f"{len(items)} sequences of {tokens} tokens: analysis {analysis:.2f} s")
    for name, seconds in sorted(spent.items(), key=lambda pair: -pair[1]):
        print(f"  {name:20} {seconds:7.3f} s  {100 * seconds / analysis:5.1f} %")
    share = sum(spent.values()) / analysis
    print(f"all statistics together: {100 * share:.1f} % (allowed: {100 * ALLOWED:.0f} %)")
    return int(share > ALLOWED)


def _timed(each: seam.Experiment, spent: dict[str, float]) -> seam.Experiment:
    """The same experiment with its `observe` timed."""

    class Timed(type(each)):
        def observe(self, observation: Observation, model: ModelFacts) -> Partial:
            started = time.perf_counter()
            partial = super().observe(observation, model)
            spent[each.name] += time.perf_counter() - started
            return partial

    return Timed(**each.options())


if __name__ == "__main__":
    sys.exit(main(*(int(argument) for argument in sys.argv[1:3] or ("4", "128"))))
