"""Measures: what is computed from the traces of a sequence, layer by layer. Each is a frozen value; equal ones run once.

This is the one way from a trace to numbers. It knows `decompose` and traces, but no model, file or picture.
"""

from normscope.chain.measure import ArrayMeasure, CaptureDepth, KeptTraces, LayerMeasure, Measure
from normscope.measures.decomposition import Decomposition, joined

__all__ = ["ArrayMeasure", "CaptureDepth", "Decomposition", "KeptTraces", "LayerMeasure", "Measure", "joined"]
