"""A module between the blocks is named by its family."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tiny_architectures import (
    GROUPED,
    tiny,
)

import normscope as ns
from normscope.capture import module_between
from normscope.families import family_of
from normscope.testing import assert_family


def test_the_module_between_blocks_is_named_where_there_is_one() -> None:
    stack = family_of("deberta-v2").stack
    assert module_between(tiny("deberta-v2", conv_kernel_size=3), stack) == "encoder.conv"
    assert module_between(tiny("deberta-v2"), stack) is None
    assert module_between(tiny("llama", **GROUPED), family_of("llama").stack) is None


def test_the_battery_refuses_a_family_that_keeps_silent_about_a_module_between_blocks() -> None:
    family = family_of("deberta-v2")
    silent = replace(family, stack=replace(family.stack, between=None))
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"What enters layer 2 .* that its family does not name"):
        assert_family(silent, tiny("deberta-v2", conv_kernel_size=3))
