"""Long sequences: attention weights that are never stored give the same maps, and results may go to disk layer by layer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BartConfig, BartModel, BertConfig, BertModel, GPT2Config, GPT2Model, LlamaConfig, LlamaModel

import normscope as ns
from normscope import capture, passes
from normscope.errors import FileError, InputError

MODELS: dict[str, Any] = {
    "bert": lambda: BertModel(
        BertConfig(vocab_size=50, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3),
        add_pooling_layer=False,
    ),
    "gpt2": lambda: GPT2Model(GPT2Config(vocab_size=50, n_embd=12, n_layer=2, n_head=3)),
    "llama": lambda: LlamaModel(
        LlamaConfig(
            **dict(vocab_size=50, hidden_size=12, intermediate_size=20, num_hidden_layers=2),
            **dict(num_attention_heads=4, num_key_value_heads=2, head_dim=4),
        )
    ),
}
IDS = {"input_ids": torch.arange(5, 45)[None]}


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest) -> ns.Analyzer:
    torch.manual_seed(0)
    return ns.load(MODELS[request.param]().eval())


@pytest.fixture
def blocks_of_seven(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Everything is long; the rows of every attention that was computed are noted."""
    monkeypatch.setattr(passes, "LONG", 2)
    monkeypatch.setattr(capture, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(capture, "_PAIRS_AT_ONCE", 7)
    heights: list[int] = []
    traces_of_rows = capture.TraceBuilder.traces_of_rows

    def noting(self: Any, view: Any, blocks: Any) -> Any:
        for trace in traces_of_rows(self, view, blocks):
            heights.append(len(trace.queries))
            yield trace

    monkeypatch.setattr(capture.TraceBuilder, "traces_of_rows", noting)
    yield heights


def test_maps_by_blocks_of_rows_are_those_of_the_whole(model: ns.Analyzer, request: pytest.FixtureRequest) -> None:
    whole = model.analyze(IDS, heads=True)
    heights = request.getfixturevalue("blocks_of_seven")
    blocks = model.analyze(IDS, heads=True)
    assert heights == 2 * [7, 7, 7, 7, 7, 5]
    for name in ("map", "mixing_ratio", "head_map"):
        np.testing.assert_allclose(blocks.dataset[name], whole.dataset[name], rtol=2e-5, atol=1e-7)
    assert float(blocks.completeness.max()) < 1e-4


def test_more_rows_are_measured_together_where_they_are_shorter() -> None:
    assert [capture.rows_together(length) for length in (1024, 2048, 4096, 100_000)] == [1024, 512, 256, 256]


def test_selected_queries_are_the_only_rows_that_are_computed(model: ns.Analyzer, blocks_of_seven: list[int]) -> None:
    queries = [3, 39, 17]
    selected = model.analyze(IDS, queries=queries)
    assert blocks_of_seven == [3, 3]
    everything = model.analyze(IDS)
    np.testing.assert_allclose(
        selected.dataset["map"], everything.dataset["map"].isel(query=queries), rtol=2e-5, atol=1e-7
    )


def test_other_measures_still_see_the_whole_layer(model: ns.Analyzer, blocks_of_seven: list[int]) -> None:
    model.analyze(IDS, projections=True)
    assert not blocks_of_seven


def test_padding_beside_a_longer_sequence_does_not_matter(blocks_of_seven: list[int]) -> None:
    torch.manual_seed(0)
    analyzer = ns.load(MODELS["bert"]().eval())
    short = {"input_ids": torch.arange(5, 25)[None]}
    alone = analyzer.analyze(short)
    both = analyzer.analyze(
        {"input_ids": torch.stack([torch.arange(5, 45), torch.cat([torch.arange(5, 25), torch.zeros(20).long()])]),
         "attention_mask": torch.tensor([[1] * 40, [1] * 20 + [0] * 20])}
    )  # fmt: skip
    np.testing.assert_allclose(both[1].dataset["map"], alone.dataset["map"], rtol=2e-5, atol=1e-6)
    assert blocks_of_seven


@pytest.mark.parametrize("by_blocks", [False, True])
def test_a_streamed_result_opens_as_any_other(
    model: ns.Analyzer, tmp_path: Path, by_blocks: bool, request: pytest.FixtureRequest
) -> None:
    kept = model.analyze(IDS)
    if by_blocks:
        request.getfixturevalue("blocks_of_seven")
    streamed = model.analyze(IDS, out=tmp_path / "maps.zarr")
    again = ns.open(tmp_path / "maps.zarr")
    for analysis in (streamed, again):
        assert analysis.tokens == kept.tokens
        assert analysis.scopes == kept.scopes
        assert analysis.attrs["fingerprint"] == kept.attrs["fingerprint"]
        for scope in kept.scopes:
            np.testing.assert_allclose(analysis.map(scope), kept.map(scope), rtol=2e-5, atol=1e-7)
        np.testing.assert_allclose(analysis.completeness, kept.completeness, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["maps.zarr"]


def test_an_encoder_decoder_goes_by_rows_and_to_disk(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    torch.manual_seed(0)
    sizes = dict(encoder_layers=2, decoder_layers=2, encoder_ffn_dim=20, decoder_ffn_dim=20, vocab_size=50, d_model=12)
    heads = dict(encoder_attention_heads=3, decoder_attention_heads=3)
    analyzer = ns.load(BartModel(BartConfig(**sizes, **heads)).eval())
    target = {"input_ids": torch.arange(7, 30)[None]}
    kept = analyzer.analyze(IDS, decoder_text=target)
    heights = request.getfixturevalue("blocks_of_seven")
    analyzer.analyze(IDS, decoder_text=target, out=tmp_path / "maps.zarr")
    assert heights.count(5) == 2  # the last rows of the 40 of the encoder, in both layers
    streamed = ns.open(tmp_path / "maps.zarr")
    for part, whole in ((streamed, kept), (streamed.encoder, kept.encoder)):
        assert set(part.dataset.variables) == set(whole.dataset.variables)
        np.testing.assert_allclose(part.dataset["map"], whole.dataset["map"], rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(streamed.dataset["source_mixing_ratio"], kept.dataset["source_mixing_ratio"], rtol=1e-4)


def test_streamed_maps_are_not_in_memory_until_they_are_looked_at(tmp_path: Path) -> None:
    torch.manual_seed(0)
    analyzer = ns.load(MODELS["bert"]().eval())
    streamed = analyzer.analyze(IDS, out=tmp_path / "maps.zarr", queries=[3, 5])
    assert not streamed.dataset["map"].variable._in_memory
    assert streamed.map("Attn").shape == (2, 2, 40)


def test_an_interrupted_stream_leaves_nothing_behind(tmp_path: Path) -> None:
    torch.manual_seed(0)
    analyzer = ns.load(MODELS["bert"]().eval())

    def stop(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        analyzer.analyze(IDS, out=tmp_path / "maps.zarr", on_progress=stop)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    analyzer = ns.load(MODELS["bert"]().eval())
    with pytest.raises(FileError, match=r"\.zarr"):
        analyzer.analyze(IDS, out=tmp_path / "maps.nc")
    with pytest.raises(InputError, match="one input"):
        analyzer.analyze(IDS, out=tmp_path / "maps.zarr", method="alti")
    (tmp_path / "other.zarr").mkdir()
    with pytest.raises(FileError, match="there already"):
        analyzer.analyze(IDS, out=tmp_path / "other.zarr")
    with pytest.raises(FileError, match=r"not a Zarr folder|not written by normscope"):
        ns.open(tmp_path / "other.zarr")


# ---- memory at 4096 tokens ---------------------------------------------------------------------------------------------

MEMORY = """
import resource, sys
import torch
from transformers import BertConfig, BertModel
import normscope as ns

torch.set_num_threads(1)
torch.manual_seed(0)
config = BertConfig(num_hidden_layers=int(sys.argv[2]), max_position_embeddings=4096)
analyzer = ns.load(BertModel(config, add_pooling_layer=False).eval())
ids = torch.randint(1000, 30000, (1, 4096))
asked = {
    "attention": {"scopes": [scope for scope in analyzer.scopes if "Ff" not in scope]},
    "queries": {"queries": list(range(0, 4096, 512))},
    "sketch": {"approximate": "sketch"},
}[sys.argv[1]]
analyzer.analyze({"input_ids": ids[:, :16]})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = analyzer.analyze({"input_ids": ids}, **asked)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024, result.dataset.nbytes)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "layers", "most"),
    [("attention", 2, 1e9), ("queries", 2, 2e9), ("sketch", 1, 4e9)],
    ids=["attention-block maps", "selected queries", "sketch of all queries"],
)
def test_memory_at_4096_tokens_of_a_model_as_wide_as_bert_base(asked: str, layers: int, most: float) -> None:
    """Beside the model: attention-block maps take the result and 1 GB, the others 2 and 4 GB with their result."""
    command = [sys.executable, "-c", MEMORY, asked, str(layers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    taken, result = map(int, done.stdout.split())
    assert taken < most + (result if asked == "attention" else 0)
