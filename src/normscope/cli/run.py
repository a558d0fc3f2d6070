"""`normscope experiments` and `run`: the experiments of the papers over a corpus."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from normscope.options import Documentation
from normscope.request import RunOptions, RunSettings

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
    command = expanded(
        run_command,
        corpus_options=Expansion(Corpus, dict, _CORPUS, without=("target_column",)),
        settings=Expansion(RunSettings, dict, _HOW),
        options_given=Expansion(ExperimentOptions, ExperimentOptions, _HOW),
        work=Expansion(Work, Work, _WORK),
        models=Expansion(ModelNames, ModelNames, options.MODEL.panel),
        loading=options.LOADING,
    )
    add_command(app, "run", command, *RUN_EXAMPLES)


def experiments_command(name: options.NamePart = None) -> None:
    """List the experiments: name, paper, what they show, options."""
    names = named(name, EXPERIMENTS, "experiment")
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "paper", "shows", "what it finds", "options (-O name.option=value)"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for listed in names:
        declared = EXPERIMENTS.declaration(listed)
        defaults = ", ".join(f"{option}={_shown(default)}" for option, default in declared.defaults().items())
        table.add_row(listed, declared.paper, declared.shows, declared.summary, defaults)
    result_console().print(table)


ExperimentNames = Annotated[
    list[str], typer.Argument(metavar="EXPERIMENT", help="Names; `normscope experiments` lists them.")
]
RunFolder = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Folder for tables, figures, manifest and finished shards; or its URL, such as s3://bucket/run.",
    ),
]
CorpusPath = Annotated[
    str | None,
    typer.Option(
        "--corpus", "-c", help="A file, or the name of a dataset.", show_default=False, rich_help_panel=_CORPUS
    ),
]


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions:
    """Options of single experiments: those with a flag of their own, and all others as `EXPERIMENT.OPTION=VALUE`."""

    setting: Annotated[str | None, Documentation("alignment: AWO, AWI or both.")] = None
    minimum_count: Annotated[
        int | None, Documentation("ff-amplification: how often a pair of types must occur. Default: twice.")
    ] = None
    option: Annotated[
        list[str] | None,
        Documentation("Option of an experiment, as EXPERIMENT.OPTION=VALUE. Repeatable.", ("--option", "-O")),
    ] = None

    def texts(self) -> list[str]:
        """All of them as `EXPERIMENT.OPTION=VALUE`."""
        named = {"alignment.setting": self.setting, "ff-amplification.minimum_count": self.minimum_count}
        return [*(self.option or []), *(f"{name}={value}" for name, value in named.items() if value is not None)]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Where the shards are computed, and whether another run in the folder is replaced."""

    jobs: Annotated[int, Documentation("Number of processes on this machine.", ("--jobs", "-j"))] = 1
    engine: Annotated[EngineName, Documentation("Compute on this machine, or on a Ray cluster.")] = "local"
    ray_address: Annotated[
        str | None,
        Documentation("The Ray cluster: 'auto' or HOST:PORT. Default: one on this machine, for this run."),
    ] = None
    workers: Annotated[int | None, Documentation("Workers on the Ray cluster. Default: one on each machine.")] = None
    overwrite: Annotated[bool, Documentation("Replace another run in the folder.")] = False

    def new_engine(self) -> Engine | None:
        """The requested engine; `None` for this machine, with its `--jobs`."""
        if self.engine == "local":
            for option, value in (("--ray-address", self.ray_address), ("--workers", self.workers)):
                if value is not None:
                    raise InputError(f"{option} belongs to --engine ray; the processes on this machine are --jobs.")
            return None
        if self.jobs != 1:
            raise InputError("--jobs are processes on this machine; with --engine ray use --workers.")
        from normscope.runs.ray import Ray

        return Ray(self.ray_address, self.workers)


@dataclass(frozen=True, kw_only=True)
class ModelNames:
    """One model or several, by name or from a list."""

    model: Annotated[
        list[str] | None,
        Documentation(
            "A folder, hub name or GGUF file, or smollm2. Default: the embedded all-MiniLM-L6-v2. Repeatable: several "
            "models run one after the other, each in a folder of its own in --out.",
            ("--model", "-m"),
        ),
    ] = None
    models: Annotated[
        str | None,
        Documentation(
            f"A list of models: {listing(RECIPES)} (those of the paper), or a text file with a folder or hub name on each "
            "line."
        ),
    ] = None

    def sources(self, out: str, loading: ModelOptions) -> dict[str, ModelOptions]:
        """The models by the folders of their runs."""
        names = several_models(self.model or [], self.models, out) or {out: next(iter(self.model or []), None)}
        return {folder: replace(loading, model=name) for folder, name in names.items()}


def run_command(
    names: ExperimentNames,
    out: RunFolder,
    corpus: CorpusPath = None,
    *,
    corpus_options: CorpusOptions,
    settings: RunOptions,
    options_given: ExperimentOptions,
    work: Work,
    models: ModelNames,
    loading: ModelOptions,
) -> None:
    """Run experiments of the papers over a corpus, in one pass.

    For several models, the cost of each is reported first. After an interruption, the same command resumes the run, or all
    of them.
    """
    experiment_options = check_experiments(names, options_given.texts(), settings)
    check_corpus(names, corpus, corpus_options, settings.get("ranks"))
    check_counts(jobs=work.jobs, shard_size=settings.get("shard_size", RunSettings.shard_size))
    sources = models.sources(out, loading)
    for folder, source in sources.items():
        check_folder(folder)
        check_model(source)
    _ = work.new_engine()
    keywords: dict[str, Any] = {"corpus": corpus, "options": experiment_options, **settings, **corpus_options}
    quiet()
    with exit_when_interrupted():
        if list(sources) == [out]:
            _run_one(names, sources[out], out, work, keywords)
            return
        from normscope.runs import settings_of

        run_several(
            sources,
            settings_of(names, **keywords),
            lambda source, folder: _run_one(names, source, folder, work, keywords),
        )


def _run_one(names: list[str], model: ModelOptions, out: str, work: Work, keywords: dict[str, Any]) -> None:
    from normscope.runs import run

    how: dict[str, Any] = {"jobs": work.jobs, "overwrite": work.overwrite, "engine": work.new_engine()}
    result = run(names, model=model, out=out, progress=None, **how, **keywords)
    for outcome in result.outcomes.values():
        if outcome.printed is not None:
            result_console().print(outcome.printed())
    _summarise(out, result.manifest)


@contextmanager
def exit_when_interrupted() -> Generator[None]:
    """Exit with 130 when a run is interrupted, with a message on how to resume it."""
    from normscope.runs import RunInterrupted

    try:
        yield
    except RunInterrupted as interruption:
        say(str(interruption), "yellow")
        raise typer.Exit(130) from None


def _summarise(out: str, manifest: dict[str, Any]) -> None:
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
