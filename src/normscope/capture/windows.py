"""Windows: which token each row of a module belongs to, if a block calls that module with windows of its tokens.

To find out, the block is run again with the number of each token as its state, up to the call of the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from normscope.errors import UnsupportedArchitectureError


@dataclass(frozen=True)
class Windows:
    """The tokens of every window of a sequence, each token in one window."""

    members: Int[Tensor, "window member"]

    def tokens(self, states: Any) -> Any:
        """States `[batch * window, member, ...]` as `[batch, token, ...]`; anything else unchanged."""
        if not isinstance(states, Tensor):
            return states
        return states.unflatten(0, (-1, len(self.members))).flatten(1, 2)[:, self.members.flatten().argsort()]

    def weights(
        self, inside: Float[Tensor, "batch_window head member member"]
    ) -> Float[Tensor, "batch head token token"]:
        """Weights of the tokens of each window as weights of all tokens: zero between windows."""
        by_window = inside.unflatten(0, (-1, len(self.members)))
        count = self.members.numel()
        square = by_window.new_zeros(len(by_window), inside.shape[1], count, count)
        square[:, :, self.members[:, :, None], self.members[:, None, :]] = by_window.transpose(1, 2)
        return square


class _Reached(Exception):
    """Ends the run of a block where it calls the module."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states = states


def windows_in(
    block: nn.Module, path: str, hidden: Float[Tensor, "batch token d"], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Windows:
    """The windows with which a block calls the module at a path, when it is itself called with `hidden`.

    At most a norm comes before that module, which does not move tokens.
    """
    batch, count, width = hidden.shape
    states = _numbered(count, width).to(hidden).expand(batch, -1, -1).contiguous()
    handles = [block.get_submodule(path).register_forward_pre_hook(_stop, with_kwargs=True)]
    handles += [norm.register_forward_hook(_unchanged) for norm in block.children() if isinstance(norm, nn.LayerNorm)]
    try:
        if args:
            block.forward(states, *args[1:], **kwargs)
        else:
            block.forward(**{**kwargs, "hidden_states": states})
    except _Reached as reached:
        members = _numbers(reached.states).unflatten(0, (batch, -1))[0] - 1
    else:
        raise UnsupportedArchitectureError(f"The block does not call its {path!r}, where its family has windows.")
    finally:
        for handle in handles:
            handle.remove()
    if bool((members < 0).any()):
        raise UnsupportedArchitectureError(
            f"The {count} tokens do not fill the windows of {members.shape[1]}: the model adds empty ones, which belong to "
            f"no token. Give an image whose height and width are multiples of the window's."
        )
    if not torch.equal(members.flatten().sort().values, torch.arange(count, device=members.device)):
        raise UnsupportedArchitectureError(f"The windows with which the block calls its {path!r} overlap.")
    return Windows(members)


_DIGITS, _BASE = 3, 128
"""The number of a token in as many channels: half precision has no larger whole numbers exactly."""


def _numbered(count: int, width: int) -> Float[Tensor, "token d"]:
    """The number of each token, from 1, as its state."""
    numbers = torch.arange(1, count + 1)[:, None]
    digits = torch.cat([numbers // _BASE**place % _BASE for place in range(_DIGITS)], dim=-1)
    return functional.pad(digits, (0, width - _DIGITS)).float()


def _numbers(states: Float[Tensor, "*token d"]) -> Int[Tensor, "*token"]:
    return (states[..., :_DIGITS].long() * _BASE ** torch.arange(_DIGITS, device=states.device)).sum(-1)


def _stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    raise _Reached(cast(Tensor, args[0] if args else kwargs["hidden_states"]))


def _unchanged(_: nn.Module, args: tuple[Any, ...], __: Tensor) -> Tensor:
    return args[0]
