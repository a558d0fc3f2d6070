"""`normscope experiments` and `run`: the experiments of the papers over a corpus."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from normscope.cli import options
from normscope.cli.checks import check_corpus, check_counts, check_experiments, check_folder, check_model
from normscope.cli.commands import add_command
from normscope.cli.console import named, quiet, result_console, say
from normscope.cli.expansion import Expansion, expanded
from normscope.cli.several import RECIPES, run_several, several_models
from normscope.corpora import Corpus, CorpusOptions
from normscope.errors import InputError, listing
from normscope.experiments import EXPERIMENTS
from normscope.models.options import ModelOptions
from normscope.options import ApproximationName, Arithmetic, FeedForwardBaseline, Masking, StackName, ValueBias

if TYPE_CHECKING:
    from normscope.runs.engines import Engine

EXPERIMENTS_EXAMPLES = (
    "normscope experiments",
    "normscope experiments mixing",
)
RUN_EXAMPLES = (
    "normscope run scope-similarity mixing-ratio --corpus wiki.txt --unit packed --out runs/minilm",
    "normscope run entities --model roberta-base --corpus eng.testa --limit 1000 --out runs/entities",
    "normscope run mixing-ratio --corpus wiki.txt --out runs/wiki --engine ray --ray-address auto --workers 32",
    "normscope run scope-similarity --model bert-base-uncased --model roberta-base --corpus wiki.txt --out runs",
    "normscope run scope-similarity mixing-ratio --models kobayashi-2024 --corpus wiki.txt --out runs",
    "normscope run alignment --model marian-dir --corpus pairs.src-tgt --gold pairs.gold --setting both --out runs/align",
)

EngineName = Literal["local", "ray"]

_CORPUS, _HOW, _WORK = "The corpus", "The experiments", "The work"


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    add_command(app, "experiments", experiments_command, *EXPERIMENTS_EXAMPLES)
    command = expanded(run_command, corpus_options=Expansion(Corpus, dict, _CORPUS), loading=options.LOADING)
    add_command(app, "run", command, *RUN_EXAMPLES)


def experiments_command(name: options.NamePart = None) -> None:
    """List the experiments: name, paper, what they show, options."""
    names = named(name, EXPERIMENTS, "experiment")
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "paper", "shows", "what it finds", "options (-O name.option=value)"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for kind in [EXPERIMENTS[each] for each in names]:
        defaults = ", ".join(f"{field.name}={_shown(field.default)}" for field in fields(kind))
        table.add_row(kind.name, kind.paper, kind.shows, kind.summary, defaults)
    result_console().print(table)


def run_command(
    names: Annotated[
        list[str], typer.Argument(metavar="EXPERIMENT", help="Names; `normscope experiments` lists them.")
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Folder for tables, figures, manifest and finished shards; or its URL, such as s3://bucket/run.",
        ),
    ],
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus", "-c", help="A file, or the name of a dataset.", show_default=False, rich_help_panel=_CORPUS
        ),
    ] = None,
    corpus_name: Annotated[
        str,
        typer.Option(
            "--corpus-name",
            help="Name of a corpus of the papers (wikipedia, sst2, mnli, conll), to show published values beside it.",
            show_default=False,
            rich_help_panel=_CORPUS,
        ),
    ] = "",
    masking: Annotated[
        Masking,
        typer.Option(
            "--masking", help="Mask tokens as each paper does, in all experiments, or in none.", rich_help_panel=_HOW
        ),
    ] = "paper",
    value_bias: Annotated[
        ValueBias,
        typer.Option(
            "--value-bias",
            help="Count the bias of the value projection with the token or with the bias.",
            rich_help_panel=_HOW,
        ),
    ] = "token",
    ff_baseline: Annotated[
        FeedForwardBaseline,
        typer.Option(
            "--ff-baseline",
            help="Start the integrated gradients of feed-forwards at zero, or at the bias: what no token put in.",
            rich_help_panel=_HOW,
        ),
    ] = "zero",
    arithmetic: Annotated[
        Arithmetic | None,
        typer.Option(
            "--arithmetic",
            help="Arithmetic of the decomposition. Default: float32, or float64 for a float64 model.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    stack: Annotated[
        StackName | None,
        typer.Option(
            "--stack",
            help="Of an encoder-decoder model, the stack to look at. Default: the decoder.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    approximate: Annotated[
        ApproximationName | None,
        typer.Option(
            "--approximate",
            help="Approximate the maps from the feed-forward on, for experiments that use their ranks alone.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of masking, sampling and bootstrap.", rich_help_panel=_HOW)
    ] = 0,
    setting: Annotated[
        str | None,
        typer.Option("--setting", help="alignment: AWO, AWI or both.", show_default=False, rich_help_panel=_HOW),
    ] = None,
    minimum_count: Annotated[
        int | None,
        typer.Option(
            "--minimum-count",
            help="ff-amplification: how often a pair of types has to occur. Default: twice.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    ranks: Annotated[
        Path | None,
        typer.Option(
            "--ranks",
            help="Token frequencies, lines of 'rank count id'. Default: counted in the corpus.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-O",
            help="Option of an experiment, as EXPERIMENT.OPTION=VALUE. Repeatable.",
            show_default=False,
            rich_help_panel=_HOW,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", help="Number of processes on this machine.", rich_help_panel=_WORK)
    ] = 1,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", help="Compute on this machine, or on a Ray cluster.", rich_help_panel=_WORK),
    ] = "local",
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address",
            help="The Ray cluster: 'auto' or HOST:PORT. Default: one on this machine, for this run.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            help="Workers on the Ray cluster. Default: one on each machine.",
            show_default=False,
            rich_help_panel=_WORK,
        ),
    ] = None,
    shard_size: Annotated[
        int, typer.Option("--shard-size", help="Sequences per shard, the unit that is kept.", rich_help_panel=_WORK)
    ] = 16,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace another run in the folder.", rich_help_panel=_WORK),
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A folder or hub name. Default: the embedded all-MiniLM-L6-v2. Repeatable: several models run one after "
            "the other, each in a folder of its own in --out.",
            show_default=False,
            rich_help_panel=options.MODEL.panel,
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            metavar="LIST",
            help=f"A list of models: {listing(RECIPES)} (those of the paper), or a text file with a folder or hub name on "
            "each line.",
            show_default=False,
            rich_help_panel=options.MODEL.panel,
        ),
    ] = None,
    *,
    corpus_options: CorpusOptions,
    loading: ModelOptions,
) -> None:
    """Run experiments of the papers over a corpus, in one pass.

    Of several models, the cost of each is said first. After an interruption, the same command resumes the run, or all of
    them.
    """
    named_options = {"alignment.setting": setting, "ff-amplification.minimum_count": minimum_count}
    settings = [*(option or []), *(f"{name}={value}" for name, value in named_options.items() if value is not None)]
    experiment_options = check_experiments(names, settings, approximate)
    check_corpus(names, corpus, corpus_options, ranks)
    check_counts(jobs=jobs, shard_size=shard_size)
    chosen = several_models(model or [], models, out)
    for place, name in (chosen or {out: next(iter(model or []), None)}).items():
        check_folder(place)
        check_model(replace(loading, model=name))
    _ = _engine(engine, ray_address, workers, jobs)
    from normscope.runs import RunInterrupted, run

    shared: dict[str, Any] = {
        "corpus": corpus,
        "options": experiment_options,
        "masking": masking,
        "seed": seed,
        "shard_size": shard_size,
        "corpus_name": corpus_name,
        "ranks": ranks,
        "value_bias": value_bias,
        "ff_baseline": ff_baseline,
        "dtype": arithmetic,
        "stack": stack,
        "approximate": approximate,
        **corpus_options,
    }

    def run_one(source: ModelOptions, folder: str) -> None:
        work = _engine(engine, ray_address, workers, jobs)
        how: dict[str, Any] = {"jobs": jobs, "overwrite": overwrite, "progress": None, "engine": work}
        result = run(names, model=source, out=folder, **how, **shared)
        for outcome in result.outcomes.values():
            if outcome.printed is not None:
                result_console().print(outcome.printed())
        _tell(folder, result.manifest)

    quiet()
    try:
        if chosen is None:
            run_one(replace(loading, model=next(iter(model or []), None)), out)
        else:
            from normscope.runs import settings_of

            run_several(
                {folder: replace(loading, model=name) for folder, name in chosen.items()},
                settings_of(names, **shared),
                run_one,
            )
    except RunInterrupted as interruption:
        say(str(interruption), "yellow")
        raise typer.Exit(130) from None


def _engine(name: EngineName, address: str | None, workers: int | None, jobs: int) -> Engine | None:
    """The engine that is asked for; `None` for this machine, with its `--jobs`."""
    if name == "local":
        for option, value in (("--ray-address", address), ("--workers", workers)):
            if value is not None:
                raise InputError(f"{option} belongs to --engine ray; the processes on this machine are --jobs.")
        return None
    if jobs != 1:
        raise InputError("--jobs are processes on this machine; with --engine ray say --workers.")
    from normscope.runs.ray import Ray

    return Ray(address, workers)


def _tell(out: str, manifest: dict[str, Any]) -> None:
    skipped = ", ".join(f"{kind}: {count}" for kind, count in manifest["rows_left_out_or_changed"].items())
    say(f"{manifest['sequences']} sequences, {manifest['tokens']} tokens{f' ({skipped})' if skipped else ''}.")
    for problem in manifest["problems"]:
        say(f"  {problem}")
    if manifest["worst_completeness_error"] is not None:
        say(f"Worst completeness error: {manifest['worst_completeness_error']:.1e}.")
    if manifest["approximate"] is not None:
        say(manifest["approximate"]["note"])
    say(f"Wrote {out}/tables, {out}/figures and {out}/manifest.json.")


def _shown(value: object) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
