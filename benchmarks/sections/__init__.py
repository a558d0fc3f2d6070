"""The sections of the benchmarks, by their names, in the order in which they are run."""

from measuring import Section

from sections import (
    accuracy,
    answers,
    approximate,
    corpus,
    engine,
    evidence,
    explain,
    lengths,
    memory,
    peers,
    planner,
    redraw,
    shares,
    similarity,
    start_up,
    workers,
)

SECTIONS: dict[str, Section] = {
    "engine": engine.SECTION,
    "profile": shares.SECTION,
    "explain": explain.SECTION,
    "lengths": lengths.SECTION,
    "similarity": similarity.SECTION,
    "answers": answers.SECTION,
    "evidence": evidence.SECTION,
    "approximate": approximate.SECTION,
    "accuracy": accuracy.SECTION,
    "memory": memory.SECTION,
    "planner": planner.SECTION,
    "corpus": corpus.SECTION,
    "workers": workers.SECTION,
    "redraw": redraw.SECTION,
    "start-up": start_up.SECTION,
    "peers": peers.SECTION,
}
