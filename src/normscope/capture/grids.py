"""Convolutions over the rows and columns of an image's tokens: every neighbour is a tap, as in a convolution over a text.

A tap brings a token what its neighbour on one side puts in, times the kernel and the slope of the activation there.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from normscope.capture.view import SequenceView
from normscope.capture.weights import BlockWeights
from normscope.errors import UnsupportedArchitectureError
from normscope.families.spec import GridConvolution

Tap = tuple[int, int]
"""By how many rows and columns the token that is read lies after the one that reads it."""


def over_grid(
    part: GridConvolution, read: BlockWeights, view: SequenceView, projected: Float[Tensor, "1 key channel"]
) -> tuple[Float[Tensor, "tap query key"], Float[Tensor, "tap key channel"], Float[Tensor, "tap key channel"] | None]:
    """Which token each tap reads, what it multiplies the projected values by, and what the convolution's bias adds.

    The first tap is the token itself.
    """
    kernel, bias, taps = _kernel(part, read)
    rows, columns = view.grid(part.module)
    places = torch.arange(rows * columns, device=projected.device).view(rows, columns)
    activation = read.activation(part.activation)
    image = projected[0].T.unflatten(-1, (rows, columns))[None]
    padding = (kernel.shape[-2] // 2, kernel.shape[-1] // 2)
    convolved = functional.conv2d(image, kernel, bias, padding=padding, groups=len(kernel))[0].flatten(1).T
    slope = activation.slope(convolved)
    if bool(activation.function(convolved.new_zeros(1)) != 0):
        raise UnsupportedArchitectureError("An activation behind a convolution has to be zero at zero.")
    neighbours = {tap: _neighbours(places, tap) for tap in taps}
    weights = torch.stack([_reads(neighbours[tap]) for tap in taps]).to(projected)
    slopes = [
        kernel[:, 0, tap[0] + padding[0], tap[1] + padding[1]] * _of(slope, neighbours[-tap[0], -tap[1]])
        for tap in taps
    ]
    offset = None if bias is None else torch.stack([slope * bias, *[torch.zeros_like(slope)] * (len(taps) - 1)])
    return weights, torch.stack(slopes), offset


def _kernel(
    part: GridConvolution, read: BlockWeights
) -> tuple[Float[Tensor, "channel 1 height width"], Float[Tensor, " channel"] | None, list[Tap]]:
    """The kernel and bias of a convolution that keeps the grid, and its taps, that of the token itself first."""
    kernel, bias = read.parameter(f"{part.module}.weight"), read.attribute(f"{part.module}.bias")
    height, width = kernel.shape[-2:]
    settings = {name: read.attribute(f"{part.module}.{name}") for name in ("stride", "dilation", "padding", "groups")}
    keeps = {"stride": (1, 1), "dilation": (1, 1), "padding": (height // 2, width // 2), "groups": len(kernel)}
    if settings != keeps or height % 2 == 0 or width % 2 == 0:
        raise UnsupportedArchitectureError(
            f"The convolution {part.module} does not keep the grid of tokens, each channel by itself: its kernel is "
            f"{height} x {width}, with {settings}."
        )
    taps = [(row - height // 2, column - width // 2) for row in range(height) for column in range(width)]
    taps.sort(key=lambda tap: tap != (0, 0))
    return kernel, None if bias is None else bias.detach().to(kernel), taps


def _neighbours(places: Int[Tensor, "row column"], tap: Tap) -> Int[Tensor, " token"]:
    """The token that lies that far from each token; -1 where there is none."""
    (rows, columns), (down, right) = places.shape, tap
    framed = functional.pad(places, (abs(right), abs(right), abs(down), abs(down)), value=-1)
    top, left = down + abs(down), right + abs(right)
    return framed[top : top + rows, left : left + columns].flatten()


def _reads(neighbours: Int[Tensor, " token"]) -> Float[Tensor, "query key"]:
    """One at the token that each token reads."""
    keys = torch.arange(len(neighbours), device=neighbours.device)
    return (neighbours[:, None] == keys).float()


def _of(slope: Float[Tensor, "token channel"], neighbours: Int[Tensor, " token"]) -> Float[Tensor, "token channel"]:
    """The slopes at the neighbour of each token; zero where there is none."""
    return slope[neighbours.clamp(min=0)] * (neighbours >= 0)[:, None]
