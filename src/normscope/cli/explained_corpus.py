"""`normscope explain --corpus`: explanations of every text of a corpus, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from normscope.cli.checks import check_counts, check_model
from normscope.cli.console import quiet, say
from normscope.cli.expansion import Expansion
from normscope.cli.run import exit_when_interrupted
from normscope.corpora import Corpus
from normscope.corpora.record import CorpusError
from normscope.errors import InputError, listing
from normscope.models.options import ModelOptions
from normscope.options import Documentation, TooLong
from normscope.paths import ending

_PANEL = "A corpus instead of a text"
_SHARD_SIZE = 64
_ENDINGS = ("parquet", "csv", "jsonl")
_OF_ALL = ("target", "against", "at", "continue_for", "objective", "method", "ff_baseline", "weights")
"""What can be asked of every text of a corpus."""


@dataclass(frozen=True, kw_only=True)
class CorpusWork:
    """The corpus, which of its texts are explained, and how the work is divided."""

    corpus: Annotated[
        str | None,
        Documentation(
            "Explain every text of a file (text, JSONL, CSV, Parquet and others), or of a dataset, into one table: --out "
            "with .parquet, .csv or .jsonl. After an interruption, the same command goes on.",
            ("--corpus", "-c"),
        ),
    ] = None
    max_tokens: Annotated[
        int | None, Documentation("Texts of more tokens are too long. Default: than the model takes.")
    ] = None
    too_long: Annotated[
        TooLong, Documentation("What to do with them. A text that is cut ends elsewhere, where something else follows.")
    ] = "skip"
    jobs: Annotated[int, Documentation("Number of processes on this machine.", ("--jobs", "-j"))] = 1
    shard_size: Annotated[int, Documentation("Texts per shard, the unit that is kept.")] = _SHARD_SIZE
    overwrite: Annotated[bool, Documentation("Replace a file with other explanations.")] = False

    def lengths(self) -> dict[str, object]:
        """What becomes of long texts, as options of the corpus."""
        return {"too_long": self.too_long, **({} if self.max_tokens is None else {"max_tokens": self.max_tokens})}


WORK = Expansion(CorpusWork, CorpusWork, _PANEL)
TEXTS = Expansion(
    Corpus,
    dict,
    _PANEL,
    only=(
        *("format", "field", "pair_field", "target_column", "bad_rows", "limit", "shuffle", "lowercase"),
        *("source_language", "target_language", "split", "subset", "allow_pickle"),
    ),
)


def refuse_without_corpus(work: CorpusWork, texts: Mapping[str, object]) -> None:
    """Raise for options of a corpus where there is none."""
    given = [
        *texts,
        *(name for name in ("max_tokens", "jobs", "overwrite") if getattr(work, name) != getattr(CorpusWork(), name)),
    ]
    if given:
        raise InputError(f"{_flags(given)}: for a corpus alone. Name one (--corpus).")


def explain_a_corpus(
    work: CorpusWork,
    texts: Mapping[str, Any],
    request: Mapping[str, Any],
    others: Mapping[str, object],
    out: Path | None,
    model: ModelOptions,
    *,
    units: Literal["token", "word", "sentence", "turn"],
    state: bool,
    chat: bool,
    method: Any,
) -> None:
    """Explain every text of a corpus and write the file. `others` are options that belong to a single text."""
    given = [name for name, value in others.items() if value] + [name for name in request if name not in _OF_ALL]
    if given:
        raise InputError(f"{_flags(given)}: for a single text, and not for a corpus. Leave it out.")
    if out is None:
        raise InputError(f"The explanations of a corpus are a file: name one (--out) that ends in {listing(_ENDINGS)}.")
    ending(out, _ENDINGS)
    check_counts(jobs=work.jobs, shard_size=work.shard_size)
    _check_file(work, texts)
    check_model(model)
    quiet()
    with exit_when_interrupted():
        from normscope.runs import explain_corpus

        asked: dict[str, Any] = {name: request[name] for name in _OF_ALL if name in request and name != "method"}
        read: dict[str, Any] = {**texts, **work.lengths(), **({"chat": True} if chat else {})}
        explained = explain_corpus(
            str(work.corpus),
            model=model,
            out=out,
            units=units,
            direction="state" if state else None,
            method=method(),
            jobs=work.jobs,
            shard_size=work.shard_size,
            overwrite=work.overwrite,
            progress=None,
            **asked,
            **read,
        )
    _summarise(out, explained.manifest)


def _check_file(work: CorpusWork, texts: Mapping[str, Any]) -> None:
    corpus = Corpus.of(str(work.corpus), {**texts, **work.lengths()})  # pyright: ignore[reportArgumentType]
    if corpus.actual_format != "dataset" and not Path(corpus.path).exists():
        raise CorpusError(f"There is no corpus file {corpus.path!r}.")


def _summarise(out: Path, manifest: Mapping[str, Any]) -> None:
    left_out = ", ".join(f"{kind}: {count}" for kind, count in manifest["rows_left_out_or_changed"].items())
    say(f"{manifest['sequences']} texts, {manifest['tokens']} tokens{f' ({left_out})' if left_out else ''}.")
    for problem in manifest["problems"]:
        say(f"  {problem}")
    say(f"Worst conservation error: {manifest['worst_completeness_error']:.1e}.")
    say(f"Wrote {out} ({manifest['rows']} rows) and {out}.manifest.json.")


def _flags(names: list[str]) -> str:
    return listing(f"--{name.replace('_', '-')}" for name in names)
