"""Pictures of an analysis or an explanation, as matplotlib figures that belong to nobody: no global state, no window.

Each function takes one of them and returns a `Figure`; `normscope.output.export` writes figures to files.
"""

from normscope.plots.explanation import plot_explanation
from normscope.plots.flow import plot_flow
from normscope.plots.growth import plot_grid, plot_growth
from normscope.plots.image import plot_image_map
from normscope.plots.maps import plot_amplification, plot_map
from normscope.plots.mixing import plot_mixing_ratio
from normscope.plots.similarity import plot_similarity
from normscope.plots.text import plot_tokens

__all__ = [
    "plot_amplification",
    "plot_explanation",
    "plot_flow",
    "plot_grid",
    "plot_growth",
    "plot_image_map",
    "plot_map",
    "plot_mixing_ratio",
    "plot_similarity",
    "plot_tokens",
]
