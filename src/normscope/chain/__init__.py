"""What one block did to one sequence, as plain data, and the rules that every component follows.

Nothing here knows Hugging Face: `capture` fills a trace, `decompose` and `pullback` compute with it, `proof` checks it.
"""
