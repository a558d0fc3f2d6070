"""Converts texts, pairs, words, encodings, ids, targets and images to token sequences, and groups those into batches."""

from normscope.inputs.audio import read_audio
from normscope.inputs.decoder import (
    DecoderText,
    decoder_side,
    most_probable,
    own_shift,
    read_target,
    read_targets,
    with_targets,
)
from normscope.inputs.images import ImageInput, is_image, read_images
from normscope.inputs.sequence import NO_SEGMENT, NO_WORD, Batch, TokenSequence, batches
from normscope.inputs.sounds import AudioInput
from normscope.inputs.text import AS_TEXTS, Input, Reading, encodable, read_ids, read_inputs

__all__ = [
    "AS_TEXTS",
    "NO_SEGMENT",
    "NO_WORD",
    "AudioInput",
    "Batch",
    "DecoderText",
    "ImageInput",
    "Input",
    "Reading",
    "TokenSequence",
    "batches",
    "decoder_side",
    "encodable",
    "is_image",
    "most_probable",
    "own_shift",
    "read_audio",
    "read_ids",
    "read_images",
    "read_inputs",
    "read_target",
    "read_targets",
    "with_targets",
]
