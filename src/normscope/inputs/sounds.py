"""Sounds as users have them: a wav file, any file that soundfile reads (if it is installed), or samples with their
rate.

Owns reading, mixing down to one channel, and resampling; knows no model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from normscope.errors import InputError
from normscope.options import is_whole

_One = str | Path | tuple[np.ndarray, int] | tuple[Tensor, int] | Mapping[str, object]

AudioInput = _One | Sequence[_One]
"""What a model of sounds takes: a sound, or several."""


@dataclass(frozen=True)
class Sound:
    """One channel of samples between -1 and 1, and the number of samples per second."""

    samples: Float[np.ndarray, " sample"]
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate

    def at(self, rate: int) -> Sound:
        """The same sound at another number of samples per second."""
        return self if rate == self.rate else Sound(_resampled(self.samples, self.rate, rate), rate)


def read_sound(item: object) -> Sound:
    """A sound from a path, from `(samples, rate)`, or from `{"array": samples, "sampling_rate": rate}`."""
    if isinstance(item, str | Path):
        return _from_file(Path(item))
    if isinstance(item, Mapping):
        entry = cast("Mapping[str, object]", item)
        samples, rate = entry.get("array"), entry.get("sampling_rate")
    elif isinstance(item, tuple) and len(cast("tuple[object, ...]", item)) == 2:
        samples, rate = cast("tuple[object, object]", item)
    else:
        samples, rate = None, None
    if samples is None or not is_whole(rate) or cast(int, rate) <= 0:
        raise InputError(
            f"A sound is the path of a file, samples with their rate as (samples, rate), or an entry with 'array' and "
            f"'sampling_rate', not {item!r:.80}. Samples alone do not say how fast they are."
        )
    values = np.asarray(samples.cpu() if isinstance(samples, Tensor) else samples)
    return Sound(
        _one_channel(_scaled(values), channels_last=values.ndim == 2 and values.shape[1] <= 8), cast(int, rate)
    )


def _scaled(values: np.ndarray) -> np.ndarray:
    """Whole numbers as shares of the largest that their type has."""
    if values.dtype.kind not in "iuf" or values.size == 0 or values.ndim > 2:
        raise InputError(
            f"Samples are numbers [sample] or [sample, channel], not {values.dtype} of shape {values.shape}."
        )
    if values.dtype == np.uint8:
        return (values.astype(np.float32) - 128) / 128
    if values.dtype.kind == "i":
        return values.astype(np.float32) / -float(np.iinfo(values.dtype).min)
    return values.astype(np.float32)


def _one_channel(values: np.ndarray, *, channels_last: bool) -> np.ndarray:
    mono = values if values.ndim == 1 else values.mean(axis=1 if channels_last else 0)
    if not np.isfinite(mono).all():
        raise InputError("The sound has samples that are not finite numbers.")
    return mono


# ---- files -----------------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> Sound:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{str(path)!r} is not a file that can be read: {error.strerror or error}.") from error
    if content[:4] == b"RIFF" and content[8:12] == b"WAVE":
        values, rate = _wav(content, path)
    else:
        values, rate = _by_soundfile(path)
    return Sound(_one_channel(values, channels_last=True), rate)


def _by_soundfile(path: Path) -> tuple[np.ndarray, int]:
    try:
        import soundfile  # noqa: PLC0415  (optional)  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError(
            f"{str(path)!r} is no wav file. Others are read by the package soundfile, which is not installed: install it "
            f"(pip install soundfile), or convert the file to wav."
        ) from error
    library: Any = soundfile
    try:
        values, rate = library.read(str(path), dtype="float32", always_2d=True)
    except Exception as error:  # of its own kinds
        raise InputError(f"{str(path)!r} is not a sound that can be read: {error}") from error
    return values, int(rate)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The parts of a RIFF file by their names; the last may be cut off."""
    start = 12
    while start + 8 <= len(content):
        name, size = content[start : start + 4], int.from_bytes(content[start + 4 : start + 8], "little")
        yield name, content[start + 8 : start + 8 + size]
        start += 8 + size + size % 2


_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def _wav(content: bytes, path: Path) -> tuple[np.ndarray, int]:
    """`[sample, channel]` and the rate, from a wav of whole numbers or of floats."""
    chunks = dict(reversed(list(_chunks(content))))
    header, data = chunks.get(b"fmt ", b""), chunks.get(b"data", b"")
    if len(header) < 16 or not data:
        raise InputError(f"{str(path)!r} is a wav file without samples.")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", header[:16])
    if kind == _EXTENSIBLE and len(header) >= 26:
        kind = int.from_bytes(header[24:26], "little")
    whole = data[: len(data) - len(data) % max(1, channels * bits // 8)]
    if not (channels and rate and whole):
        raise InputError(f"{str(path)!r} is a wav file without samples.")
    match kind, bits:
        case (1, 8):
            values = (np.frombuffer(whole, np.uint8).astype(np.float32) - 128) / 128
        case (1, 24):
            bytes_of = np.frombuffer(whole, np.uint8).reshape(-1, 3)
            padded = np.concatenate([np.zeros((len(bytes_of), 1), np.uint8), bytes_of], axis=1)
            values = padded.view("<i4")[:, 0].astype(np.float32) / 2**31
        case (1, 16 | 32):
            values = np.frombuffer(whole, f"<i{bits // 8}").astype(np.float32) / 2 ** (bits - 1)
        case (3, 32 | 64):
            values = np.frombuffer(whole, f"<f{bits // 8}").astype(np.float32)
        case _:
            raise InputError(f"{str(path)!r} is a wav file of a kind that is not read (format {kind}, {bits} bits).")
    return values.reshape(-1, channels), int(rate)


# ---- resampling ------------------------------------------------------------------------------------------------------

_ZERO_CROSSINGS = 24
_ROLL_OFF = 0.95


def _resampled(samples: np.ndarray, old: int, new: int) -> np.ndarray:
    """By a windowed sinc that passes the frequencies that both rates can represent."""
    common = math.gcd(old, new)
    old, new = old // common, new // common
    cutoff = _ROLL_OFF * min(old, new)
    reach = math.ceil(_ZERO_CROSSINGS * old / cutoff)
    places = torch.arange(-reach, reach + old, dtype=torch.float64)[None] / old
    phases = torch.arange(new, dtype=torch.float64)[:, None] / new
    distance = ((places - phases) * cutoff).clamp(-_ZERO_CROSSINGS, _ZERO_CROSSINGS)
    window = torch.cos(distance * math.pi / _ZERO_CROSSINGS / 2) ** 2
    kernel = torch.sinc(distance) * window * cutoff / old
    padded = functional.pad(torch.from_numpy(samples.astype(np.float64)), (reach, reach + old))
    made = functional.conv1d(padded[None, None], kernel[:, None], stride=old)[0].T.flatten()
    return made[: math.ceil(len(samples) * new / old)].numpy().astype(np.float32)
