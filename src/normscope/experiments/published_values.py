"""The numbers of the papers, as they print them: tables and figures by model, corpus and scope. No logic here."""

from __future__ import annotations

WIKIPEDIA, SST2, MNLI, CONLL = "wikipedia", "sst2", "mnli", "conll"

SEQUENCES = {WIKIPEDIA: 992, SST2: 872, MNLI: 1000, CONLL: 1000}
"""How many sequences of each corpus the papers analysed (2021, Table 1)."""

LONGEST = {WIKIPEDIA: 128}
"""How many tokens a sequence has at most. Those of RoBERTa, whose tokens are others, the authors do not cut."""

SHAPES = {
    "bert-large": ("bert", 24, 1024, 30522),
    "bert-base": ("bert", 12, 768, 30522),
    "multiberts": ("bert", 12, 768, 30522),
    "bert-medium": ("bert", 8, 512, 30522),
    "bert-small": ("bert", 4, 512, 30522),
    "bert-mini": ("bert", 4, 256, 30522),
    "bert-tiny": ("bert", 2, 128, 30522),
    "roberta-large": ("roberta", 24, 1024, 50265),
    "roberta-base": ("roberta", 12, 768, 50265),
}
"""Type, layers, width and vocabulary of the papers' models."""

TITLES = {
    "bert-large": "BERT-large",
    "bert-base": "BERT-base",
    "multiberts": "MultiBERTs",
    "bert-medium": "BERT-medium",
    "bert-small": "BERT-small",
    "bert-mini": "BERT-mini",
    "bert-tiny": "BERT-tiny",
    "roberta-large": "RoBERTa-large",
    "roberta-base": "RoBERTa-base",
}
"""What the papers call their models."""

NAMES = {
    r"bert-large-uncased": "bert-large",
    r"bert-base-uncased": "bert-base",
    r"multiberts-seed_\d+": "multiberts",
    r"bert-(medium|small|mini|tiny)": "bert-{}",
    r"bert_uncased_L-8_H-512_A-8": "bert-medium",
    r"bert_uncased_L-4_H-512_A-8": "bert-small",
    r"bert_uncased_L-4_H-256_A-4": "bert-mini",
    r"bert_uncased_L-2_H-128_A-2": "bert-tiny",
    r"roberta-(large|base)": "roberta-{}",
}
"""What the hub calls them, without the owner: the small ones as the authors loaded them and as they were first published."""

MIXING_SCOPES = ("AttnW", "Attn", "AttnResW", "AttnRes", "AttnResLn")
MIXING: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("bert-large", WIKIPEDIA): {
        "mean": (97.4, 87.0, 48.7, 19.1, 14.9),
        "maximum": (100.0, 100.0, 50.0, 87.4, 86.6),
        "minimum": (15.0, 5.6, 7.5, 1.8, 1.6),
    },
    ("bert-base", WIKIPEDIA): {
        "mean": (97.1, 85.2, 48.6, 22.3, 18.8),
        "maximum": (100.0, 100.0, 50.0, 65.7, 61.3),
        "minimum": (45.0, 4.9, 22.5, 2.0, 1.3),
    },
    ("bert-medium", WIKIPEDIA): {
        "mean": (95.6, 83.4, 47.8, 20.9, 18.7),
        "maximum": (100.0, 99.9, 50.0, 49.2, 65.2),
        "minimum": (49.5, 9.7, 24.8, 3.8, 1.2),
    },
    ("bert-small", WIKIPEDIA): {
        "mean": (96.2, 85.3, 48.1, 29.6, 27.2),
        "maximum": (100.0, 100.0, 50.0, 80.4, 85.5),
        "minimum": (57.7, 10.3, 28.9, 6.7, 7.3),
    },
    ("bert-mini", WIKIPEDIA): {
        "mean": (95.5, 85.7, 47.8, 27.2, 26.4),
        "maximum": (100.0, 100.0, 50.0, 68.1, 70.7),
        "minimum": (50.9, 10.4, 25.4, 7.3, 6.6),
    },
    ("bert-tiny", WIKIPEDIA): {
        "mean": (94.1, 90.4, 47.1, 37.8, 37.3),
        "maximum": (99.9, 99.9, 50.0, 77.9, 70.4),
        "minimum": (38.6, 28.3, 19.3, 18.1, 17.6),
    },
    ("roberta-large", WIKIPEDIA): {
        "mean": (96.7, 87.8, 48.4, 19.8, 19.7),
        "maximum": (100.0, 99.9, 50.0, 87.8, 87.9),
        "minimum": (10.1, 15.2, 5.0, 4.3, 4.3),
    },
    ("roberta-base", WIKIPEDIA): {
        "mean": (95.8, 84.4, 47.9, 19.6, 16.2),
        "maximum": (100.0, 100.0, 50.0, 69.9, 73.4),
        "minimum": (3.8, 13.8, 1.9, 1.8, 1.5),
    },
    ("multiberts", WIKIPEDIA): {
        "mean": (96.1, 85.2, 48.1, 21.9, 17.5),
        "deviation": (0.1, 0.4, 0.1, 0.3, 0.4),
        "maximum": (100.0, 100.0, 50.0, 64.6, 67.7),
        "minimum": (8.8, 7.4, 4.4, 3.4, 1.4),
    },
    ("bert-base", SST2): {
        "mean": (92.5, 80.3, 46.3, 22.5, 18.5),
        "maximum": (100.0, 99.8, 50.0, 50.4, 44.9),
        "minimum": (2.2, 6.7, 1.1, 2.4, 1.1),
    },
    ("bert-base", MNLI): {
        "mean": (94.6, 83.5, 47.3, 22.4, 18.3),
        "maximum": (100.0, 99.9, 50.0, 65.4, 60.7),
        "minimum": (10.0, 6.8, 5.0, 2.8, 1.2),
    },
    ("bert-base", CONLL): {
        "mean": (91.7, 79.0, 45.8, 22.4, 18.6),
        "maximum": (100.0, 99.9, 50.0, 51.5, 45.8),
        "minimum": (1.5, 7.0, 0.8, 2.7, 0.8),
    },
}
"""2021, Tables 2, 5, 6 and 7, in per cent. Of the 25 MultiBERTs the mean over models (with its deviation), and the largest
and smallest value in any of them."""

