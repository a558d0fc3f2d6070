"""Sounds as inputs: converted by the model's own feature extractor, and then to frames as tokens.

A token is a frame, named by the time at which it begins. Frames of the silence that fills an input up to the length that a
model wants are special, as are tokens before the frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from normscope.errors import InputError
from normscope.families.spec import Config
from normscope.inputs.sequence import NO_WORD, TokenSequence
from normscope.inputs.sounds import Sound, read_sound

_HOP, _RATE = 160, 16000
"""Samples from one mel frame to the next, and samples in a second, where no feature extractor says so."""


def read_audio(inputs: object, model: PreTrainedModel, extractor: object | None) -> tuple[list[TokenSequence], bool]:
    """The frame sequences of a sound or of a list of sounds, and whether it was a single one."""
    single = not isinstance(inputs, list)
    items = [inputs] if single else list(cast("Sequence[object]", inputs))
    if not items:
        raise InputError("The list of sounds is empty. Give at least one.")
    return [_read(item, model, extractor) for item in items], single


def argument(model: PreTrainedModel) -> str:
    """The name of what a model reads: its samples, or features of them."""
    return str(model.main_input_name)


def noise(model: PreTrainedModel, count: int, generator: torch.Generator) -> Tensor:
    """Random numbers of the shape that a model reads, as short as it takes them."""
    config: Config = model.config
    if _is_waveform(model):
        shape = (_shortest(config),)
    elif hasattr(config, "time_stride"):
        shape = (config.max_length, config.num_mel_bins)
    else:
        shape = (config.num_mel_bins, 2 * config.max_source_positions)
    return torch.randn(count, *shape, generator=generator)


def _shortest(config: Config, frames: int = 9) -> int:
    """The number of samples that a number of frames takes."""
    count = frames
    for kernel, stride in zip(reversed(config.conv_kernel), reversed(config.conv_stride), strict=True):
        count = (count - 1) * stride + kernel
    return count


def _read(item: object, model: PreTrainedModel, extractor: Any | None) -> TokenSequence:
    name = argument(model)
    if isinstance(item, Mapping) and "array" not in item:
        entry = cast("Mapping[str, object]", item)
        if name not in entry:
            raise InputError(f"An encoded sound needs {name!r}, which is what {type(model).__name__} reads.")
        features = torch.as_tensor(entry[name]).float()
        whole = 2 if name == "input_values" and _is_waveform(model) else 3
        return _frames(features[0] if features.dim() == whole else features, None, model, extractor)
    if extractor is None:
        raise InputError(
            f"A sound was given, but the model was loaded without a feature extractor. Give what it reads instead: "
            f"{{{name!r}: tensor}}."
        )
    rate = int(extractor.sampling_rate)
    sound = read_sound(item).at(rate)
    _check_length(sound, extractor)
    features = extractor(sound.samples, sampling_rate=rate, return_tensors="pt")[name][0]
    return _frames(features, sound.seconds, model, extractor)


def _check_length(sound: Sound, extractor: object) -> None:
    most = getattr(extractor, "n_samples", None)
    longest = most / sound.rate if most is not None else _spectrogram_seconds(extractor)
    if longest is not None and sound.seconds > longest:
        raise InputError(
            f"The sound lasts {sound.seconds:.2f} s, but the model reads {longest:.2f} s at most. Cut it into pieces."
        )


def _spectrogram_seconds(extractor: object) -> float | None:
    """How long a sound may be for a model that reads a picture of it (AST); it has ten milliseconds in a column."""
    frames = getattr(extractor, "max_length", None)
    return None if frames is None or not hasattr(extractor, "num_mel_bins") else 0.01 * float(frames) + 0.015


def _frames(features: Tensor, seconds: float | None, model: PreTrainedModel, extractor: Any | None) -> TokenSequence:
    """The tokens that the model makes of its input; `seconds` is how long the sound itself lasts, if that is known."""
    special, times, bands = _times(features, model, extractor)
    if not times:
        raise InputError("The sound is too short for the model to make a single frame of it.")
    names = [f"{time:.2f}s" if band is None else f"{time:.2f}s/{band}" for time, band in zip(times, bands, strict=True)]
    silent = [seconds is not None and time >= seconds for time in times]
    tokens = [*special, *names]
    return TokenSequence(
        features={},
        tokens=tokens,
        special=[True] * len(special) + silent,
        word_ids=[NO_WORD] * len(special)
        + [NO_WORD if quiet else int(t) for t, quiet in zip(times, silent, strict=True)],
        words=[*special, *(f"{int(time)}s" for time in times)],
        text="",
        signal={argument(model): features.to(model.dtype)},  # not all models convert it
        times=[math.nan] * len(special) + times,
    )


def _times(
    features: Tensor, model: PreTrainedModel, extractor: Any | None
) -> tuple[list[str], list[float], list[int | None]]:
    """Names of the tokens before the frames, the time of each frame, and the band of frequencies, where frames have one."""
    config: Config = model.config
    rate = int(getattr(extractor, "sampling_rate", _RATE))
    if _is_waveform(model):
        count = int(cast(Any, model.base_model)._get_feat_extract_output_lengths(features.shape[-1]))
        step = math.prod(config.conv_stride) / rate
        return [], [index * step for index in range(count)], [None] * count
    if hasattr(config, "time_stride"):
        return _patches(config)
    step = 2 * getattr(extractor, "hop_length", _HOP) / rate  # the second convolution takes every other frame
    count = features.shape[-1] // 2
    return [], [index * step for index in range(count)], [None] * count


def _is_waveform(model: PreTrainedModel) -> bool:
    return hasattr(model.config, "conv_stride")


def _patches(config: Config) -> tuple[list[str], list[float], list[int | None]]:
    """For a spectrogram, band by band, with two tokens before them; a column is ten milliseconds."""
    size = config.patch_size
    bands = (config.num_mel_bins - size) // config.frequency_stride + 1
    columns = (config.max_length - size) // config.time_stride + 1
    places = [(band, column) for band in range(bands) for column in range(columns)]
    times = [0.01 * config.time_stride * column for _, column in places]
    return ["[CLS]", "[DIST]"], times, [band for band, _ in places]
