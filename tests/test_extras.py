"""What works without any extra, and what says which extra it needs. A process that cannot import the packages of the extras
stands for an environment without them; `test_install` makes such environments."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.processes import Processes

ROOT = Path(__file__).parents[1]
NO_FEATURE = ("dev", "docs", "all")
"""Extras for working on normscope, and the one that stands for all others."""

FIRST_HOUR = """
from pathlib import Path
import normscope as ns
from normscope.corpora import Corpus, Problems, bundled

text = "A soap bubble."
analyzer = ns.load()
analysis = analyzer.analyze(text)
analysis.mixing_ratio("AttnResLnFfResLn")
analysis.plot("AttnResLnFf", layer=3).savefig("python.svg")
assert ns.open(analysis.save("python.nc")).tokens == analysis.tokens
analyzer.mixing_ratios(text)
analyzer.explain(text, at=1, direction="state").flow(0.9)
assert list(Corpus(str(bundled())).records(Problems("refuse")))
for line in (
    "map X", "map X --layer 3 --out map.svg", "map X --scope all --out map.csv", "map X --out map.json", "mix X",
    "mix X --out mix.csv", "growth X --layer 3 --out growth.png", "explain X --state --at 1",
    "explain X --state --at 1 --out explain.csv", "explore X --out page.html", "estimate --tokens 64", "check", "models",
    "methods", "experiments", "run --help",
):
    run([text if word == "X" else word for word in line.split()], 0)
"""


PYTHON = """
try:
    {}
except (ns.InputError, ns.ModelError) as error:
    assert "pip install 'normscope[{}]'" in str(error), str(error)
else:
    raise AssertionError("Nothing was missing.")
"""

CALLS = {
    "corpus": [
        "ns.run(['mixing-ratio'], corpus=['A text.'])",
        "from normscope.runs import cost_of",
        "from normscope.report import write_report",
        "from normscope.experiments import Experiment",
        "from normscope.experiments import experiment; experiment('mixing-ratio')",
        "ns.load().analyze('A text.', scopes='AttnW').save('maps.parquet')",
        "Path('a.parquet').touch(); list(ns.Corpus('a.parquet').records(Problems('refuse')))",
    ],
    "datasets": ["list(ns.Corpus('imdb', format='dataset').records(Problems('refuse')))"],
    "zarr": ["ns.load().analyze('A text.', out='maps.zarr')", "Path('b.zarr').mkdir(); ns.open('b.zarr')"],
    "accelerate": ["ns.load(device_map='auto')"],
    "notebook": ["ns.load().analyze('A text.', scopes='AttnW', layers=1).explore()"],
    "captum": ["ns.load().explain('A text.', at=0, direction='state', method='integrated-gradients')"],
    "ray": ["from normscope.runs.ray import Ray"],
    "gguf": ["Path('c.gguf').write_bytes(b'GGUF'); ns.load('c.gguf')"],
}
COMMANDS = {
    "corpus": [
        ["run", "mixing-ratio", "--corpus", "BUNDLED", "--out", "run"],
        ["map", "A text.", "--out", "maps.parquet"],
    ],
    "server": [["serve"]],
}


def extras() -> dict[str, list[str]]:
    """The packages that every extra installs itself, as they are imported."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, list[str]] = {}
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in NO_FEATURE:
            names = [re.match(r"[\w-]+", requirement)[0] for requirement in requirements]  # pyright: ignore
            found[extra] = [name.replace("-", "_") for name in names if name != "normscope"]
    return found


def without(missing: list[str], code: str) -> str:
    """The code of a process that cannot import these packages."""
    start = f"""
import io, sys
from contextlib import redirect_stderr
sys.modules.update(dict.fromkeys({json.dumps(missing)}))
from pathlib import Path
import normscope as ns
from normscope.cli import main
from normscope.corpora import Problems, bundled

def run(arguments, expected):
    said = io.StringIO()
    with redirect_stderr(said):
        try:
            main([str(bundled()) if word == "BUNDLED" else word for word in arguments])
        except SystemExit as end:
            assert (end.code or 0) == expected, (arguments, end.code, said.getvalue())
        else:
            assert expected == 0, arguments
    return " ".join(said.getvalue().split())
"""
    return start + code


def test_every_extra_is_among_all_and_its_absence_is_tested() -> None:
    assert set(CALLS) | set(COMMANDS) == set(extras())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (everything,) = project["optional-dependencies"]["all"]
    assert everything == f"normscope[{','.join(sorted(extras()))}]"


def test_the_first_hour_needs_no_extra(tmp_path: Path) -> None:
    code = without([package for packages in extras().values() for package in packages], FIRST_HOUR)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("extra", sorted({*CALLS, *COMMANDS}))
def test_what_needs_a_missing_extra_says_how_to_install_it_and_leaves_no_file(
    extra: str, processes: Processes, tmp_path: Path
) -> None:
    calls = "".join(PYTHON.format(call.replace("; ", "\n    "), extra) for call in CALLS.get(extra, ()))
    commands = (
        f"for arguments in {COMMANDS.get(extra, [])!r}:\n    assert \"'normscope[{extra}]'\" in run(arguments, 2)\n"
    )
    done = processes.run(without(extras()[extra], calls + commands), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not {path.name for path in tmp_path.iterdir()} - {"a.parquet", "b.zarr", "c.gguf"}
