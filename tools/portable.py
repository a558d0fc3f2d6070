"""Run the tests as they run on other machines: other instruction sets and threads, another user, folder and locale.

A processor with other instructions adds in another order, and so changes the last digits of every float32 result. The tests
of numbers are run with the plainest instructions, with those that most machines have, and on several threads. The tests
that touch files are run on a copy of the tree: by a user who is not root and has no home, in a folder with an awkward name.

    python tools/portable.py
    python tools/portable.py --only default user --jobs 1
    python tools/portable.py --only default --tests tests/decompose
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]

WITHOUT_NUMBERS = (
    "cli",
    "data",
    "docs",
    "explorer",
    "output",
    "plots",
    "report",
    "test_documentation.py",
    "test_install.py",
    "test_package.py",
)
"""What is left out below tests/ where instructions differ: it shows and moves numbers that others compute."""

FILES = (
    *("cli", "corpora", "models", "output", "plots", "report", "results", "runs"),
    *("test_long.py", "test_package.py", "test_paths.py", "test_version_before.py"),
)
"""What is run where the user or the folder differs."""

PLAIN = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem"}
NOBODY = 65534
MADE = (".git", ".venv", "node_modules", "__pycache__", ".*_cache", ".hypothesis")
AWKWARD = "Größe & Maß"


@dataclass(frozen=True)
class Variant:
    """Another machine: what is set there (None: not set) and what it is like.

    `stranger`: a user who is not root, with files that nobody else may read. `elsewhere`: tree and temporary files lie in a
    folder with an awkward name.
    """

    about: str
    environment: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    threads: int = 1
    stranger: bool = False
    elsewhere: bool = False

    @property
    def tests(self) -> list[str]:
        """Where the tests are that this machine could fail."""
        if self.stranger or self.elsewhere:
            return [f"tests/{name}" for name in FILES]
        found = sorted((ROOT / "tests").glob("*/")) + sorted((ROOT / "tests").glob("test_*.py"))
        return [f"tests/{path.name}" for path in found if path.name not in (*WITHOUT_NUMBERS, "__pycache__", "support")]


VARIANTS = {
    "default": Variant("no vector instructions", {**PLAIN, "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
    # MKL limits its instructions by their name on processors of Intel alone.
    "compatible": Variant("the same, MKL's results those of every processor", {**PLAIN, "MKL_CBWR": "COMPATIBLE"}),
    "avx2": Variant("AVX2", {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    "threads": Variant("all instructions, four threads", threads=4),
    "user": Variant("not root, umask 077, no HOME", {"HOME": None, "USER": None, "LOGNAME": None}, stranger=True),
    "folder": Variant(f'in "{AWKWARD}", LANG=C', {"LANG": "C", "LC_ALL": None, "LC_CTYPE": None}, elsewhere=True),
}


@dataclass(frozen=True)
class Outcome:
    """What pytest said of a variant."""

    passed: int
    failed: list[str]
    skipped: int
    seconds: float
    code: int


def run(variant: Variant, tests: Sequence[str], jobs: int) -> Outcome:
    """Run tests as that variant has it."""
    with tempfile.TemporaryDirectory(prefix="normscope-", ignore_cleanup_errors=True) as name:
        folder = Path(name) / (AWKWARD if variant.elsewhere else "folder")
        tree = copied(folder / "tree") if variant.elsewhere or variant.stranger else ROOT
        (folder / "temporary").mkdir(parents=True)
        user = started_by(variant, Path(name))
        python = interpreter(folder, user) if variant.stranger else sys.executable
        report = folder / "temporary" / "report.xml"
        command = [python, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [] if jobs == 1 else ["-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder"]
        started = time.monotonic()
        variables = environment(variant, tree, folder / "temporary")
        done = subprocess.run([*command, *tests], cwd=tree, env=variables, check=False, **user)
        return outcome(report, done.returncode, time.monotonic() - started)


def started_by(variant: Variant, folder: Path) -> dict[str, Any]:
    """How a process is started for a variant; a stranger owns the folder."""
    if not variant.stranger:
        return {}
    if os.geteuid() != 0:
        return {"umask": 0o077}
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return {"umask": 0o077, "user": NOBODY, "group": NOBODY, "extra_groups": []}


def interpreter(folder: Path, user: Mapping[str, Any]) -> str:
    """A Python that the user may run, with the packages of this one: root's own may lie in a closed home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for base in (Path(sys.base_prefix, "bin", version), Path("/usr/local/bin", version), Path("/usr/bin", version)):
        command = [base, "-m", "venv", "--without-pip", "--clear", folder / "environment"]
        try:
            subprocess.run(command, cwd=folder, capture_output=True, check=True, **user)
        except (OSError, subprocess.CalledProcessError):
            continue
        packages = folder / "environment" / "lib" / version / "site-packages"
        here = sysconfig.get_path("purelib")
        (packages / "shared.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
        os.chmod(packages / "shared.pth", 0o644)
        return str(folder / "environment" / "bin" / "python")
    sys.exit(f"A user who is not root needs {version} outside root's home, such as in /usr/bin, and there is none.")


def environment(variant: Variant, tree: Path, temporary: Path) -> dict[str, str]:
    """This process' variables, changed as the variant asks; the package is that of the tree."""
    changed = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(temporary),
        "TEST_THREADS": str(variant.threads),
        "OMP_NUM_THREADS": str(variant.threads),
        **variant.environment,
    }
    return {name: value for name, value in changed.items() if value is not None}


def copied(tree: Path) -> Path:
    """A copy of the project, without environments and caches."""
    return shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*MADE))


def outcome(report: Path, code: int, seconds: float) -> Outcome:
    """What the report of pytest says; nothing ran if there is none."""
    if not report.exists():
        return Outcome(0, ["pytest itself"], 0, seconds, code)
    cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    names = [f"{case.get('classname')}::{case.get('name')}" for case in bad]
    return Outcome(len(cases) - len(bad) - skipped, names, skipped, seconds, code)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="variants to run (all)")
    parser.add_argument("--tests", nargs="+", help="tests to run in each of them (those that it could fail)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that share the tests of a variant (2)")
    options = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    for name in options.only:
        variant = VARIANTS[name]
        print(f"{name}: {variant.about} ...", flush=True)
        outcomes[name] = run(variant, options.tests or variant.tests, options.jobs)
    print(f"\n{'variant':12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for name, found in outcomes.items():
        print(f"{name:12}{found.passed:8}{len(found.failed):8}{found.skipped:9}{found.seconds:9.0f}")
        for failed in found.failed:
            print(f"    {failed}")
    sys.exit(any(found.code for found in outcomes.values()))


if __name__ == "__main__":
    main()
