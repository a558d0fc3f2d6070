"""Results: labelled arrays with a written schema that select, normalise, combine and save themselves."""
