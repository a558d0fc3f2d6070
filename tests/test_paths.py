"""Results go to regular files alone: links lead to them, and whatever else has the name is refused and left as it was."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from normscope import paths as endings
from normscope.errors import FileError
from normscope.paths import file_to_write
from normscope.results.files import replacing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices are those of POSIX")


def put(path: Path, content: str = "newer") -> None:
    with replacing(path) as temporary:
        temporary.write_text(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# ---- what is no file -----------------------------------------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)  # in the current folder: the whole path may be longer than a socket's may be


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only the superuser makes devices")


def _link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def _link_to_a_folder(path: Path) -> None:
    path.with_name("folder").mkdir()
    path.symlink_to("folder")


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


OTHERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pipe": (_pipe, "is a pipe"),
    "a socket": (_socket, "is a socket"),
    "a device": (_device, "is a device"),
    "a folder": (Path.mkdir, "is a folder"),
    "a link to a pipe": (_link_to_a_pipe, "is a pipe"),
    "a link to a folder": (_link_to_a_folder, "is a folder"),
    "a link to itself": (_link_to_itself, "cannot be written: Too many levels of symbolic links"),
}


@pytest.fixture(params=list(OTHERS))
def other(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """The name of something that is no file, and what is said of it. It is the same afterwards, with nothing next to it."""
    monkeypatch.chdir(tmp_path)
    make, said = OTHERS[request.param]
    path = tmp_path / "out.html"
    make(path)
    before = path.lstat(), names(tmp_path)
    yield path.name, said
    assert names(tmp_path) == before[1]
    assert (path.lstat().st_mode, path.lstat().st_ino) == (before[0].st_mode, before[0].st_ino)


def test_what_is_no_file_is_refused_and_left_as_it_was(other: tuple[str, str]) -> None:
    name, said = other
    with pytest.raises(FileError, match=rf"'{name}' {said}"):
        put(Path(name))
    with pytest.raises(FileError, match=rf"'{name}' {said}"):
        endings.ending(name, endings.RESULTS)


# ---- links ---------------------------------------------------------------------------------------------------------------


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "elsewhere" / "file.txt"
    file.write_text("older")
    (tmp_path / "second").symlink_to(file)
    link = tmp_path / "first.csv"
    link.symlink_to("second")
    put(link)
    assert (os.readlink(link), os.readlink(tmp_path / "second"), file.read_text()) == ("second", str(file), "newer")
    assert (names(tmp_path), names(file.parent)) == (["elsewhere", "first.csv", "second"], ["file.txt"])


def test_a_link_to_nothing_leads_to_the_file_that_is_made(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "out.csv"
    link.symlink_to("elsewhere/file.csv")
    put(link)
    assert link.is_symlink() and (tmp_path / "elsewhere" / "file.csv").read_text() == "newer"
    lost = tmp_path / "lost.csv"
    lost.symlink_to("nowhere/file.csv")
    with pytest.raises(FileError, match=r"lost\.csv' cannot be written: there is no folder '.*nowhere'"):
        put(lost)


def test_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    put(tmp_path / "folder" / "out.csv")
    assert names(tmp_path / "real") == ["out.csv"]


def test_another_name_of_the_same_file_keeps_the_older_content(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("older")
    os.link(tmp_path / "one", tmp_path / "two")
    put(tmp_path / "one")
    assert ((tmp_path / "one").read_text(), (tmp_path / "two").read_text()) == ("newer", "older")


# ---- permissions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out.csv"
    path.touch()
    path.chmod(mode)
    put(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_what_is_read_only_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("older")
    path.chmod(0o400)
    with pytest.raises(FileError, match="is read-only, and stays as it is"):
        put(path)
    tmp_path.chmod(0o500)
    with pytest.raises(FileError, match="read-only for you"):
        put(tmp_path / "new.csv")
    tmp_path.chmod(0o700)
    assert (names(tmp_path), path.read_text()) == (["out.csv"], "older")


# ---- names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a" * 251 + ".csv", "ü" * 125 + ".csv", "\U0001f9fc" * 62 + ".csv", "a." + "b" * 253])
def test_a_name_may_be_as_long_as_the_system_takes(tmp_path: Path, name: str) -> None:
    put(tmp_path / name)
    assert names(tmp_path) == [name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a" * 300 + ".csv", "cannot be written: File name too long"),
        ("a\0b.csv", "no file can have such a name"),
        ("a\ud800b.csv", "no file can have such a name"),
        ("file.txt/out.csv", "file.txt' is a file, and no folder"),
        ("file.txt/deeper/out.csv", "there is no folder"),
        ("nowhere/out.csv", "there is no folder '.*nowhere'. Make it first"),
    ],
    ids=["too long", "NUL", "a surrogate", "below a file", "deep below a file", "nowhere"],
)
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file.txt").touch()
    for check in (put, file_to_write, lambda path: endings.ending(path, endings.TABLES)):
        with pytest.raises(FileError, match=said):
            check(tmp_path / name)
    assert names(tmp_path) == ["file.txt"]


def test_a_name_that_is_no_utf_8_is_written_as_it_is(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.csv")
    try:
        put(tmp_path / name)
    except FileError:
        pytest.skip("this system takes no such names")
    assert names(tmp_path) == [name]


def test_a_file_without_a_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gone"
    with path.open("w") as file:
        path.unlink()
        through = Path(f"/proc/self/fd/{file.fileno()}")
        if not through.exists():
            pytest.skip("needs /proc")
        with pytest.raises(FileError, match="has no name"):
            put(through)
    assert names(tmp_path) == []


# ---- a full disk ---------------------------------------------------------------------------------------------------------


def test_a_disk_without_room_leaves_the_older_file_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("older")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(FileError, match=r"out\.csv' cannot be written: File too large"):
            put(path, 2000 * "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (names(tmp_path), path.read_text()) == (["out.csv"], "older")


# ---- every command -------------------------------------------------------------------------------------------------------

TEXT = "A text."
COMMANDS = {
    "map": ("map", TEXT, "--out", "out.csv"),
    "growth": ("growth", TEXT, "--out", "out.svg"),
    "mix": ("mix", TEXT, "--out", "out.json"),
    "explain": ("explain", TEXT, "--state", "--out", "out.html"),
    "explore": ("explore", TEXT, "--out", "out.htm"),
    "report": ("report", "run", "--out", "out.html"),
    "run": ("run", "ff-norms", "--corpus", "corpus.txt", "--out", "out.txt"),
}

SCRIPT = """
import sys
from normscope.cli import main
for command in sys.stdin.read().split("\\n"):
    try:
        main(command.split("|"))
    except SystemExit as end:
        print(end.code)
"""


def test_every_command_refuses_what_is_no_file_before_it_computes(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(TEXT)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    outs = {command[-1] for command in COMMANDS.values()}
    for out in outs:
        os.mkfifo(tmp_path / out)
    asked = "\n".join("|".join(command) for command in COMMANDS.values())
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=asked,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["2"] * len(COMMANDS)
    assert done.stderr.count("is a pipe") == len(COMMANDS), done.stderr
    assert "Traceback" not in done.stderr
    assert all(stat.S_ISFIFO((tmp_path / out).stat().st_mode) for out in outs)
    assert names(tmp_path) == sorted([*outs, "corpus.txt", "run"])
