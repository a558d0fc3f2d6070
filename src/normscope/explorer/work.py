"""The work of a request, in the queue's thread: analyses, explanations, comparisons and answers for the front end.

The only module that knows how an analysis reports its progress and is stopped between layers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from PIL import Image

from normscope.errors import InputError
from normscope.explorer.payload import payload_json, verification_payload
from normscope.explorer.predictions import decoder_text_of, explained_prediction
from normscope.explorer.requests import Asking, Order, Pairing, Question, task_of
from normscope.request import AnalysisOptions
from normscope.results.analysis import Analysis
from normscope.results.explanation import Explanation
from normscope.results.schema import NORMS

__all__ = ["Cancelled", "Order", "Result", "Steps", "analyse", "answer", "compare", "explain", "verify"]

MOST_NEW_TOKENS = 100
"""Of an answer that a model gives."""

EDGES_CUT = 10
"""When a page asks what becomes of the strongest edges."""

_SPLIT_BY_HEADS = (NORMS, "projections")


class Cancelled(Exception):
    """The analysis was cancelled, since nobody waits for it any more."""


@dataclass(frozen=True)
class Result:
    """The result of a job: the analyses and explanations, and their payload for the front end."""

    analyses: list[Analysis]
    payload: bytes
    explanations: list[Explanation] = field(default_factory=list[Explanation])

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(map(_size, [*self.analyses, *self.explanations])) + len(self.payload)


class Steps:
    """Progress over several steps of different lengths, reported as layers of all steps together."""

    def __init__(self, lengths: Sequence[int], tell: Callable[[int, int], None], cancelled: Callable[[], bool]) -> None:
        self._lengths, self._tell, self._cancelled = list(lengths), tell, cancelled
        self._step = 0

    @contextmanager
    def next(self) -> Generator[Callable[[int, int], None]]:
        """The progress callback of one step (layers done, layers in all), which raises `Cancelled` to stop it."""
        before, length, whole = sum(self._lengths[: self._step]), self._lengths[self._step], sum(self._lengths)

        def on_progress(done: int, total: int) -> None:
            if self._cancelled():
                raise Cancelled
            self._tell(before + round(length * done / max(1, total)), whole)

        yield on_progress
        self._step += 1


def analyse(
    orders: Sequence[Order],
    *,
    heads: bool,
    most_tokens: int,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Result:
    """Analyse the inputs one after the other, and report the number of layers done and their total.

    For a single input of a model with a head, its prediction is also explained, if there is an obvious one.

    Raises:
        InputError: a text is too long, or cannot be analysed.
        Cancelled: nobody waits for the result any more.
    """
    explained = orders[0] if len(orders) == 1 and task_of(orders[0].analyzer) is not None else None
    lengths = [len(order.analyzer.layers) for order in [*orders, *([explained] if explained else [])]]
    steps = Steps(lengths, tell, cancelled)
    analyses: list[Analysis] = []
    for order in orders:
        _check_length(order, most_tokens)
        with steps.next() as on_progress:
            analyses.append(_analysis(order, heads and order.method in _SPLIT_BY_HEADS, on_progress))
    explanations: list[Explanation] = []
    known: list[dict[str, object]] = []
    if explained is not None:
        with steps.next() as on_progress:
            known, explanations = explained_prediction(explained, on_progress)
    payload = payload_json(*analyses, *explanations, predictions=known)
    return Result(analyses, payload.encode("ascii"), explanations)


def explain(
    question: Question,
    *,
    most_tokens: int,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Result:
    """Explain one prediction.

    Raises:
        InputError: there is no such prediction.
        Cancelled: nobody waits for the result any more.
    """
    order = question.order
    _check_length(order, most_tokens)
    with Steps([len(order.analyzer.layers)], tell, cancelled).next() as on_progress:
        made = order.analyzer.explain(
            cast(Any, order.inputs),
            target=question.label,
            against=question.against,
            at=question.at,
            decoder_text=decoder_text_of(order),
            on_progress=on_progress,
        )
    explanation = cast(Explanation, made)
    return Result([], payload_json(explanation).encode("ascii"), [explanation])


def verify(
    explanation: Explanation,
    target: int,
    *,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Result:
    """Cut the strongest edges of an explanation in the real model.

    Raises:
        NormscopeError: nothing can be cut there.
        Cancelled: nobody wants the result any more.
    """
    with Steps([1 + EDGES_CUT], tell, cancelled).next() as told:
        verified = explanation.verify(EDGES_CUT, target=target, on_progress=told)
    return Result([], json.dumps(verification_payload(verified)).encode("ascii"))


def compare(
    pairing: Pairing,
    *,
    most_tokens: int,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Result:
    """Compare a text or image with others. Several are ranked, the most similar first, as a query's passages.

    Raises:
        InputError: a text is too long.
        Cancelled: nobody wants the result any more.
    """
    analyzer, seconds = pairing.analyzer, pairing.seconds
    for given in (pairing.first, *seconds):
        _check_length(Order(analyzer, given), most_tokens)
    with Steps([1 + len(seconds)], tell, cancelled).next() as told:
        retrieval = len(seconds) > 1
        found = analyzer.similarity(pairing.first, cast("list[Any]", seconds), retrieval=retrieval, on_progress=told)
    ranked = sorted(found, key=lambda similarity: -similarity.value)
    return Result([], payload_json(*ranked).encode("ascii"))


def answer(
    asking: Asking,
    *,
    most_tokens: int,
    tell: Callable[[int, int], None],
    cancelled: Callable[[], bool],
) -> Result:
    """Let the model answer a question about documents (unless the answer is given), and explain the answer.

    Raises:
        InputError: the documents are too long, or there is no answer.
        Cancelled: nobody wants the result any more.
    """
    analyzer = asking.analyzer
    _check_length(Order(analyzer, "\n\n".join([*asking.documents, asking.question, asking.answer or ""])), most_tokens)

    def on_text(_: str) -> None:
        if cancelled():
            raise Cancelled

    with Steps([len(analyzer.layers)], tell, cancelled).next() as on_progress:
        found = analyzer.explain_answer(
            context=asking.documents,
            question=asking.question,
            answer=asking.answer,
            max_new_tokens=MOST_NEW_TOKENS,
            on_text=on_text,
            on_progress=on_progress,
        )
    return Result([], payload_json(found).encode("ascii"))


def _analysis(order: Order, heads: bool, tell: Callable[[int, int], None]) -> Analysis:
    inputs = cast(Any, order.inputs)
    options: AnalysisOptions = {"decoder_text": order.decoder_text, "heads": heads, "method": order.method}
    return order.analyzer.analyze(inputs, **{**options, "progress": False, "on_progress": tell})


def _check_length(order: Order, most_tokens: int) -> None:
    if isinstance(order.inputs, Image.Image):
        return
    tokenizer = cast(Any, order.analyzer.tokenizer)
    texts = order.inputs if isinstance(order.inputs, tuple) else (order.inputs,)
    for text in [texts, *([(order.decoder_text,)] if order.decoder_text else [])]:
        count = len(tokenizer(*text, verbose=False)["input_ids"])
        if count > most_tokens:
            raise InputError(f"The text has {count} tokens, and this server takes at most {most_tokens}.")


def _size(result: Analysis | Explanation) -> int:
    own = int(result.dataset.nbytes)
    return own + _size(result.encoder) if result.has_encoder else own
