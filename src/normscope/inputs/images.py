"""Images as inputs: converted to pixels by the model's own processor, and then to patches as tokens.

A token is a patch, named by its row and column; tokens before the patches (a class token, registers) are special.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from transformers import PreTrainedModel

from normscope.capture import bare_model
from normscope.errors import InputError
from normscope.families.spec import Stage, image_config
from normscope.inputs.sequence import NO_WORD, TokenSequence
from normscope.paths import IMAGES

ImageInput = str | Path | Image.Image | np.ndarray | Tensor | Mapping[str, object]


def read_images(
    inputs: object, model: PreTrainedModel, processor: object | None, stage: Stage | None = None
) -> tuple[list[TokenSequence], bool]:
    """The patch sequences of an image or of a list of images, and whether it was a single image.

    For a pyramid, the tokens are those of one `stage`.
    """
    single = not isinstance(inputs, list | tuple)
    items = [inputs] if single else list(cast(Sequence[object], inputs))
    if not items:
        raise InputError("The list of images is empty. Give at least one.")
    return [_read(item, model, processor, stage) for item in items], single


def is_image(item: object) -> bool:
    """Whether an input is an image and no text: an image, its pixels, a path, or a text that names an image's file."""
    if isinstance(item, Mapping):
        return "pixel_values" in item
    if not isinstance(item, str):
        return isinstance(item, Path | Image.Image | np.ndarray | Tensor)
    if Path(item).suffix.lower().removeprefix(".") not in IMAGES:
        return False
    try:
        return len(item.split()) == 1 or Path(item).is_file()
    except OSError:  # longer than any name
        return False


def _read(item: object, model: PreTrainedModel, processor: Any | None, stage: Stage | None) -> TokenSequence:
    if isinstance(item, Mapping):
        if "pixel_values" not in item:
            raise InputError("An encoded image needs 'pixel_values'.")
        pixels = torch.as_tensor(item["pixel_values"]).float()
        if _reads_patches(model):
            return _packed(pixels, cast("Mapping[str, object]", item).get("spatial_shapes"), model)
        return _patches(pixels[0] if pixels.dim() == 4 else pixels, None, model, stage)
    if processor is None:
        raise InputError(
            "An image was given, but the model was loaded without an image processor. "
            "Give its pixels instead: {'pixel_values': tensor}."
        )
    image = _open(item)
    made = processor(images=image, return_tensors="pt")
    if _reads_patches(model):
        return _packed(made["pixel_values"][0], made["spatial_shapes"][0], model, image)
    pixels = made["pixel_values"][0]
    return _patches(pixels, np.asarray(image.resize((pixels.shape[-1], pixels.shape[-2]))), model, stage)


def _open(item: object) -> Image.Image:
    try:
        if isinstance(item, Image.Image):
            return item.convert("RGB")
        if isinstance(item, str | Path):
            return Image.open(item).convert("RGB")
        values = np.asarray(item.cpu() if isinstance(item, Tensor) else item)
        if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3):
            values = values.transpose(1, 2, 0)
        if values.dtype != np.uint8:
            values = (255 * np.clip(values, 0, 1)).astype(np.uint8)
        return Image.fromarray(values.squeeze()).convert("RGB")
    except (OSError, UnidentifiedImageError, TypeError, ValueError) as error:
        raise InputError(f"{item!r:.80} is not an image that can be read: {error}") from error


def noise(model: PreTrainedModel, count: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Random pixels of the shape that a model reads."""
    config = image_config(model.config)
    if _reads_patches(model):
        shape, width = (3, 4), config.num_channels * config.patch_size**2
        pixels = torch.randn(count, shape[0] * shape[1], width, generator=generator)
        mask = torch.ones(pixels.shape[:2], dtype=torch.long)
        return {"pixel_values": pixels, "spatial_shapes": torch.tensor([shape] * count), "pixel_attention_mask": mask}
    size = config.image_size
    height, width = (size, size) if isinstance(size, int) else size
    return {"pixel_values": torch.randn(count, config.num_channels, height, width, generator=generator)}


def _reads_patches(model: PreTrainedModel) -> bool:
    """Whether a model reads a list of patches, whose number differs from image to image, instead of a picture (SigLIP
    2)."""
    bare = bare_model(model)
    tower = getattr(bare, "vision_model", bare)
    return hasattr(getattr(tower, "embeddings", None), "resize_positional_embeddings")


def _packed(pixels: Tensor, shape: object, model: PreTrainedModel, image: Image.Image | None = None) -> TokenSequence:
    """The patches of an image, without padding."""
    if shape is None:
        raise InputError("An encoded image of this model needs 'spatial_shapes': how many rows and columns of patches.")
    rows, columns = (int(number) for number in torch.as_tensor(shape).flatten())
    pixels = pixels[0] if pixels.dim() == 3 else pixels
    if not 0 < rows * columns <= len(pixels):
        raise InputError(f"The image has {len(pixels)} patches, not {rows} rows and {columns} columns of them.")
    size = int(image_config(model.config).patch_size)
    shown = None if image is None else np.asarray(image.resize((columns * size, rows * size)))
    signal = {
        "pixel_values": pixels[: rows * columns],
        "spatial_shapes": torch.tensor([rows, columns]),
        "pixel_attention_mask": torch.ones(rows * columns, dtype=torch.long),
    }
    return _sequence([], rows, columns, signal, shown)


def _patches(pixels: Tensor, image: np.ndarray | None, model: PreTrainedModel, stage: Stage | None) -> TokenSequence:
    """The tokens that the model makes of an image: its special tokens, then the patches row by row."""
    pixels = pixels.to(model.dtype)  # not all models convert them
    if stage is not None:  # every token there is, of an image that was padded to whole ones
        rows, columns = (-(-length // stage.pixels) for length in pixels.shape[-2:])
        return _sequence(list(stage.special), rows, columns, {"pixel_values": pixels}, image)
    size = image_config(model.config).patch_size
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    rows, columns = pixels.shape[-2] // height, pixels.shape[-1] // width
    return _sequence(_special_tokens(model), rows, columns, {"pixel_values": pixels}, image)


def _sequence(
    special: list[str], rows: int, columns: int, signal: dict[str, Tensor], image: np.ndarray | None
) -> TokenSequence:
    patches = [(row, column) for row in range(rows) for column in range(columns)]
    tokens = [*special, *(f"{row},{column}" for row, column in patches)]
    return TokenSequence(
        features={},
        tokens=tokens,
        special=[True] * len(special) + [False] * len(patches),
        word_ids=[NO_WORD] * len(special) + list(range(len(patches))),
        words=tokens,
        text="",
        signal=signal,
        image=image,
        grid=[(-1, -1)] * len(special) + patches,
    )


def _special_tokens(model: PreTrainedModel) -> list[str]:
    bare = bare_model(model)
    tower = getattr(bare, "vision_model", bare)
    embeddings = getattr(tower, "embeddings", None)
    names = (("cls_token", "[CLS]"), ("class_embedding", "[CLS]"), ("distillation_token", "[DIST]"))
    found = [name for attribute, name in names if isinstance(getattr(embeddings, attribute, None), Tensor)]
    registers = getattr(embeddings, "register_tokens", None)
    count = registers.shape[1] if isinstance(registers, Tensor) else 0
    return found + [f"[REG{index + 1}]" for index in range(count)]
