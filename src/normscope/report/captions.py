"""What the figures of the experiments show, in a sentence each: the captions of a report.

Figures are known by how their names begin, since some are drawn once for each kind or question.
"""

from __future__ import annotations

_CAPTIONS = {
    "agreement": "Rank correlation of any two methods in what they call important for the prediction.",
    "agreement-layers": "Rank correlation of the maps of any two methods, mean over layers.",
    "alignment": "Alignment error rate of every head (across) in every layer (down); less is better.",
    "alignment-example": "A sentence pair: cells are what the method gives, dots the links that people drew.",
    "alignment-layers": "Alignment error rate by layer, for attention weights and for norms; less is better.",
    "categories": "What special tokens, punctuation and other tokens get in each layer, by weights and by norms.",
    "categories-heads": "The same for every head (across) in every layer (down).",
    "deletion-comprehensiveness": "How far the prediction falls when the tokens that a method ranks first are taken away.",
    "deletion-curves": "The probability of the prediction while tokens are taken away, most or least important first.",
    "deletion-srg": "The gap between both orders of deletion, by method; more is better.",
    "dispersion": "How much the norms of input vectors and of transformed vectors vary, by layer.",
    "entities": "Amplification between tokens of one named entity, beside other pairs at the same distance.",
    "evidence": "How well each method finds the words that decide, with 95 % intervals.",
    "expansion-rate": "How much value and output projections stretch a vector, by layer.",
    "ff-amplification": "The pairs of subword types (key, query) that are brought together most, by layer.",
    "ff-norms": "Mean norm of the feed-forward's output, beside the norm of what bypasses it, by layer.",
    "frequency": "Frequency rank of a token against attention weight and norm; each panel names its rank correlation.",
    "mixing-frequency": "Frequency rank of a token against its mixing ratio, by scope.",
    "mixing-ratio": "Mean mixing ratio in percent, by layer (down) and kind of token (across), for every scope.",
    "outlier-dimensions": "Mean absolute value of every dimension of the feed-forward, by the gamma of the norm after it.",
    "outlier-dimensions-removal": "Correlation of the maps around the feed-forward, with and without its outliers.",
    "redundancy": "How much each component changes the map, beside what the model loses without it.",
    "scope-similarity-adjacent": "How much each component changes the map, 1 - r, by layer; lines: standard error.",
    "scope-similarity-ff-input": "Correlation of each map with the one that the feed-forward gets; bands: standard error.",
    "scope-similarity-pairs": "Correlation of the maps at any two scopes, mean over layers.",
    "shapley-layers": "Agreement of maps by integrated gradients with those by Shapley values, by layer.",
    "sinks": "What sinks get by weights and by norms, the norms of their states, and how the two agree without them.",
    "sinks-heads": "The share of all sinks together in every head (across) of every layer (down).",
    "weight-vs-norm": "Attention weight against norm for every pair of tokens; colours count pairs.",
    "word-split": "Amplification between subwords of one word, beside other pairs at the same distance.",
}

_ACROSS = {
    "scope-similarity": "Correlation of the maps before and after each component, mean over layers; components are "
    "counted along the chain of the block. Published: 2024, Table 1.",
    "mixing-ratio": "Mean mixing ratio over layers and tokens. Published: 2021, Tables 2, 5 and 6, on 992 sequences of "
    "Wikipedia unless another corpus is named.",
    "expansion-rate": "How much value and output projections stretch a vector. Published: 2021, Table 8, of the authors' "
    "form (-O expansion-rate.form=authors).",
    "word-split": "By how much the amplification between subwords of one word exceeds that of other pairs at the same "
    "distances. Filled marks: significant; bands: bootstrap interval, or one deviation over seeds.",
    "entities": "By how much the amplification between tokens of one named entity exceeds that of other pairs at the same "
    "distances. Filled marks: significant; bands: bootstrap interval, or one deviation over seeds.",
}


def across_caption(experiment: str) -> str:
    """The sentence about a figure that spans models."""
    return _ACROSS[experiment]


def caption(figure: str) -> str:
    """The sentence about a figure; of one that this version does not know, its name as words."""
    known = [name for name in _CAPTIONS if figure == name or figure.startswith(f"{name}-")]
    if known:
        return _CAPTIONS[max(known, key=len)]
    words = figure.replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]
