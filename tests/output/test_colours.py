"""Colours on a terminal: stronger numbers look stronger, with true colour and with 256 colours."""

from __future__ import annotations

import numpy as np
import pytest
from rich.color import Color, ColorSystem

from normscope.output.colours import number_style


def _luminance(share: float, system: ColorSystem, *, signed: bool) -> float:
    background = number_style(share, signed=signed).bgcolor
    assert background is not None
    shown: Color = background.downgrade(system)
    return float(np.array(shown.get_truecolor()) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("system", [ColorSystem.TRUECOLOR, ColorSystem.EIGHT_BIT])
@pytest.mark.parametrize(("signed", "strong"), [(False, 1.0), (True, 0.0), (True, 1.0)])
def test_a_stronger_number_is_never_lighter(system: ColorSystem, strong: float, *, signed: bool) -> None:
    weak = 0.5 if signed else 0.0
    lightness = [_luminance(share, system, signed=signed) for share in np.linspace(weak, strong, 400).tolist()]
    assert (np.diff(lightness) <= 0).all()
    assert len(set(lightness)) >= 6


def test_the_two_signs_have_different_colours() -> None:
    assert number_style(0.0, signed=True).bgcolor != number_style(1.0, signed=True).bgcolor
