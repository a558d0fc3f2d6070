"""Pull-back: from a logit back to the tokens, as covectors. With weights, deviations and slopes fixed every step is linear.

Pure mathematics on the plain data of traces; knows no models.
"""

from normscope.pullback.head import PulledHead, pull_back_end, pull_back_head, values_of

__all__ = ["PulledHead", "pull_back_end", "pull_back_head", "values_of"]
