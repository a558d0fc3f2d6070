"""The recipe that rebuilds a Marian tokenizer from a package with one subword model and a shared vocabulary."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from normscope.corpora import bundled
from normscope.corpora.tokenize_pairs import PairTokenizer

RECIPE = Path(__file__).parents[2] / "examples" / "marian_tokenizer.py"

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses, which normalises what the bundled text has not
def test_the_source_is_split_by_its_own_model_and_target_words_of_the_vocabulary_stay_whole(tmp_path: Path) -> None:
    package, model = tmp_path / "package", tmp_path / "model"
    package.mkdir()
    model.mkdir()
    sentencepiece.SentencePieceTrainer.train(
        input=str(bundled()), model_prefix=str(package / "sentencepiece"), vocab_size=300, minloglevel=2
    )
    source = sentencepiece.SentencePieceProcessor(model_file=str(package / "sentencepiece.model"))
    pieces = [source.id_to_piece(number) for number in range(3, source.vocab_size())]
    vocabulary = ["</s>", "<unk>", "\u2581conjecture", *pieces]
    (package / "shared_vocabulary.json").write_text(json.dumps(vocabulary))
    (model / "config.json").write_text(json.dumps({"model_type": "marian"}))
    runpy.run_path(str(RECIPE))["main"](package, model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    text = "the rabbit's conjecture"
    assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])[:-1] == source.encode(text, out_type=str)
    target = tokenizer.convert_ids_to_tokens(tokenizer(text_target=text)["input_ids"])
    assert target[-2:] == ["\u2581conjecture", "</s>"] and "".join(target[:-2]) == "\u2581the\u2581rabbit's"
    assert tokenizer.pad_token_id == len(vocabulary)
    sequence, words = PairTokenizer(tokenizer).read(text.split(), target=True)
    assert sequence.features["input_ids"] == tokenizer(text_target=text)["input_ids"]
    assert (words[-2:].tolist(), sequence.special[-2:]) == ([2, -1], [False, True]) and set(words) == {0, 1, 2, -1}
