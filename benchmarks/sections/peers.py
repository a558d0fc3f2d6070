"""Other tools and the naive method, each next to what answers the same question here; what is not installed says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from measuring import BERT, GATED, MINILM, SUBJECT, Column, Inputs, Row, Section, forward, ids, made, smallest
from transformers import GPT2Config, GPT2LMHeadModel

import normscope as ns
from normscope.capture import capture
from normscope.chain.trace import Attention, FeedForward, LayerTrace, Normalise, Plain
from normscope.corpora import bundled
from normscope.explorer import page_html
from sections.explain import TARGET, with_head

STEPS = 50
"""Steps of integrated gradients."""


def rows(quick: bool) -> Iterator[Row]:
    length = 32 if quick else 128
    yield from _naive(length)
    yield from _captum(length)
    yield from _inseq()
    yield from _bertviz(length)


def _measured(labels: Row, tasks: dict[str, Callable[[], Any]]) -> Iterator[Row]:
    """One row for each task, as multiples of the first, the forward pass."""
    times = smallest(tasks)
    for name, seconds in times.items():
        yield labels | dict(what=name, seconds=seconds, ratio=seconds / times["forward"])


def _peer(name: str) -> str | None:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return None


def _missing(name: str) -> Row:
    return {"what": name, "note": "not installed (make bench installs it)"}


# ---- the naive method ------------------------------------------------------------------------------------------------


def _naive(length: int) -> Iterator[Row]:
    analyzer, inputs = made(BERT), ids(length)
    tasks = {
        "forward": lambda: forward(analyzer, inputs),
        "all maps": lambda: analyzer.analyze(inputs),
        "all maps, naive method": lambda: materialised(analyzer, inputs),
    }
    yield from _measured(dict(model=BERT, tokens=length), tasks)


def materialised(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    """As the papers' code does: every vector of every pair of tokens, through every component, in float32."""
    capture(
        analyzer.model,
        analyzer.family,
        {**inputs, "attention_mask": torch.ones_like(inputs["input_ids"])},
        [inputs["input_ids"].shape[1]],
        analyzer.layers,
        lambda _layer, _sequence, trace: _materialise(trace),
        dtype=torch.float32,
    )


def _materialise(trace: LayerTrace) -> list[torch.Tensor]:
    """Post-norm blocks with a plain feed-forward only, which is what the papers' code covers."""
    norms: list[torch.Tensor] = []
    parts = torch.zeros(0)
    bypass = parts
    own = torch.arange(len(trace.queries))
    for step in trace.steps:
        match step:
            case Attention():
                vectors = torch.einsum("hke,hed->hkd", step.values, step.output)
                parts = torch.einsum("hqk,hkd->qkd", step.weights, vectors)
            case Normalise():
                deviation = (step.state_before.var(-1, correction=0) + step.norm.epsilon).sqrt()[:, None, None]
                parts = (parts - parts.mean(-1, keepdim=True)) * step.norm.weight / deviation
                bypass = parts
            case FeedForward():
                network, (z,) = step.experts[0].network, step.experts[0].pre_activations
                assert isinstance(network, Plain)
                slope = network.activation.slope(z)[:, None]
                parts = ((parts @ network.first.weight.T) * slope) @ network.second.weight.T
            case _ if step.name == "Res":
                if len(bypass):
                    parts = parts + bypass
                else:
                    parts[own, own] += trace.hidden
            case _:
                continue
        norms.append(parts.norm(dim=-1))
    return norms


# ---- attributions of a logit -----------------------------------------------------------------------------------------


def _captum(length: int) -> Iterator[Row]:
    peer = _peer("captum")
    if peer is None:
        yield _missing("captum")
        return
    analyzer, inputs = with_head(GATED), ids(length)
    tasks = {
        "forward": lambda: forward(analyzer, inputs),
        "explain": lambda: analyzer.explain(inputs, target=TARGET, at=-1),
        f"{peer}: integrated gradients, {STEPS} steps": lambda: _integrated_gradients(analyzer, inputs),
    }
    yield from _measured(dict(model=GATED, tokens=length), tasks)


