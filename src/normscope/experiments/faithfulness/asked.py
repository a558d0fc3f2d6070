"""A question about sentences as a model reads it, the answer that is explained, and its probability without some of the
sentences.

Sentences are those of the corpus, one document together. The answer is the one that is known, put into the model's mouth; or
the model's own, of which the part that says the known one is explained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from normscope.capture.head_blocks import logits_of
from normscope.corpora.record import AskedSentences
from normscope.errors import InputError
from normscope.explain.answering import AnswerEngine, Exchange, answer_tokens, exchange_of
from normscope.explain.pulling import PullRequest
from normscope.explain.spans import Output
from normscope.families.heads import head_of
from normscope.inputs import TokenSequence, read_ids
from normscope.inputs.generation import generate
from normscope.inputs.prompt import Prompt, context_prompt
from normscope.inputs.units import span_of_tokens

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

MOST_TOKENS = 40
"""Of an answer that the model gives itself."""

_END_OF_LINE = "\n"


class AskedModel:
    """One question, put to a model."""

    def __init__(self, analyzer: Analyzer, asked: AskedSentences, *, own: bool) -> None:
        self.analyzer, self.asked = analyzer, asked
        self.tokenizer = cast(PreTrainedTokenizerBase, analyzer.tokenizer)
        self.prompt = self._prompt(range(len(asked.sentences)))
        self.exchange = self._own() if own else self._given()
        self._known: dict[frozenset[int], float] = {}

    # ---- what is explained ---------------------------------------------------------------------------------------------

    @property
    def part(self) -> list[int]:
        """The tokens of the answer that say the known one; none, if the model says something else.

        All of them if there is no evidence: then whatever is said is not from the context.
        """
        exchange, base = self.exchange, len(self.prompt.text)
        said = exchange.text[base:]
        start = said.casefold().find(self.asked.answer.casefold())
        if not self.asked.evidence:
            return AnswerEngine(self.analyzer, exchange, "logit", PullRequest()).content
        if start < 0:
            return []
        first, last = base + start, base + start + len(self.asked.answer)
        return [place for place, (a, b) in enumerate(exchange.output_offsets) if a < last and first < b]

    @property
    def sequence(self) -> TokenSequence:
        """What the model reads: the prompt and the answer up to the last token that is explained."""
        return self._sequence(self.prompt)

    @property
    def outputs(self) -> list[Output]:
        """The tokens that are explained."""
        first = len(self.prompt.ids) - 1
        return [Output(first + place, self.exchange.ids[place]) for place in self.part]

    def sentence_of_tokens(self) -> Int[np.ndarray, " token"]:
        """For every token that the model reads the number of its sentence, or a negative number."""
        (document,) = (each for each in self.prompt.segments if each.kind == "document")
        spans: list[tuple[int, int]] = []
        start = document.start
        for sentence in self.asked.sentences:
            start = self.prompt.text.index(sentence, start)
            spans.append((start, start + len(sentence)))
            start += len(sentence)
        owners = np.full(len(self.sequence), -1)
        owners[: len(self.prompt.ids)] = span_of_tokens(self.prompt.text, self.prompt.offsets, spans)
        return owners

    # ---- how probable it is --------------------------------------------------------------------------------------------

    def log_probability(self, removed: Sequence[Collection[int]]) -> Float[np.ndarray, " removed"]:
        """The log-probability of what is explained without some of the sentences, for several choices of them."""
        wanted = [frozenset(each) for each in removed]
        new = [each for each in dict.fromkeys(wanted) if each not in self._known]
        every = range(len(self.asked.sentences))
        prompts = [self._prompt([place for place in every if place not in each]) for each in new]
        self._known.update(zip(new, self._log_probabilities(prompts), strict=True))
        return np.array([self._known[each] for each in wanted])

    @property
    def calls(self) -> int:
        """Passes of the model for the log-probabilities so far."""
        return len(self._known)

    def _log_probabilities(self, prompts: Sequence[Prompt]) -> list[float]:
        """Inputs of the same length are batched, so nothing is padded."""
        found: dict[int, float] = {}
        lengths = [len(prompt.ids) for prompt in prompts]
        for length in dict.fromkeys(lengths):
            places = [place for place, own in enumerate(lengths) if own == length]
            for batch in self.analyzer.batches([self._sequence(prompts[place]) for place in places]):
                with torch.no_grad():
                    output = self.analyzer.run(batch)
                for row, index in enumerate(batch.indices):
                    module = self.analyzer.model
                    logits = logits_of(module, head_of(module), output, row, batch.lengths[row])
                    found[places[index]] = self._read(logits, length)
        return [found[place] for place in range(len(prompts))]

    def _read(self, logits: Float[Tensor, "row label"], length: int) -> float:
        rows = torch.tensor([length - 1 + place for place in self.part], device=logits.device)
        labels = torch.tensor([self.exchange.ids[place] for place in self.part], device=logits.device)
        chances = logits[rows].double().log_softmax(-1)
        return float(chances.gather(1, labels[:, None]).sum())

    # ---- prompts and answers -------------------------------------------------------------------------------------------

    def _prompt(self, sentences: Sequence[int]) -> Prompt:
        context = " ".join(self.asked.sentences[place] for place in sentences)
        return context_prompt(self.tokenizer, {"document": context}, self.asked.question)

    def _sequence(self, prompt: Prompt) -> TokenSequence:
        read = self.exchange.ids[: self.part[-1]] if self.part else []
        return read_ids([*prompt.ids, *read], self.tokenizer)

    def _given(self) -> Exchange:
        return exchange_of(
            self.tokenizer, self.prompt, answer_tokens(self.analyzer, self.prompt, self.asked.answer), None
        )

    def _own(self) -> Exchange:
        stop = None if self.prompt.chat else _END_OF_LINE
        try:
            said = generate(self.analyzer.model, self.tokenizer, self.prompt.ids, MOST_TOKENS, stop=stop)
        except InputError:  # an empty answer is none
            return replace(self._given(), ids=[], text=self.prompt.text, output_offsets=[])
        return exchange_of(self.tokenizer, self.prompt, said.ids, said.finished)
