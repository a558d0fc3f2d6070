"""normscope: what really flows between tokens inside a Transformer.

Every hidden state is decomposed into one vector per input token, *exactly* for given attention weights, deviations of norms
and slopes of activations, and the norms of those vectors are the attribution maps, growing component by component from
attention weights to the whole layer.
"""

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lazy_loader

from normscope.deprecated import MovedModules
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
from normscope.families import families as families  # deprecated, as is `register`
from normscope.families import register as register
from normscope.families import register_family, supported_models

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer, load
    from normscope.corpora import Corpus
    from normscope.families.heads import register_head
    from normscope.families.spec import Family
    from normscope.methods import available_methods, method
    from normscope.models.loading import describe
    from normscope.results.analysis import Analysis
    from normscope.results.answer import Answer
    from normscope.results.average import average
    from normscope.results.explanation import Explanation
    from normscope.results.opening import open
    from normscope.results.similarity import Similarity
    from normscope.runs import explain_corpus, run
    from normscope.testing.oracle import oracle

    __version__: str

__all__ = [
    "Analysis",
    "Analyzer",
    "Answer",
    "CompletenessError",
    "Corpus",
    "Explanation",
    "Family",
    "FileError",
    "HeadError",
    "InputError",
    "ModelError",
    "NormscopeError",
    "ScopeError",
    "SelectionError",
    "Similarity",
    "UnsafeWeightsError",
    "UnsupportedArchitectureError",
    "available_methods",
    "average",
    "describe",
    "explain_corpus",
    "load",
    "method",
    "open",
    "oracle",
    "register_family",
    "register_head",
    "run",
    "supported_models",
]

sys.meta_path.append(MovedModules())

# torch and transformers take seconds to import: what needs them comes when it is first used.
_lazily, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "results.analysis": ["Analysis"],
        "results.average": ["average"],
        "results.answer": ["Answer"],
        "analyzer": ["Analyzer", "load"],
        "results.explanation": ["Explanation"],
        "families.heads": ["register_head"],
        "families.spec": ["Family"],
        "testing.oracle": ["oracle"],
        "corpora": ["Corpus"],
        "methods": ["available_methods", "method"],
        "models.loading": ["describe"],
        "results.opening": ["open"],
        "results.similarity": ["Similarity"],
        "runs": ["explain_corpus", "run"],
    },
)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (which takes a while, and few ask)

        return version("normscope")
    with _without_collecting():
        return _lazily(name)


@contextmanager
def _without_collecting() -> Generator[None]:
    """Importing makes a million objects that stay: to look for garbage among them takes a fifth of the time. Afterwards
    they count as old, which the collector does not look through again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # what somebody has frozen stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
