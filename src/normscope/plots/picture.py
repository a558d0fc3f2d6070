"""A figure that a notebook displays, although it is created without pyplot."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

from normscope.plots.glyphs import legible
from normscope.plots.style import publication


class Picture(Figure):
    """A matplotlib figure: everything that works with one works with this."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with publication(), legible(self):
            self.savefig(content, format="png", dpi=120, bbox_inches="tight", pad_inches=0.05)
        return content.getvalue()
