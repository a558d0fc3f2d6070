"""Records the calls of mixing functions while the model runs: functions of a modelling file, and methods of a module. While
there are listeners, the model's function is replaced by one of ours that calls it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from normscope.capture.view import MixingCall
from normscope.errors import UnsupportedArchitectureError

_running = threading.local()
_lock = threading.Lock()


@dataclass
class _Replaced:
    """A function of a modelling file that ours replaces, and for how many captures."""

    original: Callable[..., Any]
    count: int = 0


Place = tuple[Any, str]
"""The module of Python, or the class, that holds a function, and its name there."""

_replaced: dict[Place, _Replaced] = {}

MixingListener = Callable[[MixingCall], None]
"""A callback with one call of a mixing function."""


@dataclass(frozen=True)
class Mixer:
    """A mixer module whose calls of its mixing function are listened to."""

    module: nn.Module
    function: str
    listener: MixingListener = field(compare=False)

    @property
    def place(self) -> Place:
        """The file of its class, or the class of the submodule whose method the function is."""
        owner, _, name = self.function.rpartition(".")
        if owner:
            return type(self.module.get_submodule(owner)), name
        return sys.modules[inspect.unwrap(type(self.module).forward).__globals__["__name__"]], name


@contextmanager
def recorded_mixing(mixers: Iterable[Mixer]) -> Generator[None]:
    """A context in which listeners receive every call of a mixing function within their mixers."""
    mixers = list(mixers)
    places = {mixer.place for mixer in mixers}
    handles = [handle for mixer in mixers for handle in _hooks(mixer)]
    for place in places:
        _replace(place)
    try:
        yield
    finally:
        for place in places:
            _restore(place)
        for handle in handles:
            handle.remove()


def _hooks(mixer: Mixer) -> list[RemovableHandle]:
    def starts(*_: object) -> None:
        _running.mixer = mixer

    def ends(*_: object) -> None:
        _running.mixer = None

    return [mixer.module.register_forward_pre_hook(starts), mixer.module.register_forward_hook(ends)]


def _replace(place: Place) -> None:
    owner, name = place
    with _lock:
        if not hasattr(owner, name):
            raise UnsupportedArchitectureError(
                f"{owner.__name__} has no function {name!r}, by which its family says that it mixes."
            )
        replaced = _replaced.setdefault(place, _Replaced(getattr(owner, name)))
        replaced.count += 1
        if replaced.count == 1:
            replaced.original = getattr(owner, name)
            setattr(owner, name, _listening(place, replaced.original))


def _restore(place: Place) -> None:
    with _lock:
        replaced = _replaced[place]
        replaced.count -= 1
        if replaced.count == 0:
            setattr(*place, replaced.original)


def _listening(place: Place, function: Callable[..., Any]) -> Callable[..., Any]:
    def mix(*args: Any, **kwargs: Any) -> Any:
        mixer: Mixer | None = getattr(_running, "mixer", None)
        if mixer is not None and mixer.place == place:
            mixer.listener(MixingCall.of(function, args, kwargs))
        return function(*args, **kwargs)

    return mix
