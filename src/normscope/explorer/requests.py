"""Parses requests to the web app: analyses to compute, a prediction to explain, texts to compare, or a question to answer.

Owns every error about a request's content. Models are those of the server, by name; a request cannot name a file.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal, cast

from PIL import Image

from normscope.analyzer import Analyzer
from normscope.errors import HeadError, InputError, NormscopeError
from normscope.explorer.payload import MOST_ANALYSES
from normscope.families.heads import head_of, is_bare
from normscope.families.heads.spec import Task
from normscope.inputs import is_image
from normscope.inputs.chat import Chat
from normscope.inputs.text import encodable
from normscope.methods import available_methods
from normscope.models.towers import has_two_towers
from normscope.results.schema import NORMS
from normscope.similarity.encoders import Encoders

_MOST_PIXELS = 25_000_000
_MOST_LABELS = 2**31

MOST_PASSAGES = 50

_BETWEEN_DOCUMENTS = re.compile(r"^\s*-{3,}\s*$", re.MULTILINE)
"""A line of hyphens."""


@dataclass(frozen=True)
class Order:
    """One analysis of a request: what the model reads, what its decoder reads (if it has one), and the method."""

    analyzer: Analyzer
    inputs: str | tuple[str, str] | Image.Image | Chat
    decoder_text: str | None = None
    method: str = NORMS


@dataclass(frozen=True)
class Question:
    """A prediction to explain: a label (by number or name) against another, and the position of the prediction."""

    order: Order
    label: int | str | None
    against: int | str | None
    at: int | None


@dataclass(frozen=True)
class Proof:
    """An explanation to verify: the job that it is from, its number there, and that of its value."""

    job: str
    explanation: int
    target: int


@dataclass(frozen=True)
class Pairing:
    """A text or image to compare with another, or with several passages, which are ranked."""

    analyzer: Analyzer
    first: str | Image.Image
    seconds: list[str | Image.Image]


@dataclass(frozen=True)
class Asking:
    """Documents, a question about them, and its answer, if the model is not to answer itself."""

    analyzer: Analyzer
    documents: list[str]
    question: str
    answer: str | None


def task_of(analyzer: Analyzer) -> Task | None:
    """What the model predicts; `None` for one without a head."""
    try:
        return head_of(analyzer.model).task
    except HeadError:
        return None


def described(name: str, analyzer: Analyzer) -> dict[str, object]:
    """What a page needs to know about a model to request analyses."""
    kind: Literal["text", "image"] = "image" if analyzer.family.reads != "text" else "text"
    return {
        "name": name,
        "reads": kind,
        "decodes": analyzer.family.encoder is not None,
        "task": task_of(analyzer),
        "mask": getattr(analyzer.tokenizer, "mask_token", None) if task_of(analyzer) == "masked-lm" else None,
        "embeds": _embeds(analyzer),
        "answers": _answers(analyzer),
    }


def _embeds(analyzer: Analyzer) -> list[str]:
    """The inputs for which it is known how a model computes embeddings, so they can be compared: `text`, `image` or
    both."""
    try:
        encoders = Encoders.of(analyzer, None)
    except NormscopeError:
        return []
    readers = {"text": analyzer.tokenizer, "image": analyzer.processor}
    return [kind for kind, reader in readers.items() if getattr(encoders, kind) and reader is not None]


def _answers(analyzer: Analyzer) -> bool:
    """Whether a model outputs a text, so that answers can be explained."""
    return task_of(analyzer) in ("causal-lm", "seq2seq-lm") and bool(getattr(analyzer.tokenizer, "is_fast", False))


def check_servable(name: str, analyzer: Analyzer) -> None:
    """Raise for a model that has no tokenizer or image processor, to which a page could send no input."""
    if analyzer.family.reads == "audio":
        raise InputError(f"{name} cannot be served: it reads sounds, and the web app sends texts and images.")
    if analyzer.family.reads == "text" and analyzer.tokenizer is None:
        raise InputError(f"{name} cannot be served: the web app sends texts, and this model came without a tokenizer.")
    if analyzer.family.reads != "text" and analyzer.processor is None:
        raise InputError(f"{name} cannot be served: the web app sends images, and this model came without a processor.")


def _check_head(analyzer: Analyzer) -> None:
    """Raise for a model without a head, or with one that is not known or was initialised at random."""
    try:
        head_of(analyzer.model)
    except HeadError as error:
        bare = "This model has no head, so it has no predictions to explain."
        raise InputError(bare if is_bare(analyzer.model) else str(error)) from error


@dataclass(frozen=True)
class Reader:
    """Parses requests, for given models and texts up to a given length."""

    analyzers: Mapping[str, Analyzer]
    most_characters: int

    def orders(self, content: Mapping[str, object]) -> tuple[list[Order], bool]:
        """The requested analyses, and whether with single heads."""
        entries, heads = content.get("analyses"), content.get("heads", False)
        if not isinstance(entries, list) or not 1 <= len(cast("list[object]", entries)) <= MOST_ANALYSES:
            raise InputError(f"Request one analysis, or {MOST_ANALYSES} to compare.")
        if not isinstance(heads, bool):
            raise InputError("'heads' is true or false.")
        return [self._order(item) for item in cast("list[object]", entries)], heads

    def question(self, content: Mapping[str, object]) -> Question:
        """The prediction to explain."""
        order = self._order(content.get("explain"))
        entry = cast("dict[str, object]", content["explain"])
        _check_head(order.analyzer)
        at = entry.get("at")
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < _MOST_LABELS):
            raise InputError("'at' is the position of a token, from 0.")
        return Question(order, self._label(entry.get("label")), self._label(entry.get("against")), at)

    def proof(self, content: Mapping[str, object]) -> Proof:
        """The explanation whose strongest edges a request wants cut."""
        requested = content.get("verify")
        entry = cast("dict[str, Any]", requested) if isinstance(requested, dict) else {}
        numbers = [entry.get(name, 0) for name in ("explanation", "target")]
        if not isinstance(entry.get("job"), str) or not all(type(each) is int and each >= 0 for each in numbers):
            raise InputError("To verify an explanation, name its 'job' and the numbers of 'explanation' and 'target'.")
        return Proof(entry["job"], *numbers)

    def pairing(self, content: Mapping[str, object]) -> Pairing:
        """What a request wants compared. Every line of a second text that is not empty is a passage."""
        requested = content.get("similarity")
        entry = cast("dict[str, Any]", requested) if isinstance(requested, dict) else {}
        analyzer = self._analyzer(entry)
        Encoders.of(analyzer, None)  # raises where it is not known how embeddings are made
        first, second = self._compared(analyzer, entry, "first"), self._compared(analyzer, entry, "second")
        if isinstance(second, Image.Image):
            return Pairing(analyzer, first, [second])
        passages = [line.strip() for line in second.splitlines() if line.strip()]
        if len(passages) > MOST_PASSAGES:
            raise InputError(f"There are {len(passages)} lines to compare with, and this server takes {MOST_PASSAGES}.")
        return Pairing(analyzer, first, [*passages])

    def _compared(self, analyzer: Analyzer, entry: Mapping[str, Any], side: str) -> str | Image.Image:
        """The text or image of one side, which the model has to embed. A text never names a file."""
        embeds, data = _embeds(analyzer), entry.get(f"{side}_image")
        if "image" in embeds and (data or "text" not in embeds):
            return _image(data)
        if data:
            raise InputError("This model compares texts, and an image was sent.")
        text = self._text(entry.get(side))
        if "image" in embeds and is_image(text):
            raise InputError(f"{text!r} looks like the name of an image, and files are not read here: send the image.")
        return text

    def asking(self, content: Mapping[str, object]) -> Asking:
        """The question that a request wants answered. Lines of hyphens are between documents."""
        requested = content.get("answer")
        entry = cast("dict[str, Any]", requested) if isinstance(requested, dict) else {}
        analyzer = self._analyzer(entry)
        if not _answers(analyzer):
            raise InputError("This model puts out no text, so that it has no answer to explain: choose another.")
        context, question = self._text(entry.get("context")), self._text(entry.get("question"))
        documents = [part.strip() for part in _BETWEEN_DOCUMENTS.split(context) if part.strip()]
        if not documents:
            raise InputError("The context has no text. Type what the question is about.")
        return Asking(analyzer, documents, question, self._text(entry["given"]) if entry.get("given") else None)

    def _label(self, label: object) -> int | str | None:
        if label is None or label == "":
            return None
        if isinstance(label, str) and len(label) <= self.most_characters:
            return encodable(label)
        if isinstance(label, int) and not isinstance(label, bool) and 0 <= label < _MOST_LABELS:
            return label
        raise InputError("A label is a word, a class, or the number of either.")

    def _order(self, item: object) -> Order:
        entry = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        analyzer, method = self._analyzer(entry), entry.get("method", NORMS)
        if method not in [known.name for known in available_methods("layer maps")]:
            raise InputError("This server does not know that method: `normscope methods` lists them.")
        if has_two_towers(analyzer.module):
            analyzer = analyzer.of_stack("image")
        if analyzer.family.reads != "text":
            return Order(analyzer, _image(entry.get("image")), method=method)
        text = self._text(entry.get("text"))
        read = entry.get("decoder_text") or entry.get("target")  # the name in requests of version 0.2
        decoder_text = self._text(read) if read else None
        if decoder_text is not None and analyzer.family.encoder is None:
            raise InputError("This model has no decoder that could read a second text.")
        if not entry.get("pair"):
            return Order(analyzer, text, decoder_text, method)
        return Order(analyzer, (text, self._text(entry["pair"])), decoder_text, method)

    def _analyzer(self, entry: Mapping[str, object]) -> Analyzer:
        model = entry.get("model", next(iter(self.analyzers)))
        if not isinstance(model, str) or model not in self.analyzers:
            raise InputError("This server does not have that model: choose one of those it was started with.")
        return self.analyzers[model]

    def _text(self, text: Any) -> str:
        if not isinstance(text, str) or not text.strip():
            raise InputError("The text is empty. Type at least one word.")
        if len(text) > self.most_characters:
            raise InputError(
                f"The text has {len(text)} characters, and this server takes at most {self.most_characters}."
            )
        return encodable(text)


def _image(data: object) -> Image.Image:
    """An image from base64, decoded completely, of limited size."""
    if not isinstance(data, str) or not data:
        raise InputError("There is no image. Choose one.")
    try:
        image = Image.open(BytesIO(base64.b64decode(data, validate=True)))
        fits = image.width * image.height <= _MOST_PIXELS
        read = image.convert("RGB") if fits else None
    except (OSError, ValueError, SyntaxError, binascii.Error, Image.DecompressionBombError) as error:
        raise InputError("This image cannot be read: send a PNG or a JPEG.") from error
    if read is None:
        raise InputError(f"The image has {image.width} x {image.height} pixels, more than {_MOST_PIXELS} in all.")
    return read
