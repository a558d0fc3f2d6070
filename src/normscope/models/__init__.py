"""A model to analyse: where it comes from, how it is loaded and checked, and what is known about it."""
