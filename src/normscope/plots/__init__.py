"""Pictures of an analysis or an explanation, as matplotlib figures without pyplot: no global state, no window.

Each function takes one of them and returns a `Figure`; `normscope.output.export` writes figures to files.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from normscope.plots.answer import plot_answer
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
    "plot_answer",
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

# What matplotlib draws with takes a quarter of a second to import, and terminals only need colours.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "answer": ["plot_answer"],
        "explanation": ["plot_explanation"],
        "flow": ["plot_flow"],
        "growth": ["plot_grid", "plot_growth"],
        "image": ["plot_image_map"],
        "maps": ["plot_amplification", "plot_map"],
        "mixing": ["plot_mixing_ratio"],
        "similarity": ["plot_similarity"],
        "text": ["plot_tokens"],
    },
)
