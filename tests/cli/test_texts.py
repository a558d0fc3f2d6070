"""What a text on the command line stands for: itself, standard input or a file, by one rule for all commands."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from .samples import TEXT, Output, process

COMMANDS: dict[str, list[str]] = {
    "map": ["--layer", "1"],
    "growth": ["--layer", "1", "--out", "growth.svg"],
    "mix": ["--layer", "1"],
    "explain": ["--state"],
    "estimate": ["--no-time"],
    "explore": ["--layer", "1"],
}
every_command = pytest.mark.parametrize("command", list(COMMANDS))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """What comes from standard input."""
    return lambda content: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_dash_is_standard_input_and_a_text_file_is_read(
    run: Callable[..., Output], typed: Callable[[bytes], None], tmp_path: Path
) -> None:
    expected = run("map", TEXT, "--layer", "1")[:2]
    typed(f"{TEXT}\n".encode())
    assert run("map", "-", "--layer", "1")[:2] == expected
    (tmp_path / "notes.TXT").write_bytes(f"\ufeff{TEXT}\r\n".encode())
    assert run("map", "notes.TXT", "--layer", "1")[:2] == expected
    pair = run("map", TEXT, "--pair", "A second one.", "--layer", "1")[:2]
    (tmp_path / "second.md").write_text("A second one.\n")
    assert run("map", TEXT, "--pair", "second.md", "--layer", "1")[:2] == pair


@every_command
@pytest.mark.parametrize(
    "name", ["nosuch.txt", "nosuch.nc", "nosuch.zarr", "maps.json", "photo.png", "a" * 300 + ".txt"]
)
def test_a_file_that_is_not_there_is_refused_and_nothing_is_written(
    run: Callable[..., Output], tmp_path: Path, command: str, name: str
) -> None:
    (tmp_path / "explorer.html").write_text("a page of before")
    code, out, err = run(command, name, *COMMANDS[command])
    assert (code, out) == (2, ""), err
    assert f"{name[:40]}" in err and "--as-text" in err
    assert [path.name for path in tmp_path.iterdir()] == ["explorer.html"]
    assert (tmp_path / "explorer.html").read_text() == "a page of before"


def test_as_text_takes_a_dash_and_a_name_as_they_are(run: Callable[..., Output]) -> None:
    code, out, err = run("map", "nosuch.txt", "--as-text", "--layer", "1")
    assert code == 0 and "nos" in out, err
    code, out, err = run("map", "-", "--as-text", "--layer", "1")
    assert code == 0 and "-" in out, err


def test_several_words_are_a_text_whatever_they_end_in(run: Callable[..., Output]) -> None:
    code, out, err = run("map", "Read the file notes.txt", "--layer", "1")
    assert code == 0 and "notes" in out, err


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"caf\xe9", "Standard input is not UTF-8 text: byte 3"), (b"\n", "The text is empty")],
)
def test_what_comes_from_standard_input_has_to_be_a_text(
    run: Callable[..., Output], typed: Callable[[bytes], None], content: bytes, message: str
) -> None:
    typed(content)
    code, out, err = run("mix", "-")
    assert (code, out) == (2, "") and message in err


def test_only_one_text_comes_from_standard_input(run: Callable[..., Output]) -> None:
    code, _, err = run("map", "-", "--pair", "-")
    assert code == 2 and "Only one text" in err


def test_a_file_that_is_no_text_is_refused(run: Callable[..., Output], tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    Image.new("RGB", (4, 4)).save(tmp_path / "photo.png")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "result.nc").write_bytes(b"")
    (tmp_path / "table.csv").write_text("a,b\n")
    for name, message in {
        "latin.txt": "is not UTF-8 text",
        "photo.png": "reads text",
        "folder.txt": "cannot be read",
        "result.nc": "normscope explore shows it",
        "table.csv": "it is not a text file",
    }.items():
        code, out, err = run("map", name)
        assert (code, out) == (2, "") and message in err, err


def test_an_argument_that_is_not_utf_8_is_one_message() -> None:
    for arguments in (["map", b"caf\xe9"], ["explain", TEXT, "--target", b"\xff"], ["map", TEXT, "--out", b"\xff.svg"]):
        done = process(*arguments)  # type: ignore[arg-type]
        assert done.returncode == 2 and "is not UTF-8" in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes have a locale without Unicode, as in a bare container or a scheduled job."""
    for name, value in {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("without_unicode")
def test_names_that_a_locale_without_unicode_cannot_read_are_one_message(tmp_path: Path) -> None:
    folder = tmp_path / "L\xe4ufe"
    folder.mkdir()
    for done in (process("map", TEXT, "--out", str(folder / "map.svg")), process("methods", cwd=folder)):
        assert (done.returncode, done.stdout) == (2, "")
        assert "in this locale, whose encoding is ascii: set PYTHONUTF8=1" in done.stderr
        assert "Traceback" not in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("without_unicode")
def test_what_a_locale_without_unicode_cannot_print_is_escaped() -> None:
    done = process("experiments", "deletion", cwd=Path.cwd().anchor)  # a folder whose name can be read
    assert (done.returncode, done.stderr) == (0, "") and "Bl\\xfccher" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate", "--tokens", "8", "--inputs", "9" * 400],
        ["estimate", "--tokens", "9" * 400],
        ["estimate", "--tokens", "8", "--queries", "9" * 400],
        ["estimate", "--tokens", "8", "--explain", "--values", "9" * 400],
        ["explain", TEXT, "--state", "--max-memory", "9" * 400],
        ["explain", TEXT, "--state", "--max-memory", "."],
        ["explain", TEXT, "--state", "--at", "9" * 400],
        ["explain", TEXT, "--state", "--at", "99"],
        ["map", TEXT, "--layer", "9" * 400],
        ["map", TEXT, "--head", "9" * 400],
    ],
)
def test_a_number_beyond_any_model_is_one_message(run: Callable[..., Output], arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and "Traceback" not in err
