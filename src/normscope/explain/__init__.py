"""Explanations: what is explained, how it is parsed and how a logit is pulled back to the input tokens."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """The results have moved: `Explanation` and `Flow` are in `normscope.results`."""
    if name not in ("Explanation", "Flow"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  (needed for the old names alone)

    from normscope.deprecated import warn_renamed  # noqa: PLC0415

    module = f"normscope.results.{name.lower()}"
    warn_renamed(f"normscope.explain.{name}", f"{module}.{name}")
    return getattr(import_module(module), name)
