"""What `tools/coverage.py` is made of: tiny models of every type, the battery on one of them, and the page."""
