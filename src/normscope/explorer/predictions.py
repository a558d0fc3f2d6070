"""What a model predicts, wherever it predicts something: the likeliest labels with their probabilities, place by place.

One plain pass of the model; nothing is explained here.
"""

from __future__ import annotations

from typing import Any

import torch

from normscope import asking
from normscope.explain.question import Wanted, label_name
from normscope.explain.values import Values
from normscope.explain.wording import read_question
from normscope.explorer.orders import Order, task_of

_MOST = 6


def predictions_of(order: Order) -> list[dict[str, Any]]:
    """For every token of a causal model, every mask, or the whole input of a classifier: labels by probability.

    Of other tasks nothing: their labels at one place are no alternatives, or depend on what was said before.
    """
    analyzer = order.analyzer
    task = task_of(analyzer)
    if task not in ("causal-lm", "masked-lm", "sequence-classification", "image-classification"):
        return []
    (sequence,), _ = asking.read_sources(analyzer, order.inputs, words=False, truncate=False)
    sequence, question = read_question(analyzer, sequence, Wanted(at=0 if task == "masked-lm" else None))
    logits = Values(analyzer, sequence, question).logits
    if logits.shape[-1] < 2:
        return []
    rows = list(range(len(logits)))
    if task == "masked-lm":
        mask = getattr(analyzer.tokenizer, "mask_token_id", None)
        rows = [row for row, number in enumerate(sequence.features["input_ids"]) if number == mask]
    if not rows:
        return []
    top = torch.softmax(logits[rows].float(), -1).topk(min(_MOST, logits.shape[-1]))
    whole = task in ("sequence-classification", "image-classification")
    return [
        {
            "position": -1 if whole else row,
            "options": [
                {"name": label_name(analyzer, label), "label": label, "probability": probability}
                for label, probability in zip(labels, chances, strict=True)
            ],
        }
        for row, labels, chances in zip(rows, top.indices.tolist(), top.values.tolist(), strict=True)
    ]
