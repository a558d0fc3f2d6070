"""Approximations of the maps after the feed-forward, each with an error measured against exact rows."""
