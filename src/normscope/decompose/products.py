"""The one large product of a feed-forward, in full or in less precision.

TF32 is torch's own setting, made for the product and undone after it; devices without it multiply as before. For bfloat16
both operands are rounded; what is added up stays as it was.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from normscope.choices import Products

TOLERANCE: dict[Products, float] = {"tf32": 1e-2, "bf16": 5e-2}
"""The completeness error above which a result is refused, with such products."""


def product(
    left: Float[Tensor, "row inner"], right: Float[Tensor, "inner column"], products: Products | None
) -> Float[Tensor, "row column"]:
    """A product of two matrices."""
    result = left.new_empty(len(left), right.shape[1])
    add_product(result, left, right, products, first=True)
    return result


def add_product(
    target: Float[Tensor, "row column"],
    left: Float[Tensor, "row inner"],
    right: Float[Tensor, "inner column"],
    products: Products | None,
    *,
    first: bool,
) -> None:
    """Add a product to what `target` holds; if it is the `first`, write it."""
    if products == "bf16":
        rounded = left.bfloat16() @ right.bfloat16()
        target.copy_(rounded) if first else target.add_(rounded)
        return
    with _tf32(products == "tf32"):
        if first:
            torch.mm(left, right, out=target)
        else:
            target.addmm_(left, right)


@contextmanager
def _tf32(allowed: bool) -> Generator[None]:
    if not allowed:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
