"""Which sentence an answer is from: the pull-back, FlashTrace and ContextCite on the same made-up questions, and what an
answer of any length takes. What is not installed says so.

All explain the same tokens of the same answer after the same prompt. FlashTrace and ContextCite are used as they come, with
their own defaults; a share of a sentence is the sum over its tokens.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from measuring import Column, Row, Section, forward, spent

import normscope as ns
from normscope.corpora.answers import asked_sentences
from normscope.corpora.facts import FactKind, facts
from normscope.errors import NormscopeError
from normscope.experiments.faithfulness.answers import OBJECTIVES, falls_of_top, of_sentences, ranks_of
from normscope.experiments.faithfulness.asked import AskedModel
from normscope.explain.pulling import PullRequest
from normscope.explain.spans import pull_back_spans
from normscope.options import Objective

MODEL = "smollm2"
KINDS: tuple[FactKind, ...] = ("plain", "twice")
LENGTHS = (4, 32, 128)
"""Tokens of an answer whose explanation is timed."""

Scores = Callable[[AskedModel], np.ndarray]
"""What a tool gives the sentences of a question."""


def rows(quick: bool) -> Iterator[Row]:
    try:
        analyzer = ns.load(MODEL)
    except NormscopeError as error:
        yield {"what": MODEL, "note": str(error)[:80]}
        return
    tools, missing = _tools(analyzer)
    questions = [
        AskedModel(analyzer, asked_sentences(row, row["set"]), own=False)
        for kind in KINDS
        for row in facts(kind, 1 if quick else 8)
    ]
    for name, (scores, calls) in tools.items():
        yield _found(name, scores, calls, questions)
    yield from missing
    yield from _lengths(analyzer, questions[0], LENGTHS[:1] if quick else LENGTHS)


def _found(name: str, scores: Scores, calls: int, questions: Sequence[AskedModel]) -> Row:
    """What a tool finds, and the seconds that it takes for a question, on average."""
    found: dict[str, list[float]] = {}
    seconds = 0.0
    for question in questions:
        started = time.process_time()
        values = scores(question)
        seconds += time.process_time() - started
        measured = ranks_of(values, question.asked.evidence) | falls_of_top(question, values)
        for measure, value in measured.items():
            found.setdefault(measure, []).append(value)
    means = {measure: float(np.mean(values)) for measure, values in found.items()}
    return {"what": name, "questions": len(questions), "calls": calls, "seconds": seconds / len(questions), **means}


# ---- tools -------------------------------------------------------------------------------------------------------------


def _tools(analyzer: ns.Analyzer) -> tuple[dict[str, tuple[Scores, int]], list[Row]]:
    """Tools by name with the passes of the model that one question takes, and those that are missing."""
    tools: dict[str, tuple[Scores, int]] = {}
    for objective in OBJECTIVES:
        tools[f"explain_answer, {objective}"] = (lambda asked, objective=objective: _pulled(asked, objective), 2)
    missing: list[Row] = []
    for package, label, scores, calls in (
        ("flashtrace", "FlashTrace", _flashtrace, 1),
        ("context-cite", "ContextCite", _context_cite, 64),
    ):
        try:
            tools[f"{label} {version(package)}"] = (scores, calls)
            import_module(package.replace("-", "_"))
        except PackageNotFoundError:
            missing.append({"what": label, "note": "not installed (make bench installs it)"})
        except ImportError as error:
            del tools[f"{label} {version(package)}"]
            missing.append({"what": label, "note": f"cannot be imported: {error}"[:80]})
    return tools, missing


def _summed(question: AskedModel, shares: np.ndarray) -> np.ndarray:
    owners = question.sentence_of_tokens()[: len(shares)]
    return of_sentences(shares, owners, len(question.asked.sentences), "sum")


def _pulled(question: AskedModel, objective: Objective) -> np.ndarray:
    spans = [list(range(len(question.outputs)))]
    pulled = pull_back_spans(question.analyzer, question.sequence, question.outputs, spans, objective, PullRequest())
    return _summed(question, pulled.shares[0].double().numpy())


def _flashtrace(question: AskedModel) -> np.ndarray:
    return _summed(question, _traced(question.analyzer, question.prompt.text, question.asked.answer, question.part))


def _traced(analyzer: ns.Analyzer, prompt: str, answer: str, part: Sequence[int]) -> np.ndarray:
    """FlashTrace's shares of the tokens of a prompt. It looks at the model's attention weights, so they are computed."""
    flashtrace: Any = import_module("flashtrace")  # only where it is installed
    model: Any = analyzer.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        tracer = flashtrace.FlashTrace(model, analyzer.tokenizer)
        with contextlib.redirect_stderr(io.StringIO()):
            traced = tracer.trace(prompt=prompt, target=answer, output_span=(part[0], part[-1]))
    finally:
        model.set_attn_implementation(before)
    return np.asarray(traced.scores)


def _context_cite(question: AskedModel) -> np.ndarray:
    """ContextCite's scores of the sentences, 64 ablations; told the sentences and the answer, which it would find itself."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        package: Any = import_module("context_cite")  # only where it is installed
        partitioner: Any = import_module("context_cite.context_partitioner")
        sentences = list(question.asked.sentences)
        partition = partitioner.SimpleContextPartitioner(" ".join(sentences))
        partition._cache.update(parts=sentences, separators=["", *[" "] * (len(sentences) - 1)])
        citer = package.ContextCiter(
            *(question.analyzer.model, question.tokenizer, " ".join(sentences), question.asked.question),
            partitioner=partition,
            prompt_template="{context}\n\n{query}",
        )
        citer._cache["output"] = question.exchange.text
        return np.asarray(citer.get_attributions(verbose=False))


