"""Made-up questions about made-up people, for trying out what finds the sentence that an answer is from.

Rows of the format `answers`, of five kinds. No model can have read these facts before, and where the evidence stands is
known by how a row is made. The same seed gives the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Literal, TypedDict, get_args

from normscope.errors import InputError, listing

FactKind = Literal["plain", "twice", "joined", "distraction", "absent"]
"""The difficulty of a row: none; the value belongs to two people; two sentences have to be joined; the evidence is in the
middle of many other sentences; no sentence has the answer."""

KINDS: tuple[FactKind, ...] = get_args(FactKind)

DISTRACTIONS = 130
"""Sentences around the facts of a row of the kind `distraction`: about 2,000 tokens."""

_NAMES = (
    *("Amara", "Bruno", "Chiara", "Dorte", "Emil", "Farida", "Goran", "Hana", "Ingrid", "Jonas", "Kaito", "Leila"),
    *("Mirko", "Nadia", "Otto", "Paloma", "Quentin", "Rosa", "Stefan", "Tuva"),
)
_QUESTIONS = {
    "city": "In which city does {} live?",
    "job": "What is {}'s job?",
    "pet": "What is the name of {}'s dog?",
    "thing": "What did {} buy last week?",
}
_FACTS = {
    "city": "{} lives in {}.",
    "job": "{} works as a {}.",
    "pet": "{} has a dog called {}.",
    "thing": "{} bought a {} last week.",
}
_VALUES = {
    "city": ("Aarhus", "Bergen", "Cadiz", "Dresden", "Graz", "Leeds", "Malmo", "Nantes", "Quito", "Turin"),
    "job": ("baker", "beekeeper", "carpenter", "dentist", "geologist", "librarian", "plumber", "tailor"),
    "pet": ("Bandit", "Clover", "Domino", "Ginger", "Pepper", "Rocket", "Shadow", "Waffle"),
    "thing": ("blue lamp", "brass clock", "leather bag", "red kayak", "silver flute", "wooden chair", "wool blanket"),
}
_THINGS = (
    "bridge",
    "museum",
    "harbour",
    "garden",
    "library",
    "station",
    "market",
    "tower",
    "school",
    "theatre",
    "mill",
)
_LOOKS = ("old", "small", "narrow", "quiet", "empty", "large", "famous", "modern", "yellow", "wooden")
_EVENTS = ("was painted again", "was closed for repairs", "opened its doors", "was full of visitors", "lost its roof")
_TIMES = ("in early spring", "during the storm", "on a cold morning", "after the long holiday", "late in the autumn")


class FactRow(TypedDict):
    """A row as the format `answers` has it."""

    sentences: list[str]
    question: str
    answer: str
    evidence: list[int]
    set: str


def facts(kind: FactKind, count: int, *, seed: int = 0) -> list[FactRow]:
    """Rows of one kind.

    Examples:
        >>> from normscope.corpora.facts import facts
        >>> (row,) = facts("twice", 1)
        >>> sum(row["answer"] in sentence for sentence in row["sentences"]), len(row["evidence"])
        (2, 1)
    """
    if kind not in KINDS:
        raise InputError(f"The kinds of made-up facts are {listing(KINDS)}, not {kind!r:.40}.")
    return [_MAKERS[kind](Random(f"{kind} {seed} {number}")) for number in range(count)]


def write_facts(path: Path | str, kinds: Sequence[FactKind] = KINDS, *, count: int = 20, seed: int = 0) -> None:
    """A file of rows, `count` of each kind, to be read with `--format answers`."""
    rows = [row for kind in kinds for row in facts(kind, count, seed=seed)]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


Fact = tuple[str, str, str]
"""A person, what is said about them, and its value."""


def _said(fact: Fact) -> str:
    name, about, value = fact
    return _FACTS[about].format(name, value)


def _people(chance: Random, count: int = 4) -> list[Fact]:
    """Two facts about each of some people; no value occurs twice."""
    values = {about: chance.sample(several, len(several)) for about, several in _VALUES.items()}
    return [
        (name, about, values[about].pop())
        for name in chance.sample(_NAMES, count)
        for about in chance.sample(list(_FACTS), 2)
    ]


def _row(kind: FactKind, sentences: list[str], asked: tuple[str, str], evidence: Sequence[str], answer: str) -> FactRow:
    name, about = asked
    places = sorted(sentences.index(each) for each in evidence)
    question = _QUESTIONS[about].format(name)
    return FactRow(sentences=sentences, question=question, answer=answer, evidence=places, set=kind)


def _plain(chance: Random) -> FactRow:
    known = _people(chance)
    name, about, value = fact = chance.choice(known)
    sentences = chance.sample([_said(each) for each in known], len(known))
    return _row("plain", sentences, (name, about), [_said(fact)], value)


def _twice(chance: Random) -> FactRow:
    """A question about one person, with the same fact about another."""
    known = _people(chance)
    name, about, value = fact = chance.choice(known)
    others = [each for each in known if each[0] != name and each[1] == about]
    other = others[0] if others else next(each for each in known if each[0] != name)
    changed = [(each[0], about, value) if each == other else each for each in known]
    sentences = chance.sample([_said(each) for each in changed], len(changed))
    return _row("twice", sentences, (name, about), [_said(fact)], value)


def _joined(chance: Random) -> FactRow:
    """One lives where another lives."""
    names = chance.sample(_NAMES, 5)
    cities = chance.sample(_VALUES["city"], 3)
    first, second, *rest = names
    link, place = f"{first} lives with {second}.", _said((second, "city", cities[0]))
    jobs = chance.sample(_VALUES["job"], 3)
    others = [_said((rest[0], "city", cities[1])), _said((rest[1], "city", cities[2]))]
    others += [_said((name, "job", job)) for name, job in zip(rest, jobs, strict=True)]
    others.append(f"{rest[2]} lives with {rest[0]}.")
    sentences = chance.sample([link, place, *others], 2 + len(others))
    return _row("joined", sentences, (first, "city"), [link, place], cities[0])


def _distraction(chance: Random) -> FactRow:
    known = _people(chance, 2)
    name, about, value = fact = chance.choice(known)
    every = [
        f"The {look} {thing} {event} {time}."
        for look in _LOOKS
        for thing in _THINGS
        for event in _EVENTS
        for time in _TIMES
    ]
    others = chance.sample(every, DISTRACTIONS)
    middle = chance.sample([_said(each) for each in known], len(known))
    half = DISTRACTIONS // 2
    return _row("distraction", [*others[:half], *middle, *others[half:]], (name, about), [_said(fact)], value)


def _absent(chance: Random) -> FactRow:
    """No sentence is about the person in question, and the given answer is in none."""
    row = _plain(chance)
    stranger = chance.choice([name for name in _NAMES if not any(name in sentence for sentence in row["sentences"])])
    about = chance.choice(list(_QUESTIONS))
    answer = chance.choice([value for value in _VALUES[about] if not any(value in each for each in row["sentences"])])
    return _row("absent", row["sentences"], (stranger, about), [], answer)


_MAKERS: dict[FactKind, Callable[[Random], FactRow]] = {
    "plain": _plain,
    "twice": _twice,
    "joined": _joined,
    "distraction": _distraction,
    "absent": _absent,
}
