"""The options that several commands share, each declared once. Options of dataclasses are generated from their fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from normscope.cli.expansion import Expansion
from normscope.models.options import ModelOptions
from normscope.request import AnalysisRequest

_MODEL = "The model"
_SHOWN = "What is shown"

MODEL = Expansion(ModelOptions, ModelOptions, _MODEL)
"""The options of a command that loads one model: its parameter is a `ModelOptions`."""

LOADING = Expansion(ModelOptions, ModelOptions, _MODEL, without=("model",))
"""The same except the model itself, for a command that loads several in the same way."""


def of_analysis(*names: str) -> Expansion:
    """Options of `Analyzer.analyze` and its relatives, by the names of their keywords: the parameter is a dict of those."""
    return Expansion(AnalysisRequest, dict, only=names)


CONVENTIONS = ("truncate", "value_bias", "ff_baseline", "gates")
"""The options of every command that decomposes a text."""

NamePart = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Only those whose names contain this.", show_default=False),
]
_TEXT = (
    "The text to analyse, a text file (.txt, .md, .rst), or - for standard input; for a vision model, the file of an "
    "image."
)
TextArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEXT",
        help=_TEXT,
        show_default=False,
    ),
]
TextOrCorpus = Annotated[
    str | None,
    typer.Argument(metavar="[TEXT]", help=f"{_TEXT} Or leave it out, and name a --corpus.", show_default=False),
]
AsText = Annotated[
    bool, typer.Option("--as-text", help="Take texts as they are, even '-' and what looks like the name of a file.")
]
Scope = Annotated[
    str | None,
    typer.Option(
        "--scope",
        "-s",
        help="How far the layer is followed, from AttnW to the whole layer (the default). 'all' writes every scope into "
        "a table or netCDF file.",
        show_default=False,
        rich_help_panel=_SHOWN,
    ),
]
Encoder = Annotated[
    bool,
    typer.Option(
        "--encoder",
        help="Show the encoder of an encoder-decoder model instead of its decoder.",
        rich_help_panel=_SHOWN,
    ),
]
Layer = Annotated[
    int | None, typer.Option("--layer", "-l", help="The layer, from 1.", show_default=False, rich_help_panel=_SHOWN)
]
Head = Annotated[
    int | None,
    typer.Option(
        "--head",
        help="One head, from 1, at the scopes where heads are separate (AttnW, Attn).",
        show_default=False,
        rich_help_panel=_SHOWN,
    ),
]
Normalise = Annotated[
    str,
    typer.Option(
        "--normalise",
        "--normalize",
        "-n",
        help="Norms as they are ('none'), or as shares of a 'row' or 'column'.",
        rich_help_panel=_SHOWN,
    ),
]
Words = Annotated[bool, typer.Option("--words", help="Words instead of tokens.", rich_help_panel=_SHOWN)]
NoSpecial = Annotated[bool, typer.Option("--no-special", help="Leave out special tokens.", rich_help_panel=_SHOWN)]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="The file to write; its ending determines the format.", show_default=False),
]
