"""Texts and images as an embedding model reads them: prompts, lower case, the longest input, texts filled up, patches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from normscope.errors import InputError
from normscope.inputs import Reading, TokenSequence, read_images, read_inputs
from normscope.models.model import Model
from normscope.similarity.spec import EmbeddingSpec, Expansion, Task, prompt_of


@dataclass(frozen=True)
class TextInput:
    """One text, its prompt and its task, and its tokens.

    The tokens before position `prompt_length` are those of the prompt, special ones before it included. `unattended` is the
    position from which on tokens are read that no other token attends to; `scored` says which tokens late interaction
    matches.
    """

    text: str
    prompt: str
    task: Task | None
    sequence: TokenSequence
    prompt_length: int = 0
    unattended: int | None = None
    scored: tuple[bool, ...] = ()

    @property
    def is_image(self) -> bool:
        """Whether it is an image, and its tokens are patches."""
        return self.sequence.signal is not None

    @property
    def is_prompt(self) -> list[bool]:
        """Which tokens belong to the prompt."""
        return [index < self.prompt_length and not special for index, special in enumerate(self.sequence.special)]


def read_image(model: Model, image: Any, prompt: str | None = None) -> TextInput:
    """One image, named by its file if it is one."""
    if prompt:
        raise InputError(f"An image has no instruction before it (prompt {prompt!r:.60}).")
    (sequence, *_), _ = read_images(image, model.module, model.processor)
    name = Path(image).name if isinstance(image, str | Path) else "image"
    return TextInput(name, "", None, sequence)


class TextReader:
    """Reads texts for one model and description."""

    def __init__(self, model: Model, spec: EmbeddingSpec, reading: Reading) -> None:
        self.model, self.spec, self.reading = model, spec, reading
        self._prompt_lengths: dict[str, int] = {}

    def read(self, text: Any, task: Task | None = None, prompt: str | None = None) -> TextInput:
        """One text. What is empty, or too long, is refused."""
        if not isinstance(text, str):
            raise InputError(f"A text to embed is a string, not a {type(text).__name__} ({text!r:.60}).")
        if not text.strip():
            raise InputError("A text to compare is empty. Give at least one word.")
        reading = self.spec.reading
        prompt = prompt_of(reading, task, prompt, self.model.name)
        whole = prompt + text
        whole = whole.lower() if reading.lower_case else whole
        expansion = reading.filled or (reading.expansion if task == "query" else None)
        sequence = self._tokens(whole, self._longest(task, expansion))
        length = self._prompt_length(prompt)
        if len(sequence) <= length or all(sequence.special[length:]):
            raise InputError(f"Nothing is left of the text {text!r:.60} behind its prompt {prompt!r:.60}.")
        self._check_end(text, sequence)
        read = TextInput(text, prompt, task, sequence, length)
        if expansion is not None:
            read = self._expanded(read, expansion)
        return replace(read, scored=self._scored(read)) if self.spec.is_late else read

    def _check_end(self, text: str, sequence: TokenSequence) -> None:
        """Raise if the token that a model embeds is not the last of the text."""
        end, ids = self.spec.reading.end, sequence.features["input_ids"]
        if end is None:
            return
        embedded = max(ids) if end == "highest" else end
        if embedded not in ids or ids.index(embedded) != len(ids) - 1:
            raise InputError(
                f"{self.model.name} embeds the first end token of a text, and that is not the last token of {text!r:.60}. "
                f"Leave end tokens out of the text, or load the tokenizer of this model."
            )

    def _tokens(self, text: str, longest: int | None) -> TokenSequence:
        (sequence,), _ = read_inputs(text, self.model.tokenizer, longest, self.reading)
        return sequence

    def _longest(self, task: Task | None, expansion: Expansion | None) -> int | None:
        reading = self.spec.reading
        limits = [self.model.longest, reading.longest]
        limits.append(reading.query_length if task == "query" else reading.document_length if task else None)
        if expansion is not None and expansion.cuts:
            limits.append(expansion.length)
        return min((limit for limit in limits if limit is not None), default=None)

    def _prompt_length(self, prompt: str) -> int:
        """The number of tokens of a prompt, with the special tokens before it and without those that end a text."""
        if not prompt:
            return 0
        if prompt not in self._prompt_lengths:
            text = prompt.lower() if self.spec.reading.lower_case else prompt
            tokenizer = self.model.tokenizer
            if tokenizer is None:
                raise InputError("A text was given, but the model was loaded without a tokenizer. Name one.")
            ids = cast("list[int]", tokenizer(text)["input_ids"])
            ends = (tokenizer.sep_token_id, tokenizer.eos_token_id)
            self._prompt_lengths[prompt] = len(ids) - (bool(ids) and ids[-1] in ends)
        return self._prompt_lengths[prompt]

    # ---- late interaction ----------------------------------------------------------------------------------------------

    def _expanded(self, read: TextInput, expansion: Expansion) -> TextInput:
        """A query filled up with a token to the length of the expansion."""
        missing = expansion.length - len(read.sequence)
        if missing <= 0:
            return read
        tokenizer = self.model.tokenizer
        token = expansion.token or getattr(tokenizer, "mask_token", None)
        if tokenizer is None or token is None:
            raise InputError(
                f"Queries of {self.model.name} are filled up with a mask token, and its tokenizer has none."
            )
        number = cast(int, tokenizer.convert_tokens_to_ids(token))
        sequence = read.sequence.filled(token, number, missing)
        return replace(read, sequence=sequence, unattended=None if expansion.attend else len(read.sequence))

    def _scored(self, read: TextInput) -> tuple[bool, ...]:
        """Tokens of documents that are skipped are matched with none."""
        if read.task == "query" or not self.spec.skipped or self.model.tokenizer is None:
            return (True,) * len(read.sequence)
        tokenizer = self.model.tokenizer
        ids = {cast(int, tokenizer.convert_tokens_to_ids(word)) for word in self.spec.skipped}
        ids -= {cast(int, tokenizer.unk_token_id)}
        return tuple(number not in ids for number in read.sequence.features["input_ids"])
