"""A model that is not what its family says is refused, and never explained wrongly."""

from __future__ import annotations

import pytest
from support.tiny_models import padded, tiny
from torch import Tensor, nn
from torch.nn.modules import module as all_modules

import normscope as ns

from .samples import SEQUENCES, assert_same, blocks, marks


def test_a_model_whose_states_are_tampered_with_is_refused_and_not_explained_wrongly() -> None:
    model = tiny("bert")
    blocks(model)[1].output.dense.register_forward_hook(lambda _module, _args, output: output + 0.5)
    assert ns.load(model).analyze(padded(SEQUENCES[:1]), layers=1).layers == [1]
    with pytest.raises(ns.CompletenessError, match=r"layer 2 .* after AttnResLnFf is not .* relative error"):
        ns.load(model).analyze(padded(SEQUENCES[:1]))


def test_a_linear_layer_that_is_wrapped_is_refused_with_a_way_out() -> None:
    model = tiny("bert")
    output = blocks(model)[0].attention.output
    output.dense = nn.Sequential(output.dense)
    before = marks(model)
    with pytest.raises(ns.ModelError, match=r"dense is a Sequential.* merge the adapters"):
        ns.load(model).analyze(padded(SEQUENCES[:1]))
    assert_same(before, marks(model))


def test_a_model_with_renamed_parts_is_refused_when_it_is_loaded() -> None:
    model = tiny("bert")
    for block in blocks(model):
        block.output.norm = block.output.LayerNorm
        del block.output.LayerNorm
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"BertModel have no 'output\.LayerNorm'"):
        ns.load(model)


def test_a_model_without_blocks_where_they_should_be_is_refused_when_it_is_loaded() -> None:
    model = tiny("bert")
    model.encoder = nn.Identity()
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"no blocks at 'encoder\.layer\.\*'"):
        ns.load(model)


def test_a_configuration_with_fewer_layers_than_the_model_is_refused_whenever_it_is_changed() -> None:
    model = tiny("bert")
    analyzer = ns.load(model)
    model.config.num_hidden_layers = 1
    for ask in (lambda: ns.load(model), lambda: analyzer.analyze(padded(SEQUENCES[:1]))):
        with pytest.raises(ns.UnsupportedArchitectureError, match=r"has 2 blocks at 'encoder\.layer\.\*'.* it has 1\."):
            ask()


def test_a_model_that_lost_a_block_after_it_was_loaded_is_refused() -> None:
    analyzer = ns.load(tiny("bert"))
    del blocks(analyzer.model)[1]
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"ran 1 of 2 blocks at 'encoder\.layer\.\*'"):
        analyzer.analyze(padded(SEQUENCES[:1]))


def test_norms_that_compute_in_float32_are_within_the_tolerance_of_float64() -> None:
    analysis = ns.load(tiny("deberta").double()).analyze(padded(SEQUENCES[:1]))
    assert 1e-12 < float(analysis.completeness.max()) < 1e-6


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_hooks_of_all_modules_are_refused_since_nothing_can_be_compared_with_them(register: str) -> None:
    def roll(module: nn.Module, args: tuple[object, ...], *output: object) -> object:
        """The states of other tokens, where a module makes them of ids."""
        (found,) = output or args[:1]
        return found.roll(1, 1) if isinstance(module, nn.Embedding) and isinstance(found, Tensor) else None

    analyzer = ns.load(tiny("bert"))
    handle = getattr(all_modules, register)(roll)
    try:
        with pytest.raises(ns.ModelError, match=r"roll is registered as a forward hook of all modules .* Remove it"):
            analyzer.analyze(padded(SEQUENCES[:1]))
    finally:
        handle.remove()
    assert analyzer.analyze(padded(SEQUENCES[:1])).layers == [1, 2]
