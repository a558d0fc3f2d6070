"""normscope: what really flows between tokens inside a Transformer.

Every hidden state is decomposed into one vector per input token, *exactly* for given attention weights, deviations of norms
and slopes of activations, and the norms of those vectors are the attribution maps, growing component by component from
attention weights to the whole layer.
"""

from typing import TYPE_CHECKING

import lazy_loader

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
from normscope.families import families, register

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer, load
    from normscope.families.heads import register_head
    from normscope.families.spec import Family
    from normscope.methods import method
    from normscope.results.analysis import Analysis
    from normscope.results.explanation import Explanation
    from normscope.results.opening import open
    from normscope.testing.oracle import oracle

    __version__: str

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

# torch and transformers take seconds to import: what needs them comes when it is first used.
__getattr__, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "results.analysis": ["Analysis"],
        "analyzer": ["Analyzer", "load"],
        "results.explanation": ["Explanation"],
        "families.heads": ["register_head"],
        "families.spec": ["Family"],
        "testing.oracle": ["oracle"],
        "methods": ["method"],
        "results.opening": ["open"],
        "version": ["__version__"],
    },
)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
