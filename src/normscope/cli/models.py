"""`normscope check`, `models`, `describe` and `convert`: which models are supported, and a model in another format."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from normscope.cli import options
from normscope.cli.checks import check_model, check_text
from normscope.cli.commands import add_command
from normscope.cli.console import analysing, load_analyzer, named, quiet, result_console, say, working
from normscope.cli.expansion import Expansion, expanded
from normscope.cli.texts import ALONE, TextOptions
from normscope.models.options import ModelOptions

if TYPE_CHECKING:
    from torch import Tensor

    from normscope.analyzer import Analyzer
    from normscope.families import Family
    from normscope.families.spec import Topology
    from normscope.inputs import Input
    from normscope.results.analysis import Analysis

CHECK_EXAMPLES = (
    "normscope check",
    "normscope check --model ./my-model --dtype float64",
)

MODELS_EXAMPLES = (
    "normscope models",
    "normscope models llama",
    "normscope models --refused",
)

DESCRIBE_EXAMPLES = (
    "normscope describe ./my-model",
    "normscope describe ./my-model > my_family.py",
)

_DESCRIBED = Expansion(ModelOptions, dict, "The model", only=("revision", "allow_pickle", "trust_remote_code"))

CONVERT_EXAMPLES = (
    "normscope convert --model smollm2 --out ./smollm2-135m",
    "normscope convert --model ./old-model --allow-pickle --out ./new-model",
)

_NOT_BY_DEFAULT: dict[str, dict[str, Any]] = {
    "big_bird": {"attention_type": "original_full"},
    "gemma4_text": {"hidden_size_per_layer_input": 0},
    "gemma4": {"text_config": {"hidden_size_per_layer_input": 0}},
}
"""Settings of a type without which its default configuration is refused."""

_SENTENCE = "The opera singer caught a soap bubble."
_RANDOM_TOKENS = 16


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    add_command(app, "check", expanded(check_command, reading=ALONE, model=options.MODEL), *CHECK_EXAMPLES)
    add_command(app, "models", models_command, *MODELS_EXAMPLES)
    add_command(app, "describe", expanded(describe_command, loading=_DESCRIBED), *DESCRIBE_EXAMPLES)
    add_command(app, "convert", expanded(convert_command, model=options.MODEL), *CONVERT_EXAMPLES)


def check_command(
    text: Annotated[
        str | None,
        typer.Option(
            "--text", help="The text to analyse (and, for an encoder-decoder model, to decode).", show_default=_SENTENCE
        ),
    ] = None,
    *,
    reading: TextOptions,
    model: ModelOptions,
) -> None:
    """Prove that a model is decomposed correctly: its states are the sum of their parts.

    This is checked in every layer, after every component. Exits with 1 if it fails. A model without a tokenizer is
    given random token ids.
    """
    if text is not None:
        text = reading.read(text)[0].text
        check_text(text)
    check_model(model)
    analyzer = load_analyzer(model)
    start = perf_counter()
    analysis = _analyze(analyzer, text)
    seconds = perf_counter() - start
    from normscope.output.terminal import completeness_table

    console = result_console()
    console.print(completeness_table(analysis.dataset, analyzer.tolerance))
    worst = float(analysis.dataset["component_error"].max())
    facts = analyzer.facts
    console.print(
        f"{analyzer.name}: {facts['model_type']}, family {analyzer.family.name}, {len(analyzer.layers)} layers, "
        f"{facts['dtype']}. {len(analysis.tokens)} tokens at {len(analyzer.scopes)} scopes in {seconds:.2f} s. "
        f"Largest error {worst:.1e}, tolerance {analyzer.tolerance:.0e}: complete.",
        markup=False,
        soft_wrap=True,
    )


def _analyze(analyzer: Analyzer, text: str | None) -> Analysis:
    inputs, target = _probe(analyzer, text)
    with analysing() as on_progress:
        analysis = analyzer.analyze(inputs, decoder_text=target, on_progress=on_progress)
    return analysis[0] if isinstance(analysis, list) else analysis


def _probe(analyzer: Analyzer, text: str | None) -> tuple[Input, Input | None]:
    """What to analyse when checking a model, and, for a decoder, its target."""
    if analyzer.family.reads == "image":
        say("Analysing an image of random pixels.")
        return _random_pixels(analyzer), None
    decoded = analyzer.family.encoder is not None
    if analyzer.family.reads == "audio":
        say("Analysing a sound of random samples.")
        return _random_sound(analyzer), {"input_ids": _random_ids(analyzer)} if decoded else None
    if analyzer.tokenizer is not None or text is not None:
        text = text or _SENTENCE
        return text, text if decoded else None
    say(f"There is no tokenizer with the model: analysing {_RANDOM_TOKENS} random token ids.")
    ids = {"input_ids": _random_ids(analyzer)}
    return ids, ids if decoded else None


def _random_ids(analyzer: Analyzer) -> Tensor:
    import torch

    vocabulary = analyzer.model.config.get_text_config().vocab_size
    first = min(vocabulary - 1, 5)  # special ids, such as padding, are usually the first few
    return torch.randint(first, vocabulary, (1, _RANDOM_TOKENS), generator=torch.Generator().manual_seed(0))


def _random_sound(analyzer: Analyzer) -> dict[str, Tensor]:
    import torch

    from normscope.inputs.audio import argument, noise

    module = analyzer.model
    return {argument(module): noise(module, 1, torch.Generator().manual_seed(0))}


def _random_pixels(analyzer: Analyzer) -> dict[str, Tensor]:
    import torch

    from normscope.inputs import images

    return images.noise(analyzer.model, 1, torch.Generator().manual_seed(0))


def convert_command(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to write, which must not exist yet.", show_default=False)
    ],
    *,
    model: ModelOptions,
) -> None:
    """Write a model as a folder of safetensors.

    It loads safely and fast. The model may be a GGUF file (its weights are dequantised), smollm2, a pickle checkpoint, or a
    model on the hub.
    """
    from normscope.models.saving import check_model_folder, save_model

    check_model_folder(out)
    check_model(model)
    analyzer = load_analyzer(model)
    with working("Writing the model"):
        folder = save_model(analyzer, out)
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    say(f"Wrote {out} ({size:.0f} MB). Load it with --model {out}")


def models_command(
    name: options.NamePart = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="List the architectures of transformers that are not analysed, and why.")
    ] = False,
) -> None:
    """List the supported architectures, by their model_type."""
    from normscope.families import supported_models

    if refused:
        _print_refused(name)
        return
    known = supported_models()
    names = named(name, known, "architecture")
    console = result_console()
    headings = ["model_type", "family", "kind", "topology", "feed-forward", "attention", "chain"]
    rows = [[model_type, *describe(model_type, known[model_type])] for model_type in names]
    needed = sum(1 + max(map(len, column)) for column in zip(headings, *rows, strict=True))
    if needed > console.width:  # the chain is the longest column, and follows from the topology
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    _print_table(f"{len(rows)} supported architectures", headings, rows)


def describe_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, hub name or GGUF file.", show_default=False)],
    *,
    loading: dict[str, Any],
) -> None:
    """Describe the architecture of a model by observing it, and print the Python that registers it.

    The model runs once on random ids. The description has passed the whole battery of normscope.testing, and its figures
    are printed with it. What cannot be described is refused with what was found and what is missing.
    """
    ModelOptions(model, **loading).refuse_unusable()
    with working("Describing the model"):
        quiet()
        from normscope.models.loading import describe as describe_architecture

        description = describe_architecture(model, **loading)
    result_console().print(str(description), markup=False, highlight=False, soft_wrap=True, end="")


def _print_refused(name: str | None) -> None:
    from normscope.families.refused import refused_models

    reasons = refused_models()
    rows = [[model_type, reasons[model_type]] for model_type in sorted(named(name, reasons, "refused architecture"))]
    _print_table(f"{len(rows)} refused architectures", ["model_type", "why"], rows)


def _print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading != "why")
    for row in rows:
        table.add_row(*map(Text, row))
    console = result_console()
    console.print(Text(title, style="bold"))
    console.print(table)


def describe(model_type: str, family: Family) -> tuple[str, ...]:
    """A row of the table of architectures: family, kind, topology, feed-forward, attention, chain.

    If the blocks depend on the configuration, they are those of the default one. They are looked up, since a configuration
    takes transformers seconds to make.
    """
    from normscope.families.spec import Topology

    topology = family.stack.topology
    if isinstance(topology, Topology):
        block = block_in_words(topology)
    else:
        known = _default_blocks().get(model_type, {})
        block = known["block"] if known.get("family") == family.name else default_block(model_type, family)
    return family.name, _kind(family), *block


def default_block(model_type: str, family: Family) -> tuple[str, ...]:
    """The last block of a model with the default configuration, in words."""
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[model_type](**_NOT_BY_DEFAULT.get(model_type, {}))
    return block_in_words(family.stack.topologies(config)[-1])


def block_in_words(topology: Topology) -> tuple[str, ...]:
    """Topology, feed-forward, attention, chain."""
    parts = topology.chain()
    return (
        _in_words(topology),
        _types_of(parts, "Ff", "Part"),
        _types_of(parts, "Attn", "Attention"),
        " ".join(topology.components()),
    )


@cache
def _default_blocks() -> dict[str, dict[str, Any]]:
    """What `tools/default_blocks.py` wrote: by model type, the family and its default block in words."""
    return json.loads(files("normscope.families").joinpath("default_blocks.json").read_text(encoding="utf-8"))


def _kind(family: Family) -> str:
    if family.encoder is not None:
        return "encoder-decoder"
    encoder = "encoder" if family.reads == "text" else f"{family.reads} encoder"
    return "decoder" if family.stack.causal else encoder


def _types_of(parts: tuple[Any, ...], component: str, suffix: str) -> str:
    """The types of a block's parts that implement a component, as words: `PlainPart` is `plain`."""
    there = [part for part in parts if part.component == component and type(part).__name__ != "AbsentPart"]
    work = [getattr(part, "feed_forward", part) for part in there]
    return ", ".join(dict.fromkeys(_in_words(part, suffix) for part in work))


def _in_words(value: object, suffix: str = "") -> str:
    """The name of a value's type, as words: `PostNorm` is `post-norm`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(value).__name__.removesuffix(suffix)).lower()
