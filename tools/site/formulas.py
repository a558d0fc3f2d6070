"""Formulas as MathML, which browsers show by themselves: no script, no font, nothing to load."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def as_mathml(page: str) -> str:
    """A page with every formula that Arithmatex marked turned into MathML."""
    page = _BLOCK.sub(lambda found: convert(html.unescape(found[1]).strip(), display="block"), page)
    return _INLINE.sub(lambda found: convert(html.unescape(found[1]).strip()), page)
