"""What a model reads: texts, pairs, words, encodings, ids, targets and images become token sequences, and those batches."""

from normscope.inputs.batches import Batch, batches
from normscope.inputs.images import ImageInput, read_images
from normscope.inputs.reading import Input, read_inputs
from normscope.inputs.sequence import NO_WORD, TokenSequence
from normscope.inputs.targets import decoder_side, own_shift, with_targets

__all__ = [
    "NO_WORD",
    "Batch",
    "ImageInput",
    "Input",
    "TokenSequence",
    "batches",
    "decoder_side",
    "own_shift",
    "read_images",
    "read_inputs",
    "with_targets",
]
