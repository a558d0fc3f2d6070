"""The pull-back of spans of output: the sum over any of the tokens that a model output, in one reverse pass.

The pull-back is linear in its start, so that a span has one covector at each of its positions, and rows of a table (every
output token by itself) are several such starts at once. Only shares of the input are kept, nothing of the layers between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from normscope.errors import SelectionError
from normscope.estimate.sizes import blocks_in
from normscope.explain.pulling import LayersBack, PullRequest, Way, check_joined_blocks, kept_layers
from normscope.explain.question import LogitQuestion, Rows, Wanted
from normscope.explain.recording import Played, Recording
from normscope.explain.rows import head_of_rows, keeps_rows, played_rows
from normscope.explain.sinks import sinks_of_layers
from normscope.explain.streaming import Stream, is_streamed
from normscope.inputs import TokenSequence
from normscope.models.model import Model
from normscope.options import Objective
from normscope.pullback import pull_back_end

_BYTES_AT_ONCE = 2**28
"""Memory that the covectors of spans which are pulled back together may take, in the widest place of a layer."""


@dataclass(frozen=True)
class Output:
    """One token that a model output: its row of the logits, its id, and another to contrast it with."""

    row: int
    label: int
    against: int | None = None


@dataclass(frozen=True)
class PulledSpans:
    """Shares `[span, token]` of the tokens that the model read, which with `bias`, and `routed`, what stays with
    attention weights, add up to `values`, up to `errors`.

    For an encoder-decoder, the tokens are those of the encoder, then those of the decoder. `probabilities[output]` are those
    of the output tokens, `sinks[token]` says which tokens are attention sinks.
    """

    values: Float[Tensor, " span"]
    bias: Float[Tensor, " span"]
    routed: Float[Tensor, " span"]
    shares: Float[Tensor, "span token"]
    errors: Float[Tensor, " span"]
    probabilities: Float[Tensor, " output"]
    sinks: Bool[Tensor, " token"]


def pull_back_spans(
    model: Model,
    sequence: TokenSequence,
    outputs: Sequence[Output],
    spans: Sequence[Sequence[int]],
    objective: Objective,
    request: PullRequest,
) -> PulledSpans:
    """Explain sums of output tokens in as few reverse passes as memory allows; a span is a list of indices in `outputs`."""
    blocks = list(blocks_of_spans(model, sequence, outputs, spans, objective, request))
    values, bias, routed, shares, errors = (
        torch.cat([getattr(block, name) for block in blocks])
        for name in ("values", "bias", "routed", "shares", "errors")
    )
    return PulledSpans(values, bias, routed, shares, errors, blocks[0].probabilities, blocks[0].sinks)


def blocks_of_spans(
    model: Model,
    sequence: TokenSequence,
    outputs: Sequence[Output],
    spans: Sequence[Sequence[int]],
    objective: Objective,
    request: PullRequest,
) -> Iterator[PulledSpans]:
    """The same, one reverse pass after another: as many spans as memory allows, then the next."""
    check_joined_blocks(model)
    if not spans or not all(spans):
        raise SelectionError("There is nothing to explain: a span of output has at least one token.")
    rows: Rows = [(each.row, Wanted(each.label, against=each.against, objective=objective)) for each in outputs]
    source = _source(model, sequence, request)
    played, logits = source.play(rows)
    at_once = _spans_at_once(model, sequence, request)
    pieces = [spans[first : first + at_once] for first in range(0, len(spans), at_once)]
    chances = logits.float().softmax(-1)
    labels = torch.tensor([each.label for each in outputs], device=chances.device)
    probabilities = chances.gather(1, labels[:, None])[:, 0]
    del logits, chances
    for each in pieces:
        yield _pulled(model, source, played, each, probabilities, last=each is pieces[-1])


class _Kept:
    """A recording of all layers, for inputs whose traces fit into the memory together."""

    def __init__(self, model: Model, sequence: TokenSequence, request: PullRequest) -> None:
        self.model = model
        self.recording = Recording(model, sequence, request)

    def play(self, rows: Rows) -> tuple[Played, Float[Tensor, "row label"]]:
        places = [row for row, _ in rows if row is not None]
        question = LogitQuestion(self.model, rows)
        if self.model.family.encoder is not None or not keeps_rows(self.model):
            played = self.recording.play(question)
            return played, played.head.logits[places]
        whole = self.recording.heard_rows(question, places)
        head = head_of_rows(whole, torch.tensor(places, device=whole.states.device), few=True)
        return played_rows(self.model, head, rows, whole.states), head.logits

    def layers(self, *, keep: bool) -> LayersBack:
        return kept_layers(self.recording, self.recording.request.weights, keep=keep)


def _source(model: Model, sequence: TokenSequence, request: PullRequest) -> _Kept | Stream:
    """Where layers come from on the way back: kept, or, for long inputs and within a memory, run again one by one."""
    streamed = is_streamed(model, sequence, request)
    return Stream(model, sequence, request) if streamed else _Kept(model, sequence, request)


def _pulled(
    model: Model,
    source: _Kept | Stream,
    played: Played,
    spans: Sequence[Sequence[int]],
    probabilities: Float[Tensor, " output"],
    *,
    last: bool,
) -> PulledSpans:
    """One reverse pass for several spans, proved at every layer."""
    members = _members(spans, len(played.values)).to(played.values)
    values, sizes = members @ played.values, members @ played.sizes
    start = played.pulled.weighted(members)
    way = Way(model, values, sizes, start.bias)
    layers = source.layers(last=last) if isinstance(source, Stream) else source.layers(keep=not last)
    main = way.shares(layers, "layer", start.covector, played.head.states)
    shares, errors, marks = main.relevance, main.errors, sinks_of_layers(main.received, causal=main.causal)
    bias = way.outside - way.routed
    if way.source is not None:
        assert isinstance(source, _Kept)
        end = source.recording.encoder_end
        covector, added = pull_back_end(end, way.source)
        way.source = None
        way.leave(added, shares.sum(-1))
        below = kept_layers(source.recording.of_encoder(), source.recording.request.weights, keep=not last)
        encoder = way.shares(below, "encoder layer", covector, end.states)
        bias = way.outside - way.routed - shares.sum(-1)
        shares, errors = torch.cat([encoder.relevance, shares], dim=1), torch.maximum(encoder.errors, errors)
        marks = torch.cat([sinks_of_layers(encoder.received, causal=encoder.causal), marks])
    return PulledSpans(values, bias, way.routed, shares, errors, probabilities, marks)


def _members(spans: Sequence[Sequence[int]], count: int) -> Float[Tensor, "span output"]:
    """1 where an output token is in a span."""
    members = torch.zeros(len(spans), count)
    for number, span in enumerate(spans):
        members[number, list(span)] = 1
    return members


def _spans_at_once(model: Model, sequence: TokenSequence, request: PullRequest) -> int:
    """Spans whose covectors fit into the memory together where a layer is widest: at the neurons of its feed-forward."""
    sizes = blocks_in(model.module, model.family.stack)
    length, widest = max(len(sequence), len(sequence.target or ())), max(max(each.neurons, each.d) for each in sizes)
    if request.weights != "constant":  # products of every head, query and key
        widest = max(widest, length * max(each.heads for each in sizes))
    return max(1, _BYTES_AT_ONCE // (4 * 4 * length * widest))
