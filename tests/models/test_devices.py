"""Models that are loaded with a device map: weights that stay on disk, and what is refused with which words."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from support.tiny_architectures import GROUPED_EXPERTS
from support.tiny_heads import tiny_head
from support.tiny_models import HEADS, tiny, token_ids

import normscope as ns
from normscope.models.options import ModelOptions


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model."""
    folder = tmp_path_factory.mktemp("saved")
    tiny("bert", auto=HEADS["token classification"]).save_pretrained(folder)
    return folder


def test_a_model_that_is_left_on_disk_is_read_from_there(saved: Path) -> None:
    ids = {"input_ids": token_ids(6)}
    device_map = {
        "bert.embeddings": "cpu",
        "bert.encoder.layer.0": "cpu",
        "bert.encoder.layer.1": "disk",
        "classifier": "disk",
    }
    whole, spread = ns.load(saved), ns.load(saved, device_map=device_map)
    left = [name for name, parameter in spread.model.named_parameters() if parameter.is_meta]
    assert "classifier.weight" in left
    assert spread.facts == whole.facts
    for ask in (ns.Analyzer.analyze, partial(ns.Analyzer.explain, target=0, at=2)):
        expected: Any = ask(whole, ids)
        given: Any = ask(spread, ids)
        xr.testing.assert_equal(given.dataset, expected.dataset)
    assert left == [name for name, parameter in spread.model.named_parameters() if parameter.is_meta]


def test_a_mixture_of_experts_on_disk_is_refused_until_its_weights_are_written_there(tmp_path: Path) -> None:
    model = tiny_head("mixtral", "MixtralForCausalLM", **GROUPED_EXPERTS)
    model.save_pretrained(tmp_path)
    with pytest.raises(ns.ModelError, match="does not fit: its device map leaves weights on disk"):
        ns.load(tmp_path, device_map={"": "disk"})
    spread = type(model).from_pretrained(tmp_path, device_map={"": "disk"}, offload_folder=str(tmp_path / "disk"))
    ids = {"input_ids": token_ids(6)}
    expected: Any = ns.load(tmp_path).analyze(ids)
    given: Any = ns.load(spread).analyze(ids)
    xr.testing.assert_equal(given.dataset, expected.dataset)


def test_a_device_map_by_name_uses_what_there_is(saved: Path) -> None:
    analyzer = ns.Analyzer.from_options(ModelOptions(str(saved), device_map="auto"))
    assert analyzer.facts == ns.load(saved).facts


def test_a_device_map_that_cannot_be_followed_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ns.InputError, match=r"no device map 'autos'.*Did you mean 'auto'\?"):
        ns.load(saved, device_map="autos")
    with pytest.raises(ns.InputError, match="Leave out one of the two"):
        ns.load(saved, device_map="auto", device="cpu")
    with pytest.raises(ns.ModelError, match="spread it when you load it"):
        ns.load(tiny("bert"), device_map="auto")
    with pytest.raises(ns.ModelError, match=r"could not be loaded: .*nowhere"):
        ns.load(saved, device_map={"bert": "nowhere", "classifier": "cpu"})
    monkeypatch.setattr("normscope.errors.find_spec", lambda name: None)
    with pytest.raises(ns.InputError, match=r"pip install 'normscope\[accelerate\]'"):
        ns.load(saved, device_map="auto")
