"""Converts texts, pairs, words, encodings, ids, targets and images to token sequences, and groups those into batches."""

from collections.abc import Sequence

from normscope.inputs.audio import read_audio
from normscope.inputs.chat import Chat, chat_sequence, is_chat, read_texts_or_chats
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
from normscope.inputs.sequence import NO_SEGMENT, NO_WORD, NOWHERE, Batch, TokenSequence, batches
from normscope.inputs.sounds import AudioInput
from normscope.inputs.text import AS_TEXTS, Input, Reading, encodable, read_ids, read_inputs

AnyInput = Input | Chat | Sequence[Chat] | ImageInput | AudioInput
"""Whatever a model may be given: texts, encodings, chats, images or sounds."""

__all__ = [
    "AS_TEXTS",
    "NOWHERE",
    "NO_SEGMENT",
    "NO_WORD",
    "AnyInput",
    "AudioInput",
    "Batch",
    "Chat",
    "DecoderText",
    "ImageInput",
    "Input",
    "Reading",
    "TokenSequence",
    "batches",
    "chat_sequence",
    "decoder_side",
    "encodable",
    "is_chat",
    "is_image",
    "most_probable",
    "own_shift",
    "read_audio",
    "read_ids",
    "read_images",
    "read_inputs",
    "read_target",
    "read_targets",
    "read_texts_or_chats",
    "with_targets",
]
