"""The numbers of the papers, to stand beside measured ones: only where the model and the corpus are those of the papers."""

from __future__ import annotations

WIKIPEDIA, SST2, MNLI, CONLL = "wikipedia", "sst2", "mnli", "conll"

_MODELS = {
    "bert-large-uncased": "bert-large",
    "bert-base-uncased": "bert-base",
    "roberta-large": "roberta-large",
    "roberta-base": "roberta-base",
    "bert_uncased_L-8_H-512_A-8": "bert-medium",
    "bert_uncased_L-4_H-512_A-8": "bert-small",
    "bert_uncased_L-4_H-256_A-4": "bert-mini",
    "bert_uncased_L-2_H-128_A-2": "bert-tiny",
}

_MIXING_SCOPES = ("AttnW", "Attn", "AttnResW", "AttnRes", "AttnResLn")
_MIXING = {
    ("bert-large", WIKIPEDIA): (97.4, 87.0, 48.7, 19.1, 14.9),
    ("bert-base", WIKIPEDIA): (97.1, 85.2, 48.6, 22.3, 18.8),
    ("bert-medium", WIKIPEDIA): (95.6, 83.4, 47.8, 20.9, 18.7),
    ("bert-small", WIKIPEDIA): (96.2, 85.3, 48.1, 29.6, 27.2),
    ("bert-mini", WIKIPEDIA): (95.5, 85.7, 47.8, 27.2, 26.4),
    ("bert-tiny", WIKIPEDIA): (94.1, 90.4, 47.1, 37.8, 37.3),
    ("roberta-large", WIKIPEDIA): (96.7, 87.8, 48.4, 19.8, 19.7),
    ("roberta-base", WIKIPEDIA): (95.8, 84.4, 47.9, 19.6, 16.2),
    ("bert-base", SST2): (92.5, 80.3, 46.3, 22.5, 18.5),
    ("bert-base", MNLI): (94.6, 83.5, 47.3, 22.4, 18.3),
    ("bert-base", CONLL): (91.7, 79.0, 45.8, 22.4, 18.6),
}
_MIXING_LAYERS = {("bert-base", WIKIPEDIA): (24, 20, 19, 21, 19, 20, 20, 20, 17, 19, 15, 11)}

_FREQUENCY_SCOPES = ("AttnW", "Attn", "AttnRes", "AttnResLn")
_FREQUENCY = {
    ("bert-base", "all"): (0.16, -0.39, -0.84, -0.54),
    ("bert-base", "without special tokens"): (0.14, -0.41, -0.86, -0.58),
    ("bert-large", "all"): (0.44, -0.53, -0.83, -0.71),
    ("bert-tiny", "all"): (-0.75, -0.62, 0.26, 0.24),
}

_EXPANSION = {
    "bert-large": 0.80,
    "bert-base": 0.88,
    "bert-medium": 0.87,
    "bert-small": 1.31,
    "bert-mini": 1.24,
    "bert-tiny": 1.86,
    "roberta-large": 0.94,
    "roberta-base": 1.30,
}

_ADJACENT = {
    ("bert-base", WIKIPEDIA): {
        ("AttnW", "Attn"): 0.48,
        ("Attn", "AttnRes"): 0.41,
        ("AttnRes", "AttnResLn"): 0.91,
        ("AttnResLn", "AttnResLnFf"): 0.79,
        ("AttnResLnFf", "AttnResLnFfRes"): 0.96,
        ("AttnResLnFfRes", "AttnResLnFfResLn"): 0.73,
        ("AttnRes", "AttnResLnFfResLn"): 0.99,
    }
}
_FEED_FORWARD_LAYERS = {("bert-base", WIKIPEDIA, 10): 0.40, ("bert-base", WIKIPEDIA, 11): 0.50}
_REMOVED = {("bert-base", WIKIPEDIA, 10): (0.40, 0.88), ("bert-base", WIKIPEDIA, 11): (0.50, 0.94)}


def model_of_papers(name: str) -> str | None:
    """What the papers call a model, by the last part of its name."""
    return _MODELS.get(name.rstrip("/").rsplit("/", 1)[-1])


def mixing_ratio(model: str, corpus: str, scope: str) -> float | None:
    """Mean mixing ratio, as a fraction."""
    values = _MIXING.get((model_of_papers(model) or "", corpus))
    return None if values is None or scope not in _MIXING_SCOPES else values[_MIXING_SCOPES.index(scope)] / 100


def mixing_ratio_of_layer(model: str, corpus: str, scope: str, layer: int) -> float | None:
    values = _MIXING_LAYERS.get((model_of_papers(model) or "", corpus))
    return None if values is None or scope != "AttnResLn" or layer > len(values) else values[layer - 1] / 100


def mixing_frequency(model: str, corpus: str, scope: str, tokens: str) -> float | None:
    values = _FREQUENCY.get((model_of_papers(model) or "", tokens)) if corpus == WIKIPEDIA else None
    return None if values is None or scope not in _FREQUENCY_SCOPES else values[_FREQUENCY_SCOPES.index(scope)]


def expansion_rate(model: str) -> float | None:
    return _EXPANSION.get(model_of_papers(model) or "")


def similarity(model: str, corpus: str, first: str, second: str) -> float | None:
    return _ADJACENT.get((model_of_papers(model) or "", corpus), {}).get((first, second))


def similarity_of_layer(model: str, corpus: str, first: str, second: str, layer: int) -> float | None:
    if (first, second) != ("AttnResLn", "AttnResLnFf"):
        return None
    return _FEED_FORWARD_LAYERS.get((model_of_papers(model) or "", corpus, layer))


def outlier_removal(model: str, corpus: str, layer: int) -> tuple[float | None, float | None]:
    return _REMOVED.get((model_of_papers(model) or "", corpus, layer), (None, None))
