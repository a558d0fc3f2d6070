"""normscope: what really flows between tokens inside a Transformer.

Every hidden state is decomposed *exactly* into one vector per input token, and the norms of those vectors are the
attribution maps, growing component by component from attention weights to the whole layer.
"""

from importlib.metadata import version

from normscope.analysis import Analysis
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
from normscope.explain import Explanation
from normscope.families import Family, families, register
from normscope.families.heads import register_head
from normscope.methods import method
from normscope.opening import open_result as open
from normscope.oracle import oracle

__version__ = version("normscope")

__all__ = [
    "Analysis",
    "Analyzer",
    "CompletenessError",
    "Explanation",
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
    "method",
    "open",
    "oracle",
    "register",
    "register_head",
]
