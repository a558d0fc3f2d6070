"""What the planner predicts, against what is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measuring import BERT, SUBJECT, Column, Row, Section, attention_scopes, ids, made, models, smallest
from transformers import MarianConfig, MarianMTModel, ViTConfig, ViTModel

import normscope as ns
from normscope.estimate import Estimate

Foretold = Callable[..., Estimate]
Kinds = dict[str, tuple[Foretold, Callable[[], Any]]]

MARIAN: dict[str, Any] = dict(
    vocab_size=20000,
    d_model=512,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=8,
    decoder_attention_heads=8,
    encoder_ffn_dim=2048,
    decoder_ffn_dim=2048,
    pad_token_id=0,
    eos_token_id=1,
    decoder_start_token_id=0,
    max_position_embeddings=512,
)


def rows(quick: bool) -> Iterator[Row]:
    lengths = (64,) if quick else (32, 128)
    for name in models():
        analyzer = made(name)
        for length in lengths:
            yield from _measured(name, length, _of_text(analyzer, length, approximated=name == BERT))
    torch.manual_seed(0)
    translator = ns.load(MarianMTModel(MarianConfig(**MARIAN)).eval())
    for length in lengths:
        yield from _measured("Marian size", length, _of_translation(translator, length))
    seer = ns.load(ViTModel(ViTConfig(num_hidden_layers=2), add_pooling_layer=False).eval())
    yield from _measured("ViT-base width", 197, _of_image(seer))


def _measured(model: str, tokens: int, kinds: Kinds) -> Iterator[Row]:
    for what, (estimate, task) in kinds.items():
        foretold = estimate(clock=time.process_time).seconds
        measured = smallest({what: task})[what]
        assert foretold is not None
        yield dict(
            model=model, tokens=tokens, what=what, seconds=measured, foretold=foretold, ratio=foretold / measured
        )


def _of_text(analyzer: ns.Analyzer, length: int, *, approximated: bool) -> Kinds:
    inputs, attention, few = ids(length), attention_scopes(analyzer), [0, length // 2, length - 1]
    estimate = partial(analyzer.estimate, length)
    kinds: Kinds = {
        "all maps": (estimate, lambda: analyzer.analyze(inputs)),
        "attention-block maps": (
            partial(estimate, scopes=attention),
            lambda: analyzer.analyze(inputs, scopes=attention),
        ),
        "mixing ratios": (partial(estimate, maps=False), lambda: analyzer.mixing_ratios(inputs)),
        "three queries": (partial(estimate, queries=few), lambda: analyzer.analyze(inputs, queries=few)),
        "explanation": (
            partial(analyzer.estimate_explanation, length),
            lambda: analyzer.explain(inputs, direction="state", at=-1),
        ),
    }
    for name in ("sketch", "both") if approximated else ():
        kinds[name] = (partial(estimate, approximate=name), partial(analyzer.analyze, inputs, approximate=name))
    return kinds


def _of_translation(analyzer: ns.Analyzer, length: int) -> Kinds:
    source, target, attention = ids(length), ids(length), attention_scopes(analyzer)
    source, target = ({"input_ids": each["input_ids"] % 19000} for each in (source, target))
    estimate, analyze = (
        partial(analyzer.estimate, length, decoder_text=length),
        partial(analyzer.analyze, source, decoder_text=target),
    )
    return {
        "all maps": (estimate, analyze),
        "attention-block maps": (partial(estimate, scopes=attention), partial(analyze, scopes=attention)),
        "mixing ratios": (partial(estimate, maps=False), lambda: analyzer.mixing_ratios(source, decoder_text=target)),
    }


def _of_image(analyzer: ns.Analyzer) -> Kinds:
    pixels, attention = {"pixel_values": torch.randn(1, 3, 224, 224)}, attention_scopes(analyzer)
    estimate = partial(analyzer.estimate, pixels)
    return {
        "attention-block maps": (
            partial(estimate, scopes=attention),
            lambda: analyzer.analyze(pixels, scopes=attention),
        ),
        "mixing ratios": (partial(estimate, maps=False), lambda: analyzer.mixing_ratios(pixels)),
        "explanation": (
            partial(analyzer.estimate_explanation, pixels),
            lambda: analyzer.explain(pixels, direction="state", at=0),
        ),
    }


SECTION = Section(
    "The planner: time foretold over time measured",
    (
        *SUBJECT,
        Column("what", "what"),
        Column("foretold", "predicted", "{:.3f} s"),
        Column("seconds", "measured", "{:.3f} s"),
        Column("ratio", "predicted / measured", "{:.2f}"),
    ),
    rows,
)
