"""What a model predicts at every position at which it predicts something: the most probable labels, and why the last one.

The labels take one plain pass of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from normscope.errors import NormscopeError
from normscope.explain.model_values import Values
from normscope.explain.parse import read_question
from normscope.explain.probabilities import EACH, each_by_itself, has_probabilities, probabilities
from normscope.explain.question import Wanted, label_name
from normscope.explorer.requests import Order, task_of
from normscope.methods import resolve
from normscope.results.explanation import Explanation

_MOST = 6


def decoder_text_of(order: Order) -> str | list[int] | None:
    """What the decoder reads: the given text, or what the model generates; `None` for a model without a decoder."""
    if task_of(order.analyzer) != "seq2seq-lm":
        return None
    if order.decoder_text is not None:
        return order.decoder_text
    (sequence,), _ = resolve.read(order.analyzer, order.inputs, None)
    assert sequence.target is not None
    return sequence.target.features["input_ids"][1:]  # all that is read after the start token


def predictions_of(order: Order) -> list[dict[str, object]]:
    """For every token of a causal model or of a decoder, every mask, or a classifier's whole input: labels by probability.

    Empty for other tasks, whose labels at one position are not alternatives.
    """
    analyzer = order.analyzer
    task = task_of(analyzer)
    if task not in ("causal-lm", "seq2seq-lm", "masked-lm", "sequence-classification", "image-classification"):
        return []
    (sequence,), _ = resolve.read_sources(analyzer, order.inputs)
    wanted = Wanted(at=0 if task == "masked-lm" else None, decoder_text=decoder_text_of(order))
    sequence, question = read_question(analyzer, sequence, wanted)
    logits = Values(analyzer, sequence, question).logits
    if not has_probabilities(analyzer.model, logits.shape[-1]):
        return []
    rows = list(range(len(logits)))
    if task == "masked-lm":
        mask = getattr(analyzer.tokenizer, "mask_token_id", None)
        rows = [row for row, number in enumerate(sequence.features["input_ids"]) if number == mask]
    if not rows:
        return []
    top = probabilities(analyzer.model, logits[rows].float()).topk(min(_MOST, logits.shape[-1]))
    whole = task in ("sequence-classification", "image-classification")
    return [
        {
            "position": -1 if whole else row,
            "of": EACH if each_by_itself(analyzer.model) else "",
            "options": [
                {"name": label_name(analyzer, label), "label": label, "probability": probability}
                for label, probability in zip(labels, chances, strict=True)
            ],
        }
        for row, labels, chances in zip(rows, top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def explained_prediction(
    order: Order, tell: Callable[[int, int], None]
) -> tuple[list[dict[str, object]], list[Explanation]]:
    """The predictions, and the explanation of the last one; nothing where it is not clear what to explain."""
    try:
        known = predictions_of(order)
    except NormscopeError:
        known = []
    at = known[-1]["position"] if known and task_of(order.analyzer) == "masked-lm" else None
    try:
        made = order.analyzer.explain(
            cast(Any, order.inputs), target=order.decoder_text, at=cast(Any, at), on_progress=tell
        )
    except NormscopeError:
        return known, []
    return known, [cast(Explanation, made)]
