"""How a model computes its attention, by its own settings, and whether eager attention computes the same.

Capture runs eager attention, which shows its weights. The implementations of transformers differ from it in rounding alone.
A function of somebody else's may compute anything, so that a map would be of a model that nobody has.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any, cast

import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from normscope.errors import ModelError

IMPLEMENTATION = "normscope"
"""The name under which capture puts its own attention in the place of the model's."""

Attention = Callable[..., tuple[Tensor, Tensor]]

_EAGER = "eager"
_LIBRARY = Path(transformers.__file__).parent


def configurations(model: PreTrainedModel) -> list[Any]:
    """Every configuration object in reach of the model, each once."""
    configs: dict[int, Any] = {}

    def add(config: Any) -> None:
        if config is None or id(config) in configs or not hasattr(config, "_attn_implementation_internal"):
            return
        configs[id(config)] = config
        for name in getattr(config, "sub_configs", ()):
            add(getattr(config, name, None))

    for module in model.modules():
        add(getattr(module, "config", None))
    return list(configs.values())


def eager_attention_of(module: nn.Module) -> Attention:
    """The eager attention of the file that an attention module runs, so that its soft-caps and biases stay right."""
    eager, _ = _found(module, "eager_attention_forward")
    if eager is None:
        raise ModelError(f"{type(module).__name__} goes through the attention interface but has no eager attention.")
    return cast(Attention, eager)


def _found(module: nn.Module, name: str) -> tuple[Any, str | None]:
    """What a name means in the file whose `forward` a module runs (or else defines its class), and that file."""
    run = inspect.unwrap(type(module).forward).__globals__
    defined = (vars(sys.modules[cls.__module__]) for cls in type(module).__mro__ if cls.__module__ in sys.modules)
    return next(((names[name], names.get("__file__")) for names in (run, *defined) if name in names), (None, None))


def refuse_unknown_attention(model: PreTrainedModel, attentions: Iterable[nn.Module]) -> None:
    """Refuse a model whose own attention is not known to be the same as eager attention, by the name of what it uses."""
    modules = list(attentions)
    found = [_found(module, "ALL_ATTENTION_FUNCTIONS")[0] for module in modules]
    interfaces = list({id(each): each for each in found if each is not None}.values()) or [ALL_ATTENTION_FUNCTIONS]
    used = {config._attn_implementation_internal or _EAGER for config in configurations(model)} - {IMPLEMENTATION}
    for name in sorted(used):
        for interface in interfaces:
            _refuse_function(model, name, interface.get(name.removeprefix("paged|")), "attention function")
        _refuse_function(model, name, ALL_MASK_ATTENTION_FUNCTIONS.get(name), "function of attention masks")
    if used - {_EAGER}:
        for module in modules:
            _refuse_eager(model, module)
    if "sdpa" in used and not isinstance(functional.scaled_dot_product_attention, BuiltinFunctionType):
        raise _refused(model, "sdpa", "attention function", "which is not that of PyTorch")


def _refuse_function(model: PreTrainedModel, name: str, function: Any, what: str) -> None:
    if function is not None and not _is_of_transformers(function):
        raise _refused(model, name, what, f"which is {_called(function)} and not that of transformers")


def _refuse_eager(model: PreTrainedModel, module: nn.Module) -> None:
    """A model that does not use its eager attention would not show that somebody has put another in its place."""
    eager, file = _found(module, "eager_attention_forward")
    if not _is_of_transformers(eager) and getattr(getattr(eager, "__code__", None), "co_filename", None) != file:
        raise _refused(model, _EAGER, "attention function", f"which is {_called(eager)} and not that of its own file")


def _is_of_transformers(function: Any) -> bool:
    """Whether the code of a function is that of the library: a name alone can be given to anything."""
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(_LIBRARY)


def _called(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"


def _refused(model: PreTrainedModel, name: str, what: str, why: str) -> ModelError:
    return ModelError(
        f"{type(model).__name__} uses the {what} {name!r}, {why}. Attention is captured from eager attention, and whether "
        f"this computes the same is not known. If it does, call model.set_attn_implementation('eager') with the functions "
        f"of transformers in their places, and analyse that."
    )
