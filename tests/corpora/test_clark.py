"""The attention data of Clark et al.: a pickle of Python 2, also for models with another tokenizer."""

from __future__ import annotations

import pickle
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from normscope.corpora import Corpus, Encoder, Problems, Record, bundled

TOKENS = ["[CLS]", "the", "cafe", "##s", "did", "well", ",", "too", ".", "[SEP]", "it", "rained", ".", "[SEP]"]


class Python2Pickler(pickle._Pickler):  # pyright: ignore[reportAttributeAccessIssue, reportUntypedBaseClass]
    """Writes strings and arrays as Python 2 did: as bytes in opcodes of their own."""

    def save_string(self, value: str | bytes) -> None:
        raw = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch = {  # noqa: RUF012
        **pickle._Pickler.dispatch,  # pyright: ignore[reportAttributeAccessIssue]
        str: save_string,
        bytes: save_string,
    }


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """One sequence with its attention, as in the original: the bytes of the array are no ASCII."""
    rows = [{"tokens": TOKENS, "attns": np.linspace(0, 1, 14, dtype=np.float16)}]
    content = BytesIO()
    Python2Pickler(content, protocol=2).dump(rows)
    path = tmp_path / "unlabeled_attn.pkl"
    path.write_bytes(content.getvalue())
    with pytest.raises(UnicodeDecodeError):
        pickle.loads(path.read_bytes())
    return path


@pytest.fixture(scope="module")
def roberta() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that frames a pair as RoBERTa does: `<s> A </s></s> B </s>`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(bundled().read_text().splitlines(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<s>",
        sep_token="</s>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        mask_token="<mask>",
    )


def test_a_pickle_of_python_2_is_read(pickled: Path, analyzer: Any) -> None:
    (record,) = Corpus(str(pickled), allow_pickle=True).records(Problems())
    assert record.tokens == tuple(TOKENS)
    (item,) = Corpus(str(pickled), allow_pickle=True).items(analyzer.tokenizer, Problems())
    assert item.sequence.tokens == TOKENS


def test_another_tokenizer_reads_the_decoded_pair(pickled: Path, roberta: PreTrainedTokenizerFast) -> None:
    (item,) = Corpus(str(pickled), allow_pickle=True).items(roberta, Problems())
    expected = roberta("the cafes did well, too.", "it rained.")["input_ids"]
    assert item.sequence.features["input_ids"] == expected
    assert item.sequence.tokens.count("</s>") == 3 and item.sequence.tokens[0] == "<s>"
    assert sum(item.sequence.special) == 4


def test_a_single_text_is_decoded_too_and_other_frames_are_refused(roberta: PreTrainedTokenizerFast) -> None:
    problems = Problems()
    encoder = Encoder(roberta, problems, max_tokens=64)
    single = Record("f: sequence 1", tokens=("[CLS]", "it", "rained", "[SEP]"))
    three = Record("f: sequence 2", tokens=("[CLS]", "a", "[SEP]", "b", "[SEP]", "c", "[SEP]"))
    (item,) = encoder.items([single, three])
    assert item.sequence.features["input_ids"] == roberta("it rained")["input_ids"]
    assert problems.counts == {"malformed row": 1}
