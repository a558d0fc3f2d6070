"""The demonstration's sentences: short ones in which it matters which tokens are mixed."""

from __future__ import annotations

SENTENCES = {
    "opera": "The opera singer caught a soap bubble.",
    "garden-path": "The old man the boat while the complex houses married soldiers.",
    "names": "Szymborska read her poems in Ouagadougou before Djokovic beat Kyrgios.",
    "pronouns": "The trophy does not fit into the suitcase because it is too small.",
}
"""In order: six content words that pair up; two verbs that look like nouns; names in many subwords; a pronoun to resolve."""
