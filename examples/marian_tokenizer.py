"""Rebuild a tokenizer for a Marian model that was distributed without one: as CTranslate2 packages are, with the subword
model of the source language (`sentencepiece.model`) and the shared vocabulary (`shared_vocabulary.json`) alone.

    python examples/marian_tokenizer.py PACKAGE MODEL        (then: normscope run alignment --model MODEL ...)

The source side is exact. The target side has no subword model, so one is made: the pieces of the shared vocabulary, which is
sorted by frequency, with the logarithm of Zipf's law as their scores. A word that is a piece stays whole, as in training; a
rare word may be split in another way. Needs sentencepiece to be used.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

UNKNOWN, CONTROL = 2, 3
PIECES = 1  # the number of the field of a sentencepiece model that holds its pieces


def main(package: Path, model: Path) -> None:
    source = (package / "sentencepiece.model").read_bytes()
    vocabulary = json.loads((package / "shared_vocabulary.json").read_text(encoding="utf-8"))
    (model / "source.spm").write_bytes(source)
    (model / "target.spm").write_bytes(with_pieces(source, vocabulary))
    numbers = {piece: number for number, piece in enumerate([*vocabulary, "<pad>"])}
    (model / "vocab.json").write_text(json.dumps(numbers, ensure_ascii=False), encoding="utf-8")
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False, "model_max_length": 512}
    (model / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def with_pieces(spm: bytes, vocabulary: list[str]) -> bytes:
    """A sentencepiece model with other pieces: its normalisation and settings stay."""
    pieces = [piece_field("<unk>", 0.0, UNKNOWN), piece_field("<s>", 0.0, CONTROL), piece_field("</s>", 0.0, CONTROL)]
    ranked = [piece for piece in vocabulary if piece not in ("<unk>", "<s>", "</s>")]
    pieces += [piece_field(piece, -math.log(rank)) for rank, piece in enumerate(ranked, 1)]
    return b"".join([*pieces, *(field for number, field in fields(spm) if number != PIECES)])


def piece_field(piece: str, score: float, kind: int = 1) -> bytes:
    """A piece as protocol buffers write it: its text, score and kind."""
    text = piece.encode()
    body = b"\x0a" + varint(len(text)) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + varint(kind)
    return b"\x0a" + varint(len(body)) + body


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message, each with its number. Those of a sentencepiece model have a length."""
    place = 0
    while place < len(message):
        start, size, shift = place, 0, 0
        tag = message[place]
        if tag & 7 != 2:
            raise SystemExit("This is not a sentencepiece model.")
        place += 1
        while True:
            byte = message[place]
            size |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                break
        place += size
        yield tag >> 3, message[start:place]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
