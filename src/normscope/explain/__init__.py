"""What made the model say this: the attribution of a logit to the input tokens, through all layers, and its result."""

from normscope.explain.explanation import Explanation
from normscope.explain.flow import Flow

__all__ = ["Explanation", "Flow"]
