"""Sounds as people have them: wav files of every kind, samples with their rate, and what is no sound."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from support.sounds import tone, write_wav

import normscope as ns
from normscope.inputs.sounds import Sound, read_sound

RATE = 8000


def _wav(path: Path, kind: int, bits: int, data: bytes, *, extensible: bool = False) -> Path:
    header = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, 1, RATE, RATE * bits // 8, bits // 8, bits)
    if extensible:
        header += struct.pack("<HHIH", 22, bits, 4, kind) + bytes(14)
    listed = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # of an odd length, so that a byte is skipped
    chunks = b"fmt " + struct.pack("<I", len(header)) + header + listed + b"data" + struct.pack("<I", len(data)) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    return path


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("kind", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
def test_a_wav_of_every_kind_is_the_sound_that_was_written(
    kind: int, bits: int, extensible: bool, tmp_path: Path
) -> None:
    samples = tone(440, 0.05, RATE)
    if kind == 3:
        data = samples.astype(f"<f{bits // 8}").tobytes()
    elif bits == 8:
        data = np.round(samples * 128 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.round(samples * 2 ** (bits - 1)).astype("<i8")
        data = whole.view(np.uint8).reshape(-1, 8)[:, : bits // 8].tobytes()
    sound = read_sound(_wav(tmp_path / "a.wav", kind, bits, data, extensible=extensible))
    assert sound.rate == RATE
    np.testing.assert_allclose(sound.samples, samples, atol=1 / 128 if bits == 8 else 1e-4)


def test_channels_are_averaged(tmp_path: Path) -> None:
    left, right = tone(440, 0.05, RATE), tone(100, 0.05, RATE)
    sound = read_sound(write_wav(tmp_path / "a.wav", np.stack([left, right], axis=1), RATE))
    np.testing.assert_allclose(sound.samples, (left + right) / 2, atol=1e-3)
    for both in (np.stack([left, right]), np.stack([left, right], axis=1)):
        np.testing.assert_allclose(read_sound((both, RATE)).samples, (left + right) / 2, atol=1e-6)


def test_samples_of_whole_numbers_are_shares_of_the_largest() -> None:
    whole = (tone(440, 0.05, RATE) * 32767).astype(np.int16)
    np.testing.assert_allclose(read_sound({"array": whole, "sampling_rate": RATE}).samples, whole / 32768, atol=1e-7)


@pytest.mark.parametrize(("old", "new"), [(44100, 16000), (8000, 16000), (48000, 16000), (16000, 22050)])
def test_a_tone_is_the_same_tone_at_another_rate(old: int, new: int) -> None:
    made = Sound(tone(440, 0.5, old).astype(np.float32), old).at(new)
    truth = tone(440, 0.5, new)
    inside = slice(new // 20, -new // 20)  # a tone that begins and ends is none at its ends
    assert made.rate == new and abs(len(made.samples) - len(truth)) <= 1
    np.testing.assert_allclose(made.samples[: len(truth)][inside], truth[: len(made.samples)][inside], atol=2e-3)


def test_a_tone_that_the_other_rate_cannot_hold_is_gone() -> None:
    made = Sound(tone(10_000, 0.5, 44100).astype(np.float32), 44100).at(16000)
    assert np.abs(made.samples[800:-800]).max() < 1e-2


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (np.zeros(5), "how fast"),
        ((np.zeros(5), None), "how fast"),
        ((np.zeros(5), 0), "how fast"),
        ((np.zeros(0), 16000), "Samples are numbers"),
        ((np.zeros((2, 3, 4)), 16000), "Samples are numbers"),
        ((np.array(["a"]), 16000), "Samples are numbers"),
        ((np.array([1.0, np.nan]), 16000), "not finite"),
        ("missing.wav", "not a file that can be read"),
    ],
)
def test_what_is_no_sound_is_refused(item: object, message: str) -> None:
    with pytest.raises(ns.InputError, match=message):
        read_sound(item)


@pytest.mark.parametrize("content", [b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEfmt \x02\0\0\0ab", b"text", b""])
def test_a_file_without_samples_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ns.InputError, match=r"a\.wav"):
        read_sound(tmp_path / "a.wav")


def test_a_wav_of_a_kind_that_is_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ns.InputError, match="format 7, 8 bits"):
        read_sound(_wav(tmp_path / "a.wav", 7, 8, bytes(10)))
