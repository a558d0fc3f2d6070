"""Several devices on one CPU, with real numbers: tensors say that they lie elsewhere, and may not meet tensors that do not.

Every tensor carries the device that it pretends to lie on. What torch would refuse on real devices is refused here: an
operation on tensors of two devices (but numbers and indices from the CPU), and an array of what is not on the CPU. Nothing
here is a test.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import dispatch_model
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from normscope.capture import blocks_of, family_in
from normscope.families import family_of

CPU = torch.device("cpu")

_PLACE = "pretended_device"
_INDEXED = (Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put)
_AS_ARRAY = (Tensor.numpy, Tensor.__array__)
_GET_DEVICE = Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]


def place_of(tensor: Tensor) -> torch.device:
    """The device that a tensor pretends to lie on."""
    with torch._C.DisableTorchFunction():
        return getattr(tensor, _PLACE, tensor.device)


class PretendedDevices(TorchFunctionMode):
    """While it is entered, `device` means what tensors pretend."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func == _GET_DEVICE:
            return place_of(args[0])
        if func is Tensor.to:
            return _moved(args[0], *args[1:], **kwargs)
        if func is Tensor.cpu:
            return _moved(args[0], CPU)
        if func is torch.autograd.grad:
            return _gradients(func, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if func in _AS_ARRAY and place_of(tensors[0]) != CPU:
            raise TypeError(f"can't convert {place_of(tensors[0])} device type tensor to numpy.")
        device = _common(func, args, tensors)
        if kwargs.get("device") is not None:
            device = torch.device(kwargs["device"])
            kwargs["device"] = device if device.type == "meta" else CPU
        return _tagged(func(*args, **kwargs), device)


def _common(func: Callable[..., Any], args: tuple[Any, ...], tensors: list[Tensor]) -> torch.device:
    """The one device of all tensors; raises if there are several, as torch does."""
    if func is Tensor.copy_:
        return place_of(args[0])
    places = [place_of(tensor) for tensor in tensors if _counts(tensor)]
    if func in _INDEXED and args:
        own = place_of(args[0])
        indices = [leaf for leaf in tree_leaves(args[1]) if isinstance(leaf, Tensor)]
        places = [own, *(place_of(index) for index in indices if place_of(index) != CPU)]
        places += [place_of(leaf) for leaf in tree_leaves(args[2:]) if isinstance(leaf, Tensor) and _counts(leaf)]
    if len(set(places)) > 1:
        names = ", ".join(sorted(map(str, set(places))))
        name = getattr(func, "__name__", str(func))
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {names} ({name})")
    return places[0] if places else CPU


def _counts(tensor: Tensor) -> bool:
    """A single number on the CPU goes with everything."""
    return tensor.dim() > 0 or place_of(tensor) != CPU


def _tagged(result: Any, device: torch.device) -> Any:
    for leaf in tree_leaves(result):
        if isinstance(leaf, Tensor) and not leaf.is_meta:
            setattr(leaf, _PLACE, device)
    return result


def _moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to`: onto another device as a copy, otherwise as it is."""
    if args and isinstance(args[0], Tensor):
        device, dtype = place_of(args[0]), args[0].dtype
    else:
        device, dtype, *_ = torch._C._nn._parse_to(
            *args, **{name: value for name, value in kwargs.items() if name != "copy"}
        )
    device, dtype = place_of(tensor) if device is None else torch.device(device), dtype or tensor.dtype
    if device.type == "meta" or tensor.is_meta:
        return tensor.to(device, dtype)
    if isinstance(tensor, nn.Parameter) and not hasattr(tensor, _PLACE) and dtype == tensor.dtype:
        return _tagged(tensor, device)  # one that was just made of what lies there already
    copied = kwargs.get("copy", False) or device != place_of(tensor)
    return _tagged(tensor.to(dtype, copy=copied), device)


def _gradients(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    gradients = func(*args, **kwargs)
    for gradient, each in zip(gradients, [inputs] if isinstance(inputs, Tensor) else inputs, strict=True):
        _tagged(gradient, place_of(each))
    return gradients


@contextmanager
def spread(model: PreTrainedModel, device_map: Mapping[str, str]) -> Generator[PreTrainedModel]:
    """A model whose modules lie on pretended devices, moved to and fro by accelerate's own hooks."""
    with PretendedDevices():
        _tagged([*model.parameters(), *model.buffers()], CPU)
        with warnings.catch_warnings():
            # It asks for tensors that belong to no submodule, and then warns that they are none.
            warnings.filterwarnings("ignore", "The following device_map keys do not match any submodules")
            dispatch_model(model, dict(device_map), main_device=torch.device(OUTSIDE))
        yield model


OUTSIDE = "cuda:2"
"""The device of embeddings and heads."""


def block_by_block(model: PreTrainedModel) -> dict[str, str]:
    """Blocks on two devices in turn, the norms around them on the second, and all else on a third."""
    family = family_in(model, family_of(model.config.model_type))
    stacks = [family.stack, *([] if family.encoder is None else [family.encoder])]
    blocks = [block for stack in stacks for block in blocks_of(model, stack)]
    devices = {block: f"cuda:{place % 2}" for place, block in enumerate(blocks)}
    return dict(_places(model, "", devices))


def _places(module: nn.Module, name: str, devices: Mapping[nn.Module, str]) -> Iterator[tuple[str, str]]:
    if module in devices:
        yield name, devices[module]
    elif not any(each in devices for each in module.modules()):
        yield name, "cuda:1" if "norm" in name else OUTSIDE
    else:
        own = (*module.named_parameters(name, recurse=False), *module.named_buffers(name, recurse=False))
        yield from ((path, OUTSIDE) for path, _ in own)
        for child, below in module.named_children():
            yield from _places(below, f"{name}.{child}".lstrip("."), devices)
