"""Attention and hooks: capture runs the model's eager attention, which returns its weights, if that computes the same as
the model's own. The implementations in transformers differ from eager attention in rounding alone. A custom attention
function may compute anything, and the maps would then describe another model.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakSet

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as _all_modules
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from normscope.capture.masks import RowMask, Rows
from normscope.errors import ModelError
from normscope.families.spec import Config
from normscope.models.devices import without_autocast

IMPLEMENTATION = "normscope"
"""The name under which capture registers the attention that replaces the model's."""

OWN_ATTENTION = "normscope-own"
"""The same for long inputs of models whose own attention is that of torch: this attends, and eager attention only gives
the weights of the rows that are requested."""

_OURS = {IMPLEMENTATION, OWN_ATTENTION}

Attention = Callable[..., tuple[Tensor, Tensor]]

_EAGER, _SDPA = "eager", "sdpa"
_LIBRARY = Path(transformers.__file__).parent
_LOADED_WHEN_USED = "_fn"
"""How transformers calls the functions of other packages (flash attention) that it loads when they are first used."""


def configurations(model: PreTrainedModel) -> list[Config]:
    """Every configuration object in reach of the model, each once."""
    configs: dict[int, Config] = {}

    def add(config: Config) -> None:
        if config is None or id(config) in configs or not hasattr(config, "_attn_implementation_internal"):
            return
        configs[id(config)] = config
        for name in getattr(config, "sub_configs", ()):
            add(getattr(config, name, None))

    for module in model.modules():
        add(getattr(module, "config", None))
    return list(configs.values())


def eager_attention_of(module: nn.Module) -> Attention:
    """The eager attention in the file that an attention module's code is in, with its soft-caps and biases."""
    eager, _ = _found(module, "eager_attention_forward")
    if eager is None:
        raise ModelError(f"{type(module).__name__} goes through the attention interface but has no eager attention.")
    return cast(Attention, eager)


def _found(module: nn.Module, name: str) -> tuple[Any, str | None]:
    """What a name means in the file that defines a module's `forward` (or else its class), and that file."""
    run = inspect.unwrap(type(module).forward).__globals__
    defined = (vars(sys.modules[cls.__module__]) for cls in type(module).__mro__ if cls.__module__ in sys.modules)
    return next(((names[name], names.get("__file__")) for names in (run, *defined) if name in names), (None, None))


def check_attention(model: PreTrainedModel, attentions: Iterable[nn.Module]) -> set[str]:
    """The names of the attention implementations that a model itself uses; raises if one of them is not known to compute
    the same as eager attention."""
    modules = list(attentions)
    interfaces = list({id(each): each for each in map(_interface, modules)}.values()) or [ALL_ATTENTION_FUNCTIONS]
    used = {config._attn_implementation_internal or _EAGER for config in configurations(model)} - _OURS
    for name in sorted(used):
        for interface in interfaces:
            _check_function(model, name, interface.get(name.removeprefix("paged|")), "attention function")
        _check_function(model, name, ALL_MASK_ATTENTION_FUNCTIONS.get(name), "function of attention masks")
    if used - {_EAGER}:
        for module in modules:
            _check_eager(model, module)
    if _SDPA in used and not isinstance(functional.scaled_dot_product_attention, BuiltinFunctionType):
        raise _refused(model, _SDPA, "attention function", "which is not that of PyTorch")
    return used


def _interface(module: nn.Module) -> Any:
    """The attention functions by name, as the file of an attention module knows them."""
    found, _ = _found(module, "ALL_ATTENTION_FUNCTIONS")
    return ALL_ATTENTION_FUNCTIONS if found is None else found


def _check_function(model: PreTrainedModel, name: str, function: object, what: str) -> None:
    if function is None:
        return
    if not _is_of_transformers(function):
        raise _refused(model, name, what, f"which is {_called(function)} and not that of transformers")
    other = next((each for each in _used_by(function, set()) if not _is_of_libraries(each)), None)
    if other is not None:
        raise _refused(model, name, what, f"which is that of transformers but calls {_called(other)}, which is not")


