"""A figure that shows itself in a notebook. Figures are made without pyplot, which alone would tell the notebook of them."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

from normscope.plots.style import publication, told_of_missing_glyphs


class Picture(Figure):
    """A matplotlib figure: everything that works with one works with this."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        with publication(), told_of_missing_glyphs():
            self.savefig(content, format="png", dpi=120, bbox_inches="tight", pad_inches=0.05)
        return content.getvalue()
