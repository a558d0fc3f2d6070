"""normscope: what really flows between tokens inside a Transformer.

Every hidden state is decomposed *exactly* into one vector per input token, and the norms of those vectors are the
attribution maps, growing component by component from attention weights to the whole layer.
"""

from importlib.metadata import version

from normscope.analysis import Analysis
from normscope.analysis import open_analysis as open
from normscope.analyzer import Analyzer, load
from normscope.errors import (
    CompletenessError,
    FileError,
    HeadError,
    InputError,
    ModelError,
    NormscopeError,
    ScopeError,
    SelectionError,
    UnsafeWeightsError,
    UnsupportedArchitectureError,
)
from normscope.families import Family, families, register
from normscope.families.heads import register_head
from normscope.oracle import oracle

__version__ = version("normscope")

__all__ = [
    "Analysis",
    "Analyzer",
    "CompletenessError",
    "Family",
    "FileError",
    "HeadError",
    "InputError",
    "ModelError",
    "NormscopeError",
    "ScopeError",
    "SelectionError",
    "UnsafeWeightsError",
    "UnsupportedArchitectureError",
    "families",
    "load",
    "open",
    "oracle",
    "register",
    "register_head",
]
