"""The space before a word belongs to its token: it is seen wherever the token is named, and missed where it is meant."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from support.tiny_models import shaken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import normscope as ns
from normscope.cli import main
from normscope.output.explanation_page import fragment
from normscope.output.explanation_terminal import explanation_view
from normscope.results.tokens import name_of

WORDS = ("<unk>", "It", "\u0120is", "Paris", "\u0120Paris", "London", "\u0120London", "\u010a", "\u2581Rome", "Rome")
TEXT = "It is"


@pytest.fixture(scope="module")
def analyzer() -> ns.Analyzer:
    """After the text, `" Paris"` is far more probable than anything else."""
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    made.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    size: dict[str, Any] = dict(hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20)
    model = shaken(LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), num_key_value_heads=3, **size)))
    with torch.no_grad():
        state = model.model(torch.tensor([[1, 2]])).last_hidden_state[0, -1]
        model.lm_head.weight[4] = 12 * state / state.square().sum()
    return ns.load(model, tokenizer)


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        (" Paris", "\u2423Paris"),
        ("Paris", "Paris"),
        (" Paris - London", "\u2423Paris - London"),
        (" Paris -  London", "\u2423Paris - \u2423London"),
        ("Paris ", "Paris\u2423"),
        (" ", "\u2423"),
        ("\n", "\u21b5"),
        ("very good", "very good"),
    ],
)
def test_a_name_shows_the_spaces_at_its_ends(name: str, seen: str) -> None:
    assert name_of(name) == seen


def test_the_space_is_seen_on_the_terminal_on_the_page_and_in_pictures(analyzer: ns.Analyzer) -> None:
    explanation = analyzer.explain(TEXT, target=" Paris", against="London")
    console = Console(width=200, record=True, file=StringIO())
    console.print(explanation_view(explanation))
    assert "\u2423Paris rather than London: " in console.export_text()
    assert "The model predicts \u2423Paris " in (console.export_text() or "") or "\u2423Paris" in fragment(explanation)
    shown = fragment(explanation)
    assert "<b>\u2423Paris rather than London: " in shown and "<code>\u2423Paris</code>" in shown
    texts = [text.get_text() for axes in explanation.plot_flow().axes for text in axes.texts]
    assert any("\u2423Paris" in text for text in texts), texts
    assert explanation.targets == [" Paris - London"], "files keep the name as it is"


def test_a_word_whose_twin_with_a_space_is_far_more_probable_is_said(analyzer: ns.Analyzer) -> None:
    explanation = analyzer.explain(TEXT, target="Paris")
    assert explanation.targets == ["Paris"]
    assert "The token 'Paris' without a space before it has probability" in explanation.note
    assert explanation.note.endswith("If that is meant, write --target ' Paris'.")
    assert explanation.note in fragment(explanation).replace("&#39;", "'")
    against = analyzer.explain(TEXT, target=" London", against="Paris")
    assert against.note.endswith("If that is meant, write --against ' Paris'.")


@pytest.mark.parametrize("target", [" Paris", "London", " London", 3, [3], None])
def test_nothing_is_said_where_the_space_is_there_or_the_twin_is_no_likelier(
    analyzer: ns.Analyzer, target: Any
) -> None:
    assert analyzer.explain(TEXT, target=target).note == ""


def test_a_word_with_a_space_is_that_of_a_sentence_piece_vocabulary(analyzer: ns.Analyzer) -> None:
    assert analyzer.explain(TEXT, target=" Rome").values == pytest.approx(analyzer.explain(TEXT, target=8).values)


def test_the_command_says_it(analyzer: ns.Analyzer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    analyzer.model.save_pretrained(tmp_path / "model")
    assert analyzer.tokenizer is not None
    analyzer.tokenizer.save_pretrained(tmp_path / "model")
    with pytest.raises(SystemExit) as ended:
        main(["explain", TEXT, "--target", "Paris", "--model", str(tmp_path / "model")])
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert "write --target ' Paris'" in err and "Paris, compared with what else it might have said: " in out