MIXING_NOTES = {
    (
        "bert-base",
        WIKIPEDIA,
    ): "The authors' notebook prints 96.4 and 48.2 at AttnW and AttnResW, where the paper has 97.1 and 48.6."
}

MIXING_LAYERS = {("bert-base", WIKIPEDIA): (24, 20, 19, 21, 19, 20, 20, 20, 17, 19, 15, 11)}
"""2021, Figure 3e, AttnResLn, overall, in per cent."""

MIXING_DEPTH = {("bert-base", WIKIPEDIA): -0.67, ("roberta-base", WIKIPEDIA): -0.98}
"""2021, footnote 6: Spearman's rho of layer and mixing ratio at AttnResLn, overall."""

FREQUENCY_SCOPES = ("AttnW", "Attn", "AttnRes", "AttnResLn")
FREQUENCY: dict[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("bert-large", WIKIPEDIA): ((0.44, -0.53, -0.83, -0.71), (0.44, -0.56, -0.84, -0.75)),
    ("bert-base", WIKIPEDIA): ((0.16, -0.39, -0.84, -0.54), (0.14, -0.41, -0.86, -0.58)),
    ("bert-medium", WIKIPEDIA): ((-0.09, -0.13, -0.41, -0.02), (-0.11, -0.14, -0.43, -0.03)),
    ("bert-small", WIKIPEDIA): ((-0.05, 0.26, -0.22, 0.19), (-0.07, 0.26, -0.20, 0.21)),
    ("bert-mini", WIKIPEDIA): ((-0.52, -0.15, 0.23, 0.42), (-0.55, -0.17, 0.25, 0.44)),
    ("bert-tiny", WIKIPEDIA): ((-0.75, -0.62, 0.26, 0.24), (-0.77, -0.64, 0.27, 0.25)),
    ("multiberts", WIKIPEDIA): ((0.35, -0.23, -0.79, -0.36), (0.35, -0.25, -0.80, -0.38)),
    ("bert-base", SST2): ((0.22, -0.24, -0.81, -0.42), (0.19, -0.33, -0.84, -0.54)),
    ("bert-base", MNLI): ((0.22, -0.31, -0.77, -0.40), (0.19, -0.40, -0.84, -0.50)),
    ("bert-base", CONLL): ((0.16, -0.22, -0.79, -0.41), (0.09, -0.34, -0.85, -0.57)),
}
"""2021, Tables 3, 9, 10 and 11: of all tokens, and without special ones. Those of MultiBERTs are means over 25 models."""

FREQUENCY_DEVIATION = {("multiberts", WIKIPEDIA): ((0.01, 0.01, 0.02, 0.10), (0.07, 0.09, 0.02, 0.11))}

EXPANSION = {
    "bert-large": (0.80, 0.61, 1.08),
    "bert-base": (0.88, 0.63, 1.05),
    "multiberts": (0.88, 0.65, 1.43),
    "roberta-large": (0.94, 0.67, 1.09),
    "bert-medium": (0.87, 0.60, 1.41),
    "bert-small": (1.31, 0.78, 2.41),
    "bert-mini": (1.24, 0.65, 2.48),
    "bert-tiny": (1.86, 1.63, 2.09),
    "roberta-base": (1.30, 1.10, 1.49),
}
"""2021, Table 8: mean, minimum and maximum over layers (of the MultiBERTs over layers and 25 models, the mean's deviation
being 0.01)."""

SIMILARITY: dict[tuple[str, str], dict[tuple[str, str], float]] = {
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
"""2024, Table 1 and text."""

FEED_FORWARD_LAYERS = {("bert-base", WIKIPEDIA, 10): 0.40, ("bert-base", WIKIPEDIA, 11): 0.50}
REMOVED = {("bert-base", WIKIPEDIA, 10): (0.40, 0.88), ("bert-base", WIKIPEDIA, 11): (0.50, 0.94)}
"""2024, Section 5: before and after the outlier dimensions are removed."""

SIGNIFICANT = {
    ("word-split", "bert-base", WIKIPEDIA): frozenset({3, 4, 5, 6, 7, 9, 10, 11}),
    ("entities", "bert-base", CONLL): frozenset(range(3, 12)),
}
"""2024, Figure 7: the layers in which the feed-forward amplifies the group's pairs significantly."""
