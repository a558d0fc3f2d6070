"""Checks of a command line before anything large is imported. Every `check_x` raises an error that says what is wrong.

What only the model itself shows is checked once it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normscope.errors import FileError, InputError, SelectionError, listing, unknown
from normscope.experiments import EXPERIMENTS, check_approximable, check_experiment_options
from normscope.methods import METHODS, check_method_options, read_options
from normscope.models.config import check_scope, check_stacks, refuse_layer
from normscope.models.options import ModelOptions
from normscope.options import MOST_JOBS, UNITS, normalise_axis
from normscope.paths import ANSWERS, FIGURES, MAPS, NETCDF, PAGES, RESULTS, TABLES, ending, kind
from normscope.request import MapSelectionOptions, RunOptions
from normscope.scopes import ATTENTIONS, Scope

if TYPE_CHECKING:
    from normscope.corpora import CorpusOptions

ALL = "all"
"""The value of `--scope` for all scopes."""

_MOST_BYTES = 2**80
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def check_text(*texts: str | None) -> None:
    """Raise for a text without a word in it."""
    if not "".join(text or "" for text in texts).strip():
        raise InputError("The text is empty. Give at least one word.")


def check_model(
    model: ModelOptions,
    *,
    scopes: Iterable[str] = (),
    layer: int | None = None,
    encoder: bool = False,
    decoder_text: str | None = None,
) -> None:
    """Raise for a missing model, and for scopes, layers or stacks that its configuration shows it does not have."""
    outline = model.outline()
    check_stacks(outline, encoder=encoder, decoder_text=decoder_text)
    if layer is not None:
        refuse_layer(layer, outline)
    for scope in scopes:
        check_scope(scope, outline, encoder=encoder)


def scope_names(scope: str | None) -> list[str]:
    """The scopes that `--scope` names."""
    return [] if scope is None or scope == ALL else [scope]


def check_map_file(out: Path | None, scope: str | None, normalise: str) -> None:
    """Raise for a file that cannot hold the requested maps."""
    normalise_axis(normalise)
    kind = None if out is None else ending(out, MAPS)
    if scope == ALL and kind not in (*TABLES, NETCDF):
        given = "without --out they would go to the terminal" if out is None else f"{str(out)!r} is a picture"
        raise InputError(
            f"All scopes together go into a table or netCDF file ({listing((*TABLES, NETCDF))}), and {given}. Name such a "
            f"file or one scope, or draw all scopes of a layer: normscope growth."
        )
    if kind == NETCDF and normalise != "none":
        raise FileError("A netCDF file holds the norms as they are: leave out --normalise, or write a table (csv).")


def check_head(head: int | None, scope: str | None) -> None:
    """Raise for a head at a scope where heads are summed, or that is not counted from 1."""
    if head is None:
        return
    if head < 1:
        raise SelectionError(f"There is no head {head}: heads are counted from 1.")
    last = "" if scope is None else Scope(scope).last
    if last and last not in ATTENTIONS:
        raise SelectionError(f"Heads are separate only at AttnW, Attn; at {scope} they are already mixed.")


def check_mixing_file(out: Path | None, scope: str | None) -> None:
    """Raise for a file that cannot hold the requested mixing ratios."""
    kind = None if out is None else ending(out, MAPS)
    if scope == ALL and kind in FIGURES:
        raise InputError(f"A picture shows one scope: name one (--scope), or write a table ({listing(TABLES)}).")


def check_growth(out: Path, normalise: str) -> None:
    ending(out, FIGURES)
    normalise_axis(normalise)


def check_page(out: Path | None) -> None:
    """Raise for a file that cannot hold a page."""
    if out is not None:
        ending(out, PAGES)


def check_approximation(options: MapSelectionOptions) -> None:
    """Raise if maps are to be approximate in two ways."""
    approximate, products = options.get("approximate"), options.get("products")
    if approximate is not None and products is not None:
        raise InputError(f"Use --approximate {approximate} or --products {products}, not both.")


# ---- explanations ------------------------------------------------------------------------------------------------------


def check_method(name: str, options: Sequence[str], *, heads: bool, edges: bool) -> None:
    """Raise for an unknown method, or for options that it does not have."""
    declared = METHODS.declaration(METHODS.listed_name(name))
    check_method_options(declared.name, declared.defaults(), read_options(options))
    if heads and not declared.follows:
        following = [each for each in METHODS if METHODS.declaration(each).follows]
        raise InputError(
            f"The method {name!r} does not follow single heads: leave out --heads, or use {listing(map(repr, following))}."
        )
    if edges and not declared.follows:
        raise InputError(f"The method {name!r} follows nothing through the layers: leave out --edges.")


def check_explanation_file(out: Path | None, flow: float | None) -> None:
    """Raise for a file that cannot hold the requested explanation."""
    kind = None if out is None else ending(out, RESULTS)
    if flow is not None and kind not in FIGURES:
        raise InputError(f"A flow graph is a picture: give --out with one of {', '.join(FIGURES)}.")
    if flow is not None and not 0 < flow <= 1:
        raise InputError(f"The share of the flow is above 0 and at most 1, not {flow}.")


def check_question(request: Mapping[str, Any], *, state: bool) -> None:
    """Raise if the options of an explanation contradict each other."""
    target, against, continue_for = (request.get(name) for name in ("target", "against", "continue_for"))
    if state and (against is not None or continue_for is not None):
        raise InputError("--state takes the place of --against and --continue-for: give one of them.")
    if continue_for is None:
        return
    if target is not None or against is not None:
        raise InputError("--continue-for takes the place of --target and --against: give one of them.")
    if continue_for < 1:
        raise InputError(f"A text is continued for at least one token, not for {continue_for}.")


def check_answer_request(
    request: Mapping[str, Any],
    context: Sequence[str] | None,
    messages: Path | None,
    *,
    units: str,
    hops: str | None,
    top: int,
    out: Path | None,
) -> None:
    """Raise if the options of an answer contradict each other, or cannot be read."""
    question = request.get("question")
    if messages is None and not context and question is None:
        raise InputError("Give a --context and a --question, or the --messages of a chat, for the model to answer.")
    if messages is not None and (context or question is not None):
        raise InputError("--messages take the place of --context and --question: give one or the other.")
    if question is not None and not question.strip():
        raise InputError("The question is empty. Ask something, or leave it out.")
    if units not in UNITS:
        raise InputError(unknown(f"There is no unit {units!r}", units, "Units", UNITS))
    if hops is not None and hops != "all" and not (hops.isdecimal() and len(hops) < 10):
        raise InputError(f"Credit is handed on a number of times (--hops), or 'all' the way, not {hops!r}.")
    if request.get("max_new_tokens", 1) < 1 or top < 1:
        raise InputError("--max-new-tokens and --top are at least 1.")
    if out is not None:
        ending(out, ANSWERS)


def read_bytes(size: str | None) -> int | None:
    """A number of bytes from a text such as `500M` or `2G`."""
    if size is None:
        return None
    match = re.fullmatch(r"([0-9.]+)\s*([kmg]?)i?b?", size.strip().lower())
    if match is None or match[1].count(".") > 1:
        raise InputError(f"A size of memory is a number of bytes, or such as 500M or 2G, not {size!r}.")
    number = float(match[1]) if match[1].strip(".") else inf
    if number > _MOST_BYTES:
        raise InputError(f"A size of memory is a number of bytes, or such as 500M or 2G, not {size!r:.40}.")
    return int(number * _SIZES[match[2]])


# ---- finished results --------------------------------------------------------------------------------------------------


def check_results(paths: Sequence[Path]) -> None:
    """Raise for missing results, and for more than two."""
    for path in paths:
        if kind(path, "read") is None:
            raise FileError(f"There is no result {str(path)!r}. Give the .nc or .zarr that an analysis was saved to.")
    if len(paths) > 2:
        raise InputError(f"One result is shown, or two side by side, not {len(paths)}.")


# ---- runs --------------------------------------------------------------------------------------------------------------


def check_experiments(
    names: Sequence[str], options: Sequence[str], settings: RunOptions
) -> dict[str, dict[str, object]]:
    """The options of each experiment; raises for unknown or repeated experiments, and those that need exact maps."""
    known = [EXPERIMENTS.listed_name(name) for name in names]
    if len(set(known)) < len(known):
        raise InputError("Name at least one experiment, and each only once.")
    given = read_experiment_options(options, names)
    approximate = settings.get("approximate")
    if approximate is not None:
        exact = [
            listed for listed, name in zip(known, names, strict=True) if not _ranks_only(listed, given.get(name, {}))
        ]
        check_approximable(exact, approximate)
    return given


def _ranks_only(name: str, options: Mapping[str, object]) -> bool:
    """Whether an experiment with these options uses the ranks of map values alone."""
    needed = EXPERIMENTS.declaration(name).rank_options
    return bool(needed) and needed.items() <= options.items()


def check_corpus(names: Sequence[str], corpus: str | None, options: CorpusOptions, ranks: str | Path | None) -> None:
    """Raise if a corpus is needed and missing, or if its options or files do not exist."""
    from normscope.corpora import Corpus, CorpusError

    declared = [EXPERIMENTS.declaration(EXPERIMENTS.listed_name(name)) for name in names]
    if corpus is None and any(each.reads_corpus for each in declared):
        raise InputError("These experiments need a corpus: name one (--corpus).")
    if corpus is not None:
        files = Corpus.of(corpus, options)
        if files.actual_format != "dataset" and not Path(corpus).exists():
            raise CorpusError(f"There is no corpus file {corpus!r}.")
        if files.gold is not None and kind(files.gold, "read") != "a file":
            raise CorpusError(f"There is no file {files.gold!r} with gold alignments.")
    if ranks is not None and kind(ranks, "read") != "a file":
        raise CorpusError(f"There is no file {str(ranks)!r} with token frequencies.")


def check_counts(*, jobs: int, shard_size: int) -> None:
    for option, count in (("--jobs", jobs), ("--shard-size", shard_size)):
        if count < 1:
            raise InputError(f"{option} is at least 1, not {count}.")
    if jobs > MOST_JOBS:
        raise InputError(f"--jobs is at most {MOST_JOBS}, not {jobs}: each process loads the model.")


def check_folder(out: str) -> None:
    """Raise for an output that exists and is not a folder."""
    found = None if "://" in out else kind(out)
    if found not in (None, "a folder"):
        raise FileError(f"{out!r} is {found}, and a run needs a folder. Choose another name (--out).")


def read_experiment_options(given: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, object]]:
    """`experiment.option=value` strings as typed options by experiment."""
    by_experiment: dict[str, dict[str, object]] = {}
    for text in given:
        target, separator, value = text.partition("=")
        name, dot, option = target.partition(".")
        if not separator or not dot:
            raise InputError(f"An option is EXPERIMENT.OPTION=VALUE, not {text!r}.")
        if name not in names:
            raise InputError(f"The option {text!r} is for {name!r}, which is not among the experiments to run.")
        by_experiment.setdefault(name, {})[option] = _typed(name, option, value)
    return by_experiment


def _typed(experiment: str, option: str, value: str) -> object:
    """A value in the type of the option's default."""
    check_experiment_options(experiment, {option: value})
    default = EXPERIMENTS.declaration(EXPERIMENTS.listed_name(experiment)).defaults()[option]
    try:
        match default:
            case bool():
                return {"true": True, "false": False}[value.lower()]
            case int() | float():
                return type(default)(value)
            case tuple():
                return tuple(item.strip() for item in value.split(","))
            case _:
                return value
    except (KeyError, ValueError) as error:
        kind = "true or false" if isinstance(default, bool) else f"a number such as {default}"
        raise InputError(f"{experiment}: {option} is {kind}, not {value!r}.") from error
