"""The encoders of the inputs of a comparison: one model, or two towers, one for images and one for texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from normscope.errors import InputError, listing
from normscope.families.heads import heads, is_bare
from normscope.inputs import AS_TEXTS, Reading, is_image
from normscope.models.model import Model
from normscope.models.towers import towers_of
from normscope.options import LATE_INTERACTION, Pooling
from normscope.similarity.folder import folder_reading, folder_spec
from normscope.similarity.plain import Rows, embeddings
from normscope.similarity.spec import MODES, EmbeddingSpec, Task, named_pooling
from normscope.similarity.texts import TextInput, TextReader, read_image
from normscope.similarity.towers import class_spec, tower_spec

_T = TypeVar("_T")


@dataclass(frozen=True)
class Encoder:
    """A model, or one tower of it, and how it makes an embedding of its last states."""

    model: Model
    spec: EmbeddingSpec


@dataclass(frozen=True)
class Encoders:
    """The encoders of images and of texts. A model without towers has one of the two."""

    name: str
    text: Encoder | None = None
    image: Encoder | None = None

    @classmethod
    def of(cls, model: Model, pooling: Pooling | None) -> Encoders:
        """Those of a model, with the pooling requested or as the model's class or files say."""
        towers = towers_of(model)
        if towers is None:
            encoder = Encoder(model, embedding_spec(model, pooling))
            return cls(model.name, **{model.family.reads: encoder})
        if pooling is not None:
            raise InputError(
                f"{model.name} has a pooling of its own for images and for texts: leave out pooling (--pooling)."
            )
        texts, images = towers.text, towers.image
        return cls(
            model.name,
            Encoder(texts, tower_spec(model, texts, "text")),
            Encoder(images, tower_spec(model, images, "image")),
        )

    @property
    def main(self) -> Encoder:
        """The one that reads texts, if there is one."""
        encoder = self.text or self.image
        assert encoder is not None
        return encoder

    @property
    def family(self) -> str:
        """The family, or both."""
        return " + ".join(each.model.family.name for each in (self.image, self.text) if each is not None)

    def encoder(self, read: TextInput) -> Encoder:
        """The one that reads an input."""
        encoder = self.image if read.is_image else self.text
        assert encoder is not None
        return encoder

    def reader(self, reading: Reading = AS_TEXTS) -> InputReader:
        """Reads texts and images for these encoders."""
        return InputReader(self, reading)

    def embeddings(self, inputs: Sequence[TextInput], tell: Callable[[int, int], None] | None = None) -> list[Rows]:
        """The embedding of every input, in their order."""
        return self.by_encoder(inputs, lambda each, some: embeddings(each.model, each.spec, some, tell))

    def by_encoder(
        self, inputs: Sequence[TextInput], compute: Callable[[Encoder, list[TextInput]], list[_T]]
    ) -> list[_T]:
        """The results for all images and for all texts, in the order of the inputs."""
        found: dict[int, _T] = {}
        for images in (False, True):
            places = [index for index, each in enumerate(inputs) if each.is_image == images]
            if places:
                some = [inputs[index] for index in places]
                found |= zip(places, compute(self.encoder(some[0]), some), strict=True)
        return [found[index] for index in range(len(inputs))]


class InputReader:
    """Reads texts and images, each as the encoder that it is for."""

    def __init__(self, encoders: Encoders, reading: Reading) -> None:
        self.encoders = encoders
        text = encoders.text
        self.texts = None if text is None else TextReader(text.model, text.spec, reading)

    def read(self, given: Any, task: Task | None = None, prompt: str | None = None) -> TextInput:
        """One text or image."""
        name, images = self.encoders.name, self.encoders.image
        if images is not None and (self.texts is None or is_image(given)):
            if isinstance(given, str) and not is_image(given):
                raise InputError(f"{name} reads images, and {given!r:.60} is a text, not the file of an image.")
            return read_image(images.model, given, prompt)
        if self.texts is None or (is_image(given) and not isinstance(given, str)):
            raise InputError(f"An image was given, but {name} reads text.")
        return self.texts.read(given, task, prompt)


def embedding_spec(model: Model, pooling: Pooling | None) -> EmbeddingSpec:
    """How a model makes embeddings: by the pooling requested, or as its class or the files next to it say."""
    if pooling is not None:
        return named_pooling(pooling, folder_reading(model))
    spec = class_spec(model) or folder_spec(model)
    if spec is not None:
        return spec
    if is_cross_encoder(model):
        raise InputError(
            f"{model.name} is a classifier that reads two texts together (a cross-encoder), so that no text has an "
            f"embedding of its own: explain its score instead, analyzer.explain((first, second)) (normscope explain FIRST "
            f"--pair SECOND)."
        )
    raise InputError(
        f"Nothing says how the states of {model.name} become an embedding: there is no modules.json of "
        f"sentence-transformers next to it. Name a pooling (pooling=, --pooling): {listing((*MODES, LATE_INTERACTION))}."
    )


def is_cross_encoder(model: Model) -> bool:
    """Whether a model classifies texts, or pairs of them, and nothing says how it makes embeddings."""
    if is_bare(model.module) or folder_spec(model) is not None:
        return False
    names = [ancestor.__name__ for ancestor in type(model.module).__mro__]
    return any(name in heads() and name.endswith("ForSequenceClassification") for name in names)
