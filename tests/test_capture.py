"""Capture leaves no mark on a model, whatever happens inside, and holds one layer at a time."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import ENCODERS, HEADS, capture_with, padded, tiny, token_ids, traces
from torch import Tensor, nn
from transformers import PreTrainedModel

import normscope as ns
from normscope import passes
from normscope.materialised import oracle
from normscope.trace import Attention, LayerTrace, Normalise, ValueSource

ONE_OF_EACH_ATTENTION = pytest.mark.parametrize("model_type", ["bert", "albert", "mpnet"])
"""Attention through the interface, in shared modules, and by hooks with split or fused values."""

SEQUENCES = token_ids(6, 4)


def blocks(model: PreTrainedModel) -> nn.ModuleList:
    """The blocks of a BERT-like model."""
    return model.base_model.encoder.layer


# ---- the model as it was -----------------------------------------------------------------------------------------------


def marks(model: PreTrainedModel) -> dict[str, Any]:
    """Everything about a model that an analysis could leave changed."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    return {
        "parameters": {name: (p.detach().clone(), p.requires_grad, p.grad) for name, p in model.named_parameters()},
        "buffers": {name: buffer.clone() for name, buffer in model.named_buffers()},
        "training": {name: module.training for name, module in model.named_modules()},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "hooks": {
            (name, kind): list(registered)
            for name, module in model.named_modules()
            for kind, registered in vars(module).items()
            if kind.endswith(("hooks", "hooks_with_kwargs", "hooks_always_called"))
        },
        "forwards": {name: module.forward.__func__ for name, module in model.named_modules()},
        "configurations": {
            key: (copy.deepcopy(vars(config)), config._attn_implementation) for key, config in configs.items()
        },
        "random state": torch.get_rng_state(),
    }


def assert_same(before: object, after: object, where: str = "") -> None:
    """Bit for bit."""
    assert type(before) is type(after), where
    match before:
        case dict():
            assert list(before) == list(after), where
            for key, value in before.items():
                assert_same(value, after[key], f"{where} {key}")
        case tuple() | list():
            assert len(before) == len(after), where
            for place, value in enumerate(before):
                assert_same(value, after[place], f"{where} {place}")
        case Tensor():
            assert torch.equal(before, after), where
        case _:
            assert before == after, where


def outputs(model: PreTrainedModel) -> list[Tensor]:
    """What the model itself answers, with the dropout of its present mode."""
    torch.manual_seed(3)
    with torch.no_grad():
        return list(model(**padded(SEQUENCES, model.config.pad_token_id), output_hidden_states=True).hidden_states)


def partly_training(model: PreTrainedModel) -> PreTrainedModel:
    """Some modules in training mode, some not, so that a mere `train()` afterwards would be noticed."""
    for place, module in enumerate(model.modules()):
        module.training = place % 3 == 0
    return model


@pytest.fixture(params=["eager", "sdpa"])
def attention(request: pytest.FixtureRequest) -> str:
    return request.param


def with_any_head(model_type: str, attention: str | None) -> PreTrainedModel:
    hooked = model_type in ("mpnet", "deberta", "deberta-v2")  # these know no other implementation
    return tiny(model_type, auto=HEADS["masked LM"], attention=None if hooked else attention)


@pytest.mark.parametrize("model_type", ENCODERS)
def test_an_analysis_leaves_the_model_exactly_as_it_was(model_type: str, attention: str) -> None:
    model = partly_training(with_any_head(model_type, attention))
    expected = outputs(model)
    before = marks(model)
    ns.load(model).analyze(padded(SEQUENCES), heads=True)
    assert_same(before, marks(model))
    assert_same(expected, outputs(model))


@ONE_OF_EACH_ATTENTION
def test_mixing_ratios_leave_the_model_exactly_as_it_was(model_type: str, attention: str) -> None:
    model = partly_training(with_any_head(model_type, attention))
    before = marks(model)
    ns.load(model).mixing_ratios(padded(SEQUENCES))
    assert_same(before, marks(model))