def _used_by(function: Any, known: set[Any], steps: int = 3) -> Iterator[Any]:
    """The functions that a function of transformers finds by name, those that they find, and so on for some steps."""
    names = getattr(function, "__code__", None)
    for name in () if names is None else names.co_names:
        value = function.__globals__.get(name)
        if not isinstance(value, FunctionType | partial | type) or name.endswith(_LOADED_WHEN_USED) or value in known:
            continue
        known.add(value)
        if not isinstance(value, type):
            yield value
        if steps > 1 and _is_of_transformers(value):
            yield from _used_by(value, known, steps - 1)
        if isinstance(value, type) and value.__module__.startswith(transformers.__name__):
            for method in vars(value).values():
                yield from _used_by(method, known, steps - 1)


def _check_eager(model: PreTrainedModel, module: nn.Module) -> None:
    """Raise if the eager attention was replaced, which a model that does not use it would not show."""
    eager, file = _found(module, "eager_attention_forward")
    if not _is_of_transformers(eager) and getattr(getattr(eager, "__code__", None), "co_filename", None) != file:
        raise _refused(model, _EAGER, "attention function", f"which is {_called(eager)} and not that of its own file")


def _is_of_transformers(function: object) -> bool:
    """Whether the code of a function is in the library; its name alone proves nothing."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(_LIBRARY)


def _is_of_libraries(function: object) -> bool:
    package = str(getattr(function, "__globals__", {}).get("__name__")).partition(".")[0]
    return package in (transformers.__name__, torch.__name__) or package in sys.stdlib_module_names - {"__main__"}


def _called(function: object) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def _refused(model: PreTrainedModel, name: str, what: str, why: str) -> ModelError:
    return ModelError(
        f"{type(model).__name__} uses the {what} {name!r}, {why}. Attention is captured from eager attention, and whether "
        f"this computes the same is not known. If it does, call model.set_attn_implementation('eager') with the functions "
        f"of transformers in their places, and analyse that."
    )


# ---- Everything that capture changes on a model, and its undoing: evaluation mode, attention implementation, hooks.
#
# Each change is a context manager that restores exactly what it changed, also after an exception or Ctrl-C. Threads
# that share a model take turns: one would capture the states of the other's input.


@dataclass(frozen=True)
class RowWeights:
    """Attention weights of a long input, recomputed for the requested rows and never stored.

    `of_rows` is the model's own eager attention for some of its queries and a number of keys: `[batch, head, row, key]`.
    """

    heads: int
    of_rows: Callable[[Rows, int], Tensor]


@dataclass(frozen=True)
class Attended:
    """The arguments of an attention function: queries and keys `[batch, head, token, d_key]`, the mask, and all others."""

    query: Tensor
    key: Tensor
    mask: Tensor | None
    scale: float
    others: dict[str, object]


class _Reached(Exception):
    """Ends the call of an attention module at the call of its attention function."""

    def __init__(self, attended: Attended) -> None:
        super().__init__()
        self.attended = attended


AttentionListener = Callable[["Tensor | RowWeights", Tensor], None]
"""A callback with the attention weights and the value states of one call, both `[batch, head, ...]`."""

_listeners: WeakKeyDictionary[nn.Module, AttentionListener] = WeakKeyDictionary()
_outputs: WeakKeyDictionary[nn.Module, Iterator[Tensor]] = WeakKeyDictionary()
_output_listeners: WeakKeyDictionary[nn.Module, Callable[[Tensor], None]] = WeakKeyDictionary()
_rows_at_once: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
_probed: WeakSet[nn.Module] = WeakSet()
_intercepted: WeakSet[nn.Module] = WeakSet()
_turns: WeakKeyDictionary[nn.Module, AbstractContextManager[object]] = WeakKeyDictionary()
_locks_lock = threading.Lock()


def model_lock(model: nn.Module) -> AbstractContextManager[object]:
    """The lock that a thread holds while it changes or records a model. It is reentrant."""
    with _locks_lock:
        return _turns.setdefault(model, threading.RLock())


@contextmanager
def evaluation_mode(model: nn.Module) -> Generator[None]:
    """Every module in evaluation mode; the training flags are restored afterwards."""
    with model_lock(model):
        training = [module for module in model.modules() if module.training]
        if training:
            model.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True


@contextmanager
def recorded_attention(
    model: PreTrainedModel,
    listeners: dict[nn.Module, AttentionListener],
    rows: int | None = None,
    probed: Iterable[nn.Module] = (),
) -> Generator[None]:
    """The model's own eager attention for all modules, with listeners on those that have one.

    With `rows`, the weights of attentions of more queries than that are not stored, and listeners get `RowWeights`. Such
    attentions are the model's own where this is that of torch, and else computed for that many rows at a time. The weights
    of `probed` modules are the outputs of their eager attention for the identity as values.
    """
    used = check_attention(model, listeners)
    AttentionInterface.register(IMPLEMENTATION, _recorded_eager_attention)
    AttentionInterface.register(OWN_ATTENTION, _recorded_own_attention)
    # Without a mask function of the same name, transformers would silently drop the mask.
    AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)
    AttentionMaskInterface.register(OWN_ATTENTION, sdpa_mask)
    implementation = OWN_ATTENTION if rows is not None and used == {_SDPA} else IMPLEMENTATION
    _listeners.update(listeners)
    _probed.update(probed)
    if rows is not None:
        _rows_at_once.update(dict.fromkeys(listeners, rows))
    try:
        with _restored_implementations(model) as configs:
            model.set_attn_implementation(implementation)
            # Some modules have a configuration of their own, which may lie inside a model that refuses.
            for module in listeners:
                own: Config = getattr(module, "config", configs[0])
                if own is not configs[0] and hasattr(own, "_attn_implementation_internal"):
                    own._attn_implementation_internal = implementation
                if getattr(own, "_attn_implementation_internal", implementation) != implementation:
                    raise ModelError(
                        f"{type(model).__name__} does not let its attention implementation be changed, "
                        f"which its family expects."
                    )
            yield
    finally:
        for module in listeners:
            _listeners.pop(module, None)
            _rows_at_once.pop(module, None)
            _probed.discard(module)


@contextmanager
def kept_outputs(
    known: Mapping[nn.Module, Sequence[Tensor]], listeners: Mapping[nn.Module, Callable[[Tensor], None]]
) -> Generator[None]:
    """Within `recorded_attention` of a long input: outputs that are known need not be computed again, and listeners get
    those of others. What the output is used for shows whether it is that of the same input."""
    # In place, models may add to what they get. Some modules attend more than once.
    _outputs.update({module: (output.clone() for output in outputs) for module, outputs in known.items()})
    _output_listeners.update(listeners)
    try:
        yield
    finally:
        for module in known:
            _outputs.pop(module, None)
        for module in listeners:
            _output_listeners.pop(module, None)


@contextmanager
def eager_attention(model: PreTrainedModel) -> Generator[None]:
    """Eager attention for models that choose it by their configuration alone, so that masks and weights are explicit."""
    check_attention(model, ())
    with _restored_implementations(model) as configs:
        for config in configs:
            config._attn_implementation_internal = "eager"
        yield


@contextmanager
def _restored_implementations(model: PreTrainedModel) -> Generator[list[Config]]:
    """The model's configurations; their attention implementations are restored at the end."""
    configs = configurations(model)
    before = [config._attn_implementation_internal for config in configs]
    try:
        yield configs
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation_internal = implementation


