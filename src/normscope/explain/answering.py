"""A prompt and its answer as the model reads them, and the pull-backs of parts of the answer.

Owns the row of the logits of each token of an answer, its characters, and what it is contrasted with. The
mathematics is that of `spans`; how results are called and shown is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from normscope.errors import InputError, ModelError
from normscope.explain.pulling import PullRequest
from normscope.explain.question import tokens_of
from normscope.explain.spans import Output, PulledSpans, blocks_of_spans, pull_back_spans
from normscope.families.heads import head_of
from normscope.inputs import TokenSequence, read_ids, read_target
from normscope.inputs.prompt import Prompt, Segment
from normscope.models.model import Model
from normscope.options import Objective

_HALF = "\N{REPLACEMENT CHARACTER}"
"""What some bytes of a character are decoded to."""

NO_OUTPUT = -1
"""The output of a token that the model did not output itself."""


@dataclass(frozen=True)
class Exchange:
    """A prompt, the tokens of its answer, and the text of both.

    `output_offsets` are the characters of the answer's tokens in the text. `finished` says whether a generated answer came
    to its end; a given one has no such thing.
    """

    prompt: Prompt
    ids: list[int]
    text: str
    output_offsets: list[tuple[int, int]]
    finished: bool | None = None

    @property
    def segments(self) -> list[Segment]:
        """Those of the prompt, then the answer."""
        return [*self.prompt.segments, Segment("answer", "answer", len(self.prompt.text), len(self.text))]


def exchange_of(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, ids: Sequence[int], finished: bool | None = None
) -> Exchange:
    """A prompt and the tokens that follow it, with their text as they are, however a tokenizer would split it."""
    lead = prompt.ids[-1:]
    before = len(_decoded(tokenizer, lead))
    whole = _decoded(tokenizer, [*lead, *ids])[before:]
    read = [_alike(_decoded(tokenizer, [*lead, *ids[:count]])[before:], whole) for count in range(1, len(ids))]
    starts, ends = [0, *(start for start, _ in read)], [*(end for _, end in read), len(whole)]
    offsets = [(start, max(start, end)) for start, end in zip(starts, ends, strict=False)]
    base = len(prompt.text)
    shifted = [(base + start, base + end) for start, end in offsets]
    return Exchange(prompt, list(ids), prompt.text + whole, shifted, finished)


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    return cast(str, tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _alike(beginning: str, whole: str) -> tuple[int, int]:
    """Where the next token starts and the last one ends, by what a text has in common with a longer one.

    They differ where tokens end inside of a character, which is then that of all tokens that have bytes of it.
    """
    if whole.startswith(beginning):
        return len(beginning), len(beginning)
    place = next((at for at, (a, b) in enumerate(zip(beginning, whole, strict=False)) if a != b), len(whole))
    inside = place < len(whole) and not beginning[place:].strip(_HALF)
    return place, place + inside


def answer_tokens(model: Model, prompt: Prompt, answer: str | Sequence[int]) -> list[int]:
    """The tokens of an answer that a user gives, as they follow the prompt; ids stay as they are.

    A plain prompt ends without a space, so that a word after it begins with one. Raises if the tokens are another text.
    """
    if not isinstance(answer, str):
        return tokens_of(model, answer)
    assert model.tokenizer is not None
    if not answer.strip():
        raise InputError("The answer is empty. Give at least one word, or leave it out to have the model answer.")
    joined = not prompt.chat and not prompt.text[-1:].isspace() and not answer[:1].isspace()
    text = f" {answer}" if joined and model.family.encoder is None else answer
    side: dict[str, Any] = {"text" if model.family.encoder is None else "text_target": text}
    ids = cast("list[int]", model.tokenizer(**side, add_special_tokens=False)["input_ids"])
    read = exchange_of(model.tokenizer, prompt, ids).text[len(prompt.text) :] if ids else ""
    if read.strip() != answer.strip():
        raise InputError(
            f"The tokenizer of {model.name} reads the answer {answer!r:.60} as {read!r:.60}, so another text would be "
            f"explained. Give an answer in its own characters, or the token ids."
        )
    return ids


class AnswerEngine:
    """The pull-backs of one answer. Every call runs the model once, forwards and back."""

    def __init__(self, model: Model, exchange: Exchange, objective: Objective, request: PullRequest) -> None:
        self.model, self.exchange, self.request = model, exchange, request
        self.objective: Objective = objective

    @cached_property
    def sequence(self) -> TokenSequence:
        """What the model reads: the prompt and all of the answer except its last token."""
        model, prompt, ids = self.model, self.exchange.prompt, self.exchange.ids
        if model.family.encoder is None:
            return read_ids([*prompt.ids, *ids[:-1]], model.tokenizer)
        output = read_ids(ids, model.tokenizer)
        target = read_target(output, model.module, model.tokenizer, model.longest, closed=True)
        return replace(read_ids(prompt.ids, model.tokenizer), target=target)

    @property
    def first_row(self) -> int:
        """The row of the logits that the first token of the answer is read off."""
        return len(self.exchange.prompt.ids) - 1 if self.model.family.encoder is None else 0

    @property
    def tokens(self) -> TokenSequence:
        """All tokens in the order of the shares: those of the prompt, then the answer's (after a decoder's start)."""
        sequence, target = self.sequence, self.sequence.target
        if target is None:
            return sequence
        return TokenSequence(
            features={"input_ids": [*sequence.features["input_ids"], *target.features["input_ids"]]},
            tokens=[*sequence.tokens, *target.tokens],
            special=[*sequence.special, *target.special],
            word_ids=None,
            words=[*sequence.words, *target.words],
            text=sequence.text,
        )

    @property
    def token_outputs(self) -> list[int]:
        """For every token which token of the answer it is, or none of them."""
        given = len(self.exchange.prompt.ids) + (0 if self.model.family.encoder is None else 1)
        return [*([NO_OUTPUT] * given), *range(len(self.exchange.ids) - 1)]

    @property
    def token_offsets(self) -> list[tuple[int, int]]:
        """For every token its characters; none of a decoder's start."""
        start = [] if self.model.family.encoder is None else [(0, 0)]
        return [*self.exchange.prompt.offsets, *start, *self.exchange.output_offsets[:-1]]

    @property
    def content(self) -> list[int]:
        """The tokens of the answer that stand for text: special ones are left out, unless there is nothing else."""
        special = set(getattr(self.model.tokenizer, "all_special_ids", []))
        return [place for place, number in enumerate(self.exchange.ids) if number not in special] or list(
            range(len(self.exchange.ids))
        )

    @property
    def _outputs(self) -> list[Output]:
        return [Output(self.first_row + place, number) for place, number in enumerate(self.exchange.ids)]

    def spans(self, spans: Sequence[Sequence[int]]) -> PulledSpans:
        """Sums of tokens of the answer, explained: each span is a list of indices in it."""
        return pull_back_spans(self.model, self.sequence, self._outputs, spans, self.objective, self.request)

    def rows(self) -> Iterator[PulledSpans]:
        """Every token of the answer by itself, in its order: as many at a time as memory allows."""
        spans = [[place] for place in range(len(self.exchange.ids))]
        yield from blocks_of_spans(self.model, self.sequence, self._outputs, spans, self.objective, self.request)

    def contrast(self, part: Sequence[int], against: str | Sequence[int]) -> tuple[int, PulledSpans]:
        """Why the model outputs a part of the answer rather than another text: the first token in which they differ.

        Up to that token both are read after the same text, so that their logits can be compared. Returns its index, too.
        """
        place, other = self._difference(part, against)
        outputs = self._outputs
        outputs[place] = replace(outputs[place], against=other)
        return place, pull_back_spans(self.model, self.sequence, outputs, [[place]], "contrast", self.request)

    def _difference(self, part: Sequence[int], against: str | Sequence[int]) -> tuple[int, int]:
        first, last = self.exchange.output_offsets[part[0]][0], self.exchange.output_offsets[part[-1]][1]
        text = self.exchange.text[first:last]
        if isinstance(against, str) and text[:1].isspace() and not against[:1].isspace():
            against = text[: len(text) - len(text.lstrip())] + against
        others = tokens_of(self.model, against)
        for place, other in zip(part, others, strict=False):
            if self.exchange.ids[place] != other:
                return place, other
        raise InputError(
            f"{text.strip()!r:.60} and {against!r:.60} begin with the same tokens and one of them ends there: there is no "
            f"token in which they differ."
        )


def check_generates(model: Model) -> None:
    """Raise if a model does not put out a text."""
    task = head_of(model.module).task
    if task not in ("causal-lm", "seq2seq-lm"):
        raise ModelError(
            f"{model.name} does {task} and puts out no text, so that it has no answer to explain. Load a causal language "
            f"model or an encoder-decoder with its language-model head; Analyzer.explain takes any model."
        )
