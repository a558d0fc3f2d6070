"""`normscope experiments`, `run` and `report`: the experiments of the papers over a corpus, and their report."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from normscope.cli import options
from normscope.cli.session import ModelChoice, result_console
from normscope.errors import InputError

if TYPE_CHECKING:
    from normscope.experiments import Experiment

RUN_EXAMPLES = """normscope run scope-similarity mixing-ratio --corpus wiki.txt --unit packed --out runs/minilm

normscope run entities --model roberta-base --corpus eng.testa --limit 1000 --out runs/entities

normscope run alignment --model marian-dir --corpus pairs.src-tgt --gold pairs.gold --setting both --out runs/align"""
REPORT_EXAMPLES = "normscope report runs/minilm runs/roberta --out report.html"

_CORPUS, _HOW, _WORK = "The corpus", "The experiments", "The work"


def register(app: typer.Typer) -> None:
    """Add the commands to an application."""
    app.command("experiments")(experiments_command)
    app.command("run", epilog=RUN_EXAMPLES)(run_command)
    app.command("report", epilog=REPORT_EXAMPLES)(report_command)


def experiments_command() -> None:
    """List the experiments: name, paper, what they show, options."""
    from normscope.experiments import EXPERIMENTS

    table = Table(box=None, pad_edge=False)
    for name in ("name", "paper", "shows", "what it finds", "options (-O name.option=value)"):
        table.add_column(name, overflow="fold")
    for kind in EXPERIMENTS.values():
        defaults = ", ".join(f"{field.name}={_shown(field.default)}" for field in fields(kind))
        table.add_row(kind.name, kind.paper, kind.shows, kind.summary, defaults)
    result_console().print(table)


def run_command(
    names: Annotated[
        list[str], typer.Argument(metavar="EXPERIMENT...", help="Names; `normscope experiments` lists them.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for tables, figures, manifest and finished shards.")],
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus", "-c", help="A file, or the name of a dataset.", show_default=False, rich_help_panel=_CORPUS
        ),
    ] = None,
    model: options.Model = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Folder or hub name, if not the model's.", show_default=False)
    ] = None,
    dtype: options.Dtype = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="auto (by the file's name), text, jsonl, csv, tsv, parquet, conll, clark, pairs or dataset.",
            rich_help_panel=_CORPUS,
        ),
    ] = "auto",
    unit: Annotated[
        str,
        typer.Option(
            "--unit",
            help="A sequence of a plain text: a 'line', a 'paragraph', or 'packed' (cut to --max-tokens).",
            rich_help_panel=_CORPUS,
        ),
    ] = "line",
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Longest sequence.", rich_help_panel=_CORPUS)] = 128,
    too_long: Annotated[
        str, typer.Option("--too-long", help="Longer ones: truncate, skip or refuse.", rich_help_panel=_CORPUS)
    ] = "truncate",
    bad_rows: Annotated[
        str, typer.Option("--bad-rows", help="Rows that cannot be read: skip or refuse.", rich_help_panel=_CORPUS)
    ] = "skip",
    limit: Annotated[
        int | None,
        typer.Option("--limit", help="So many sequences.", show_default=False, rich_help_panel=_CORPUS),
    ] = None,
    shuffle: Annotated[
        bool,
        typer.Option("--shuffle", metavar="", help="Choose them at random, not the first.", rich_help_panel=_CORPUS),
    ] = False,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", metavar="", help="Lower-case the text first.", rich_help_panel=_CORPUS)
    ] = False,
    field: Annotated[
        str | None, typer.Option("--field", help="Column with the text.", show_default=False, rich_help_panel=_CORPUS)
    ] = None,
    pair_field: Annotated[
        str | None,
        typer.Option("--pair-field", help="Column with the second text.", show_default=False, rich_help_panel=_CORPUS),
    ] = None,
    word_column: Annotated[int, typer.Option("--word-column", help="CoNLL: from 0.", rich_help_panel=_CORPUS)] = 0,
    tag_column: Annotated[
        int, typer.Option("--tag-column", help="CoNLL: from 0, or -1.", rich_help_panel=_CORPUS)
    ] = -1,
    gold: Annotated[
        Path | None, typer.Option("--gold", help="Gold word alignments.", show_default=False, rich_help_panel=_CORPUS)
    ] = None,
    gold_base: Annotated[
        str, typer.Option("--gold-base", help="Links count from 0 or 1, or detect.", rich_help_panel=_CORPUS)
    ] = "detect",
    split: Annotated[str, typer.Option("--split", help="Split of a dataset.", rich_help_panel=_CORPUS)] = "validation",
    subset: Annotated[
        str | None, typer.Option("--subset", help="Subset of a dataset.", show_default=False, rich_help_panel=_CORPUS)
    ] = None,
    allow_pickle_corpus: Annotated[
        bool,
        typer.Option(
            "--allow-pickle-corpus",
            metavar="",
            help="Read a pickled corpus. It can run any code: only if you trust it.",
            rich_help_panel=_CORPUS,
        ),
    ] = False,
    corpus_name: Annotated[
        str,
        typer.Option(
            "--corpus-name",
            help="If it is a corpus of the papers, which: wikipedia, sst2, mnli or conll. Shows published values.",
            rich_help_panel=_CORPUS,
        ),
    ] = "",
    masking: Annotated[
        str,
        typer.Option("--masking", help="Mask tokens as each paper does, or for all, or none.", rich_help_panel=_HOW),
    ] = "paper",
    seed: Annotated[int, typer.Option("--seed", help="Of masking, sampling, bootstrap.", rich_help_panel=_HOW)] = 0,
    setting: Annotated[
        str | None,
        typer.Option("--setting", help="alignment: AWO, AWI or both.", show_default=False, rich_help_panel=_HOW),
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
            "--option", "-O", help="EXPERIMENT.OPTION=VALUE, repeatable.", show_default=False, rich_help_panel=_HOW
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes.", rich_help_panel=_WORK)] = 1,
    shard_size: Annotated[int, typer.Option("--shard-size", help="Sequences per shard.", rich_help_panel=_WORK)] = 16,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", metavar="", help="Replace another run in the folder.", rich_help_panel=_WORK),
    ] = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Run experiments of the papers over a corpus, in one pass. Interrupted, the same command goes on where it was."""
    choice = ModelChoice(model, dtype, allow_pickle, trust_remote_code)
    with Console(stderr=True).status("Loading"):
        import torch
        from transformers.utils import logging

        from normscope.corpus_run import RunInterrupted, run

        logging.set_verbosity_error()
        logging.disable_progress_bar()
    chosen = _read_options([*(option or []), *([f"alignment.setting={setting}"] if setting else [])], names)
    loading: dict[str, Any] = {
        "tokenizer": tokenizer,
        "dtype": None if choice.dtype is None else getattr(torch, choice.dtype),
        "allow_pickle": allow_pickle,
        "trust_remote_code": trust_remote_code,
    }
    try:
        result = run(
            names,
            model=model,
            corpus=corpus,
            out=out,
            options=chosen,
            masking=masking,  # pyright: ignore[reportArgumentType]
            seed=seed,
            jobs=jobs,
            shard_size=shard_size,
            corpus_name=corpus_name,
            ranks=ranks,
            overwrite=overwrite,
            progress=None,
            loading=loading,
            format=form,
            unit=unit,
            max_tokens=max_tokens,
            too_long=too_long,
            bad_rows=bad_rows,
            limit=limit,
            shuffle=shuffle,
            lowercase=lowercase,
            field=field,
            pair_field=pair_field,
            word_column=word_column,
            tag_column=tag_column,
            gold=None if gold is None else str(gold),
            gold_base=gold_base,
            split=split,
            subset=subset,
            allow_pickle=allow_pickle_corpus,
        )
    except RunInterrupted as interruption:
        Console(stderr=True).print(str(interruption), style="yellow", highlight=False)
        raise typer.Exit(130) from None
    _tell(out, result.manifest)


