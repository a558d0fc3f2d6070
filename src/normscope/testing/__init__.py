"""The whole battery of checks for those who add an architecture, `assert_family`, or a task head, `assert_head`.

`assert_explained` checks both together: a prediction followed from the head through all layers to the tokens.

Give them a tiny random model (two layers, a few dozen dimensions, weights of ordinary size). Every check raises an
`AssertionError` that says what was compared and how far apart it was. It needs nothing but what normscope itself needs.
"""

from normscope.testing.battery import assert_family, assert_head
from normscope.testing.explained import assert_explained

__all__ = ["assert_explained", "assert_family", "assert_head"]
