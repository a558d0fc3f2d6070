"""Explanations: what is explained, how it is parsed and how a logit is pulled back to the input tokens."""