@ONE_OF_EACH_ATTENTION
def test_a_refused_result_leaves_the_model_exactly_as_it_was(
    model_type: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(passes.TOLERANCE, torch.float32, 0.0)
    model = partly_training(with_any_head(model_type, attention))
    expected = outputs(model)
    before = marks(model)
    with pytest.raises(ns.CompletenessError, match=r"layer 1 .* relative error .*tolerance 0e\+00 for float32"):
        ns.load(model).analyze(padded(SEQUENCES))
    assert_same(before, marks(model))
    assert_same(expected, outputs(model))


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
@ONE_OF_EACH_ATTENTION
def test_an_exception_in_a_consumer_passes_through_and_leaves_the_model_as_it_was(
    model_type: str, error: type[BaseException]
) -> None:
    model = partly_training(with_any_head(model_type, None))
    before = marks(model)

    def consume(layer: int, sequence: int, _: LayerTrace) -> None:
        if (layer, sequence) == (2, 1):
            raise error

    with pytest.raises(error):
        capture_with(model, SEQUENCES, consume)
    assert_same(before, marks(model))


def test_an_exception_inside_the_model_passes_through_and_leaves_the_model_as_it_was(attention: str) -> None:
    model = partly_training(with_any_head("bert", attention))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    blocks(model)[1].attention.output.dense.register_forward_hook(interrupt)
    before = marks(model)
    with pytest.raises(KeyboardInterrupt):
        ns.load(model).analyze(padded(SEQUENCES))
    assert_same(before, marks(model))


def test_a_model_can_be_analysed_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer = ns.load(tiny("bert"))
    with monkeypatch.context() as patched, pytest.raises(ns.CompletenessError):
        patched.setitem(passes.TOLERANCE, torch.float32, 0.0)
        analyzer.analyze(padded(SEQUENCES))
    again = analyzer.analyze(padded(SEQUENCES))
    expected = ns.load(tiny("bert")).analyze(padded(SEQUENCES))
    assert [one.dataset.equals(other.dataset) for one, other in zip(again, expected, strict=True)] == [True, True]


def test_hooks_of_the_user_still_run_and_stay() -> None:
    model, calls = tiny("bert"), []
    blocks(model)[0].register_forward_hook(lambda *_: calls.append("block"))
    ns.load(model).analyze(padded(SEQUENCES))
    assert calls == ["block"]
    outputs(model)
    assert calls == ["block", "block"]


# ---- what the model is asked for ---------------------------------------------------------------------------------------


def test_training_mode_does_not_change_a_result() -> None:
    model = tiny("bert", hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    quiet = ns.load(model).analyze(padded(SEQUENCES[:1]))
    noisy = ns.load(model.train()).analyze(padded(SEQUENCES[:1]))
    assert quiet.dataset.equals(noisy.dataset)


def test_the_attention_implementation_of_the_model_does_not_change_a_result() -> None:
    eager, sdpa = (ns.load(tiny("bert", attention=name)).analyze(padded(SEQUENCES[:1])) for name in ("eager", "sdpa"))
    assert eager.dataset.equals(sdpa.dataset)


def test_autocast_around_an_analysis_does_not_lower_its_precision() -> None:
    analyzer = ns.load(tiny("bert"))
    expected = analyzer.analyze(padded(SEQUENCES[:1]))
    with torch.autocast("cpu", torch.bfloat16):
        found = analyzer.analyze(padded(SEQUENCES[:1]))
    assert found.dataset.equals(expected.dataset)


def test_no_gradient_is_recorded() -> None:
    seen: list[Tensor] = []

    def consume(_layer: int, _sequence: int, trace: LayerTrace) -> None:
        seen.extend(state for state in (trace.hidden, *trace.states) if state is not None)

    capture_with(tiny("bert"), SEQUENCES, consume)
    assert seen
    assert not any(tensor.requires_grad for tensor in seen)


def counted_calls(model: PreTrainedModel) -> tuple[list[int], Callable[[], None]]:
    """The blocks (from 1) that run, and what removes the count again."""
    called: list[int] = []
    handles = [
        block.register_forward_pre_hook(lambda *_, number=number: called.append(number))
        for number, block in enumerate(blocks(model), start=1)
    ]
    return called, lambda: [handle.remove() for handle in handles]


@pytest.mark.parametrize(("layers", "expected"), [([2], [1, 2]), ([1, 3], [1, 2, 3]), (1, [1]), (None, [1, 2, 3, 4])])
def test_the_forward_pass_ends_after_the_last_layer_that_is_asked_for(layers: Any, expected: list[int]) -> None:
    model = tiny("bert", num_hidden_layers=4)
    called, _ = counted_calls(model)
    ns.load(model).analyze(padded(SEQUENCES), layers=layers)
    assert called == expected


def test_neither_the_task_head_nor_the_pooler_runs() -> None:
    model, called = tiny("bert", auto=HEADS["sequence classification"]), []
    for module in (model.classifier, model.bert.pooler):
        module.register_forward_pre_hook(lambda *_: called.append("head"))
    ns.load(model).analyze(padded(SEQUENCES))
    assert called == []


def test_a_batch_goes_through_the_model_once() -> None:
    model = tiny("bert")
    called, _ = counted_calls(model)
    ns.load(model).analyze(padded(token_ids(6, 5, 4, 3)))
    assert called == [1, 2]


# ---- memory ------------------------------------------------------------------------------------------------------------


def tensors_of(trace: LayerTrace) -> Iterator[Tensor]:
    """The tensors of a trace that grow with the input."""
    yield trace.hidden
    yield from (state for state in trace.states if state is not None)
    yield from (t for s in trace.steps if isinstance(s, Attention) for t in (s.weights, s.values))


@ONE_OF_EACH_ATTENTION
def test_only_the_tensors_of_one_layer_are_alive_at_a_time(model_type: str) -> None:
    model = tiny(model_type, num_hidden_layers=3)
    alive: dict[int, list[weakref.ref[Any]]] = {}

    def consume(layer: int, sequence: int, trace: LayerTrace) -> None:
        for other, references in alive.items():
            assert other == layer or not any(reference() is not None for reference in references)
        alive.setdefault(layer, []).extend(map(weakref.ref, (trace, *tensors_of(trace))))
        assert alive[layer][-1]() is not None
        del sequence

    capture_with(model, SEQUENCES, consume)
    assert sorted(alive) == [1, 2, 3]
    assert not any(reference() is not None for references in alive.values() for reference in references)


# ---- below attention ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_the_way_to_the_values_is_watched_only_where_it_is_asked_for(asked: bool) -> None:
    model = tiny("roberta-prelayernorm")
    attention = blocks(model)[0].attention
    way, hooks, sources = (attention.LayerNorm, attention.self.value), list[int](), list[ValueSource | None]()

    def consume(_layer: int, _sequence: int, trace: LayerTrace) -> None:
        hooks.append(sum(len(module._forward_hooks) for module in way))
        sources.extend(step.source for step in trace.steps if isinstance(step, Attention))

    capture_with(model, SEQUENCES, consume, below_attention=asked)
    assert set(hooks) == {2 if asked else 0}
    assert {source is not None for source in sources} == {asked}
    assert not any(module._forward_hooks for module in way)


def test_a_source_holds_the_norm_and_the_projection_of_the_model() -> None:
    model = tiny("roberta-prelayernorm")
    attention = blocks(model)[0].attention
    (trace, *_) = traces(model, SEQUENCES[:1], below_attention=True).values()
    (source,) = [step.source for step in trace.steps if isinstance(step, Attention)]
    assert source is not None and source.bias is not None
    (norm,) = source.steps
    assert isinstance(norm, Normalise)
    assert torch.equal(norm.norm.weight, attention.LayerNorm.weight)
    assert torch.equal(norm.state_before, source.states)
    assert torch.equal(source.states, trace.hidden)
    assert torch.equal(source.projection.flatten(0, 1), attention.self.value.weight)
    assert torch.equal(source.bias.flatten(), attention.self.value.bias)


def test_a_source_keeps_all_keys_when_queries_are_selected() -> None:
    (trace, *_) = traces(tiny("bert"), SEQUENCES[:1], below_attention=True).values()
    (source,) = [step.source for step in trace.select(torch.tensor([2])).steps if isinstance(step, Attention)]
    assert source is not None
    assert len(source.states) == len(SEQUENCES[0])


# ---- precision ---------------------------------------------------------------------------------------------------------


RESULTS = ("map", "mixing_ratio", "completeness")
IN_FLOAT64 = pytest.mark.parametrize("model_type", ["bert", "albert", "mpnet"])


@pytest.mark.parametrize(("dtype", "close"), [(torch.bfloat16, 5e-2), (torch.float16, 1e-2), (torch.float32, 1e-5)])
@ONE_OF_EACH_ATTENTION
def test_weights_of_any_precision_are_analysed_within_their_own(
    model_type: str, dtype: torch.dtype, close: float
) -> None:
    model = tiny(model_type, spread=0.2).to(dtype)
    analysis = ns.load(model).analyze(padded(SEQUENCES[:1]))
    assert float(analysis.completeness.max()) < close
    assert {analysis.dataset[name].dtype for name in RESULTS} == {np.dtype(np.float32)}
    assert analysis.attrs["dtype"] == str(dtype).removeprefix("torch.")


@IN_FLOAT64
def test_float64_weights_are_analysed_in_float64(model_type: str) -> None:
    analysis = ns.load(tiny(model_type).double()).analyze(padded(SEQUENCES[:1]))
    assert float(analysis.completeness.max()) < 1e-12
    assert {analysis.dataset[name].dtype for name in RESULTS} == {np.dtype(np.float64)}
    assert analysis.attrs["dtype"] == "float64"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_maps_of_half_precision_weights_are_near_those_of_the_same_weights_in_float64(dtype: torch.dtype) -> None:
    model = tiny("bert", spread=0.2).to(dtype)
    half = ns.load(model).analyze(padded(SEQUENCES[:1]), layers=1)
    exact = ns.load(model.to(torch.float64)).analyze(padded(SEQUENCES[:1]), layers=1)
    difference = np.abs(half.dataset["map"] - exact.dataset["map"]).max(("query", "key"))
    assert bool((difference < 0.05 * exact.dataset["map"].max(("query", "key"))).all())


@IN_FLOAT64
def test_float64_arithmetic_on_float32_weights_agrees_with_float64_weights(model_type: str) -> None:
    model = tiny(model_type)
    wide = ns.load(model).analyze(padded(SEQUENCES[:1]), dtype=torch.float64)
    assert wide.dataset["map"].dtype == np.float64
    exact = ns.load(model.double()).analyze(padded(SEQUENCES[:1]))
    np.testing.assert_allclose(wide.dataset["map"], exact.dataset["map"], rtol=1e-4, atol=1e-6)


def test_a_float64_model_agrees_with_the_oracle_to_twelve_digits() -> None:
    found: dict[int, LayerTrace] = {}
    model = tiny("bert").double()
    capture_with(model, SEQUENCES[:1], lambda layer, _sequence, trace: found.update({layer: trace}))
    analysis = ns.load(model).analyze(padded(SEQUENCES[:1]))
    for layer, trace in found.items():
        for scope, result in oracle(trace).items():
            np.testing.assert_allclose(analysis.map(scope).sel(layer=layer), result.map, rtol=1e-11, err_msg=scope)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_arithmetic_in_less_than_float32_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ns.InputError, match=rf"float32 or torch\.float64, not {dtype}"):
        ns.load(tiny("bert")).analyze(padded(SEQUENCES), dtype=dtype)


# ---- models that are not what they seem --------------------------------------------------------------------------------


def test_a_model_whose_states_are_tampered_with_is_refused_and_not_explained_wrongly() -> None:
    model = tiny("bert")
    blocks(model)[1].output.dense.register_forward_hook(lambda _module, _args, output: output + 0.5)
    assert ns.load(model).analyze(padded(SEQUENCES[:1]), layers=1).layers == [1]
    with pytest.raises(ns.CompletenessError, match=r"layer 2 .* after AttnResLnFf: relative error"):
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


def test_norms_that_compute_in_float32_are_within_the_tolerance_of_float64() -> None:
    analysis = ns.load(tiny("deberta").double()).analyze(padded(SEQUENCES[:1]))
    assert 1e-12 < float(analysis.completeness.max()) < 1e-6


# ---- threads -----------------------------------------------------------------------------------------------------------


@ONE_OF_EACH_ATTENTION
def test_threads_that_share_a_model_get_their_own_results(model_type: str) -> None:
    analyzer = ns.load(tiny(model_type))
    inputs = [torch.tensor(ids) for ids in token_ids(3, 5, 7, 9)] * 4
    alone = [analyzer.analyze(ids) for ids in inputs]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(analyzer.analyze, inputs))
    for one, other in zip(alone, together, strict=True):
        assert one.dataset.drop_attrs().identical(other.dataset.drop_attrs())