@contextmanager
def hooks(model: nn.Module) -> Generator[list[RemovableHandle]]:
    """A list for the handles of hooks on a model, all removed at the end."""
    handles: list[RemovableHandle] = []
    with model_lock(model):
        try:
            yield handles
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def forward_pass(model: nn.Module) -> Generator[list[RemovableHandle]]:
    """A model ready for one forward pass: evaluation mode, the arithmetic of its weights, and a list for hook handles."""
    _refuse_global_hooks(model)
    with without_autocast(model), evaluation_mode(model), hooks(model) as handles:
        yield handles


def _refuse_global_hooks(model: nn.Module) -> None:
    """Raise if hooks are registered for all modules: they run before all others, so nothing can be compared with them.

    Those of torch (its profilers and counters of operations) only watch.
    """
    hooked: Any = _all_modules
    every = [*hooked._global_forward_pre_hooks.values(), *hooked._global_forward_hooks.values()]
    registered = [hook for hook in every if not _is_of_libraries(hook)]
    if registered:
        raise ModelError(
            f"{_called(registered[0])} is registered as a forward hook of all modules (register_module_forward_hook or "
            f"register_module_forward_pre_hook of torch.nn.modules.module). It may change what {type(model).__name__} "
            f"computes, and the result could be wrong, so there is none. Remove it, or register it on the modules it is for."
        )