def report_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Default: report.html in the first run's folder.", show_default=False),
    ] = None,
) -> None:
    """Write one self-contained HTML report of one run or several, side by side."""
    from normscope.report import write_report

    path = write_report(runs, out)
    Console(stderr=True).print(f"Wrote {path}", highlight=False)


def _tell(out: Path, manifest: dict[str, Any]) -> None:
    console = Console(stderr=True, highlight=False)
    skipped = ", ".join(f"{kind}: {count}" for kind, count in manifest["rows_left_out_or_changed"].items())
    console.print(
        f"{manifest['sequences']} sequences, {manifest['tokens']} tokens{f' ({skipped})' if skipped else ''}."
    )
    for problem in manifest["problems"]:
        console.print(f"  {problem}", markup=False, soft_wrap=True)
    if manifest["worst_completeness_error"] is not None:
        console.print(f"Worst completeness error: {manifest['worst_completeness_error']:.1e}.")
    console.print(f"Wrote {out}/tables, {out}/figures and {out}/manifest.json.", markup=False, soft_wrap=True)


def _shown(value: object) -> str:
    return ",".join(str(item) for item in value) if isinstance(value, tuple) else str(value)


def _read_options(given: list[str], names: list[str]) -> dict[str, dict[str, Any]]:
    """`experiment.option=value` strings as typed options by experiment."""
    from normscope.experiments import experiment

    found: dict[str, dict[str, Any]] = {}
    for text in given:
        target, separator, value = text.partition("=")
        name, dot, option = target.partition(".")
        if not separator or not dot:
            raise InputError(f"An option is EXPERIMENT.OPTION=VALUE, not {text!r}.")
        if name not in names:
            raise InputError(f"The option {text!r} is for {name!r}, which is not among the experiments to run.")
        found.setdefault(name, {})[option] = _typed(experiment(name), option, value)
    return found


def _typed(of: Experiment, option: str, value: str) -> Any:
    """A value in the type of the option's default; unknown options are left for the experiment to refuse."""
    default = of.options().get(option)
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
        raise InputError(f"{of.name}: {option} is {kind}, not {value!r}.") from error
