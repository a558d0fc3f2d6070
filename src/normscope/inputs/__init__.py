"""What a model reads: texts, pairs, words, encodings, ids, targets and images become token sequences, and those batches."""

from normscope.inputs.batches import Batch, batches
from normscope.inputs.generation import most_probable
from normscope.inputs.images import ImageInput, read_images
from normscope.inputs.reading import Input, encodable, read_ids, read_inputs
from normscope.inputs.sequence import NO_WORD, TokenSequence
from normscope.inputs.targets import Target, decoder_side, own_shift, read_target, read_targets, with_targets

__all__ = [
    "NO_WORD",
    "Batch",
    "ImageInput",
    "Input",
    "Target",
    "TokenSequence",
    "batches",
    "decoder_side",
    "encodable",
    "most_probable",
    "own_shift",
    "read_ids",
    "read_images",
    "read_inputs",
    "read_target",
    "read_targets",
    "with_targets",
]