def intercepted_attention(module: nn.Module, call: Callable[[], object]) -> Attended:
    """The arguments of the attention function in a call of an attention module, which ends there. Attention must be
    recorded."""
    _intercepted.add(module)
    try:
        call()
    except _Reached as reached:
        return reached.attended
    finally:
        _intercepted.discard(module)
    raise ModelError(
        f"{type(module).__name__} does not go through the attention interface of transformers, so that its queries and keys "
        f"are not known. Explain with weights='constant' or 'half'."
    )


def _recorded_eager_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: object
) -> tuple[Tensor, Tensor | None]:
    if module in _intercepted:
        scale: Any = kwargs.get("scaling")
        scale = getattr(module, "scaling", query.shape[-1] ** -0.5) if scale is None else scale
        raise _Reached(Attended(query, key, attention_mask, float(scale), dict(kwargs)))
    at_once, mask = _rows_at_once.get(module), RowMask(attention_mask)
    # Without a mask, what comes later may still be hidden by the function itself.
    hidden = attention_mask is None and getattr(module, "is_causal", True)
    if at_once is not None and query.shape[2] > at_once and not hidden and _goes_by_rows(query, mask, kwargs):
        eager = eager_attention_of(module)
        starts = range(0, query.shape[2], at_once)
        parts = [
            _of_rows(eager, module, query, key, value, mask, slice(start, start + at_once), kwargs) for start in starts
        ]
        _hear_rows(module, query, key, value, mask, kwargs)
        return torch.cat([part for part, _ in parts], dim=1), None
    output, weights = eager_attention_of(module)(module, query, key, value, attention_mask, **kwargs)
    listener = _listeners.get(module)
    if listener is not None:
        probed = module in _probed
        listener(_made_of_identity(module, query, key, attention_mask, **kwargs) if probed else weights, value)
    return output, weights


def _made_of_identity(module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, **kwargs: object) -> Tensor:
    """`[batch, head, query, key]`: what each value is multiplied by, all that comes after the softmax included."""
    identity = torch.eye(key.shape[2], dtype=key.dtype, device=key.device).expand(*key.shape[:2], -1, -1)
    output, _ = eager_attention_of(module)(module, query, key, identity, mask, **kwargs)
    return output.transpose(1, 2)


def _recorded_own_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """The attention of torch, as transformers calls it. The mask is what that reads."""
    is_causal = kwargs.get("is_causal")
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask = RowMask(attention_mask, causal=is_causal and query.shape[2] > 1)
    at_once = _rows_at_once.get(module)
    long = at_once is not None and query.shape[2] > at_once and _goes_by_rows(query, mask, kwargs)
    if module in _intercepted or not long:
        whole = mask.of(slice(None), query, key.shape[2])
        return _recorded_eager_attention(module, query, key, value, whole, **kwargs)
    output = next(_outputs[module], None) if module in _outputs else None
    if output is None:
        output, _ = _interface(module)[_SDPA](module, query, key, value, attention_mask, **kwargs)
    _hear_rows(module, query, key, value, mask, kwargs)
    if module in _output_listeners:
        _output_listeners[module](output.clone())
    return output, None


def _goes_by_rows(query: Tensor, mask: RowMask, kwargs: dict[str, Any]) -> bool:
    """Whether query rows are independent of each other: they differ only by a mask that has every row."""
    if any(isinstance(value, Tensor) and value.dim() > 2 for value in kwargs.values()):
        return False
    return mask.fits(query.shape[2])


def _hear_rows(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: RowMask, kwargs: dict[str, Any]
) -> None:
    """Tell the listener of a module how to get the weights of rows."""
    eager, probed = eager_attention_of(module), module in _probed  # as it is now: rows are looked at later

    def weights_of(rows: Rows, keys: int) -> Tensor:
        first = key[:, :, :keys]
        if probed:
            return _made_of_identity(module, query[:, :, rows], first, mask.of(rows, query, keys), **kwargs)
        # What the function makes of the values is not used: of one channel of them it costs next to nothing.
        return _of_rows(eager, module, query, first, value[:, :, :keys, :1], mask, rows, kwargs)[1]

    listener = _listeners.get(module)
    if listener is not None:
        listener(RowWeights(query.shape[1], weights_of), value)


def _of_rows(
    eager: Attention,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: RowMask,
    rows: Rows,
    kwargs: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    return eager(module, query[:, :, rows], key, value, mask.of(rows, query, key.shape[2]), **kwargs)