def _integrated_gradients(analyzer: ns.Analyzer, inputs: Inputs) -> None:
    from captum.attr import IntegratedGradients  # noqa: PLC0415  (only where it is installed)

    embeddings = analyzer.model.get_input_embeddings()(inputs["input_ids"]).detach()

    def logit(values: torch.Tensor) -> torch.Tensor:
        return analyzer.model(inputs_embeds=values).logits[:, -1, TARGET]

    IntegratedGradients(logit).attribute(embeddings, n_steps=STEPS, internal_batch_size=1)


def _inseq() -> Iterator[Row]:
    peer = _peer("inseq")
    if peer is None:
        yield _missing("inseq")
        return
    torch.manual_seed(0)
    tokenizer = ns.load().tokenizer
    assert tokenizer is not None
    tokenizer.bos_token, tokenizer.eos_token = tokenizer.cls_token, tokenizer.sep_token
    config = GPT2Config(vocab_size=len(tokenizer), n_layer=4, bos_token_id=101, eos_token_id=102, pad_token_id=0)
    analyzer = ns.load(GPT2LMHeadModel(config).eval(), tokenizer=tokenizer)
    text, word = "once upon a time there was a little", " girl"
    encoding: Any = tokenizer(text, return_tensors="pt")
    labels = dict(model="GPT-2 width, 4 layers", tokens=encoding["input_ids"].shape[1])
    tasks: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(analyzer, {"input_ids": encoding["input_ids"]}),
        "explain": lambda: analyzer.explain(text, target=word.strip()),
    }
    try:
        tasks |= _inseq_tasks(peer, analyzer, text, word)
        yield from _measured(labels, tasks)
    except Exception as error:
        yield labels | {"what": peer, "note": f"fails here: {type(error).__name__}: {str(error)[:80]}"}


def _inseq_tasks(peer: str, analyzer: ns.Analyzer, text: str, word: str) -> dict[str, Callable[[], Any]]:
    import inseq  # noqa: PLC0415  (only where it is installed)

    tasks: dict[str, Callable[[], Any]] = {}
    for method in ("input_x_gradient", "integrated_gradients"):
        model: Any = inseq.load_model(analyzer.model, method, tokenizer=analyzer.tokenizer)
        options = {"n_steps": STEPS} if method == "integrated_gradients" else {}
        tasks[f"{peer}: {method}"] = lambda model=model, options=options: model.attribute(
            text, text + word, show_progress=False, **options
        )
    return tasks


# ---- pages -----------------------------------------------------------------------------------------------------------


def _bertviz(length: int) -> Iterator[Row]:
    peer = _peer("bertviz")
    analyzer = ns.load()
    text = bundled().read_text()[: 6 * length]
    sequence: Any = analyzer.tokenizer(text, truncation=True, max_length=length, return_tensors="pt")
    tasks: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(analyzer, dict(sequence)),
        "page of attention-weight maps": lambda: page_html(
            analyzer.analyze(dict(sequence), scopes="AttnW", heads=True)
        ),
    }
    if peer is not None:
        tasks[f"{peer}: page of attention weights"] = lambda: _head_view(analyzer, dict(sequence))
    yield from _measured(dict(model=MINILM, tokens=sequence["input_ids"].shape[1]), tasks)
    if peer is None:
        yield _missing("bertviz")


def _head_view(analyzer: ns.Analyzer, inputs: Inputs) -> Any:
    from bertviz import head_view  # noqa: PLC0415  (only where it is installed)

    before = analyzer.model.config._attn_implementation
    analyzer.model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = analyzer.model(**inputs, output_attentions=True).attentions
    analyzer.model.set_attn_implementation(before)
    tokens = analyzer.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    return head_view(attention, tokens, html_action="return")


SECTION = Section(
    "Other tools, as multiples of a plain forward pass of the same model",
    (
        *SUBJECT,
        Column("what", "what"),
        Column("seconds", "time", "{:.3f} s"),
        Column("ratio", "relative to the forward pass", "{:.1f}x"),
        Column("note", "note"),
    ),
    rows,
)