# ---- answers of any length ---------------------------------------------------------------------------------------------


def _lengths(analyzer: ns.Analyzer, question: AskedModel, lengths: Sequence[int]) -> Iterator[Row]:
    """Seconds for an answer of so many tokens, here the question's own sentences again and again, explained as a whole."""
    text = " ".join(question.asked.sentences * 8)
    assert analyzer.tokenizer is not None
    ids: list[int] = analyzer.tokenizer(text, add_special_tokens=False)["input_ids"]
    for length in lengths:
        answer = str(analyzer.tokenizer.decode(ids[:length]))
        everything = {"input_ids": torch.tensor([[*question.prompt.ids, *ids[:length]]])}
        tasks: dict[str, Callable[[], Any]] = {
            "forward": lambda everything=everything: forward(analyzer, everything),
            "explain_answer": lambda answer=answer: analyzer.explain_answer(
                context=" ".join(question.asked.sentences), question=question.asked.question, answer=answer
            ).spans(),
        }
        with contextlib.suppress(PackageNotFoundError, ImportError):
            import_module("flashtrace")
            tasks[f"FlashTrace {version('flashtrace')}"] = lambda answer=answer, length=length: _traced(
                analyzer, question.prompt.text, answer, range(length)
            )
        times = {name: min(spent(task), spent(task)) for name, task in tasks.items()}
        for name, seconds in times.items():
            yield {"what": name, "tokens": length, "seconds": seconds, "ratio": seconds / times["forward"]}


SECTION = Section(
    "Which sentence an answer is from (SmolLM2-135M, made-up facts)",
    (
        Column("what", "what"),
        Column("questions", "questions"),
        Column("first", "evidence first", "{:.2f}"),
        Column("reciprocal_rank", "mean reciprocal rank", "{:.2f}"),
        Column("drop_1", "drop without the top sentence", "{:.2f}"),
        Column("drop_3", "without the top three", "{:.2f}"),
        Column("calls", "model calls"),
        Column("tokens", "tokens of the answer"),
        Column("seconds", "time", "{:.2f} s"),
        Column("ratio", "relative to the forward pass", "{:.1f}x"),
        Column("note", "note"),
    ),
    rows,
    drawn="first",
)
