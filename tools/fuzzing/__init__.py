"""Fuzz targets: what is drawn, what is done with it, and what must hold whatever was drawn. `tools/fuzz.py` runs them."""
