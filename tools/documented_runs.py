"""The runs of the page of findings: its own commands, run in a folder that has what the page asks for, and the pictures of
the documentation that come from them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = DOCS / "findings.md"

PICTURES = {
    "findings/alignment-awi": "align/alignment-awi-argmax",
    "findings/alignment-fr-layers": "align-fr/alignment-layers",
    "findings/bert-entities-ff": "bert-entities/entities-ff",
    "findings/bert-outlier-dimensions-removal": "bert/outlier-dimensions-removal",
    "findings/bert-scope-similarity-adjacent": "bert/scope-similarity-adjacent",
    "findings/classifier-agreement": "agreement/agreement",
    "findings/classifier-deletion-srg": "deletion/deletion-srg",
    "findings/minilm-categories": "minilm/categories",
    "findings/minilm-entities-ff": "minilm-entities/entities-ff",
    "findings/minilm-ff-amplification-ff": "minilm/ff-amplification-ff",
    "findings/minilm-mixing-frequency": "minilm/mixing-frequency",
    "findings/minilm-mixing-ratio": "minilm/mixing-ratio",
    "findings/minilm-outlier-dimensions": "minilm/outlier-dimensions",
    "findings/minilm-outlier-dimensions-removal": "minilm/outlier-dimensions-removal",
    "findings/minilm-scope-similarity-adjacent": "minilm/scope-similarity-adjacent",
    "findings/minilm-weight-vs-norm": "minilm/weight-vs-norm",
    "findings/roberta-shapley-layers": "shapley-roberta/shapley-layers",
    "experiments/images/agreement": "agreement/agreement",
    "experiments/images/answers-evidence": "answers/answers-evidence",
    "experiments/images/alignment-awi-argmax": "align/alignment-awi-argmax",
    "experiments/images/deletion-srg": "deletion/deletion-srg",
    "experiments/images/entities-ff": "minilm-entities/entities-ff",
    "experiments/images/evidence-contrastive": "evidence/evidence-contrastive",
    "experiments/images/similarity-words": "ists/similarity-words",
}
"""Every picture that a run makes: below `docs/`, and as the run and its figure are called."""

_BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r'^([A-Z]+)="([^"]*)"\n', re.MULTILINE)


@dataclass(frozen=True)
class Left:
    """Pictures that stay as they are, and why."""

    pictures: tuple[str, ...]
    reason: str


def commands() -> dict[str, list[str]]:
    """The words of every command of the page that runs experiments, by the name of the folder that it writes."""
    return {Path(words[words.index("--out") + 1]).name: words for words in _documented()}


def _documented() -> Iterator[list[str]]:
    for block in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        variables = dict(_VARIABLE.findall(block))
        for line in _VARIABLE.sub("", block).splitlines():
            if line.startswith("normscope run "):
                yield shlex.split(Template(line).substitute(variables))


def needed(words: Sequence[str]) -> list[str]:
    """The files and folders that a command reads."""
    return [
        words[words.index(option) + 1] for option in ("--model", "--corpus", "--gold", "--ranks") if option in words
    ]


def made(materials: Path, wanted: Sequence[str] = ()) -> Iterator[Path | Left]:
    """Run the commands that pictures come from, or those that are wanted, and copy the pictures from their folders."""
    for run in dict.fromkeys(figure.split("/")[0] for figure in PICTURES.values()):
        if not wanted or run in wanted:
            yield from _of_run(run, materials)


def _of_run(run: str, materials: Path) -> Iterator[Path | Left]:
    pictures = {picture: figure for picture, figure in PICTURES.items() if figure.startswith(f"{run}/")}
    problem = _problem(commands()[run], materials)
    if problem:
        yield Left(tuple(pictures), problem)
        return
    for picture, figure in pictures.items():
        source = materials / "runs" / run / "figures" / f"{figure.split('/')[1]}.png"
        yield Path(shutil.copy(source, DOCS / f"{picture}.png"))


def _problem(words: list[str], materials: Path) -> str:
    """What keeps a command from running in a folder, or nothing once it has run there."""
    absent = [name for name in needed(words) if not (materials / name).exists() and not (ROOT / name).exists()]
    if absent:
        return f"{', '.join(absent)} not in {materials}"
    print(shlex.join(words), flush=True)
    ours = {name: str(ROOT / name) for name in needed(words) if not (materials / name).exists()}
    command = [sys.executable, "-m", "normscope", *(ours.get(word, word) for word in words[1:])]
    done = subprocess.run(command, cwd=materials, check=False)
    return f"the command ended with {done.returncode}" if done.returncode else ""
