"""Sounds for tests. Nothing here is a test."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np


def write_wav(path: Path, samples: np.ndarray, rate: int) -> Path:
    """A wav file of 16 bits, `[sample]` or `[sample, channel]`, by the standard library."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


def tone(pitch: float, seconds: float, rate: int) -> np.ndarray:
    """A sine of half the largest loudness."""
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(int(seconds * rate)) / rate)
