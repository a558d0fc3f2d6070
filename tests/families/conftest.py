"""Models that several modules here ask."""

from __future__ import annotations

import pytest
from support.tiny_architectures import tiny
from transformers import AutoModelForCausalLM

import normscope as ns


@pytest.fixture(scope="package")
def llama() -> ns.Analyzer:
    return ns.load(tiny("llama", AutoModelForCausalLM, num_key_value_heads=1))
