"""What a page shows as the output of a command is what the command prints."""

from __future__ import annotations

import re
import shlex
from itertools import zip_longest

import pytest

from docs.pages import PAGES, Block, blocks
from normscope.cli import main

_PROMPT = "$ normscope "
_NUMBER = re.compile(r"[-+\u2212]?\d+\.\d+(?:e[-+]\d+)?")
SHOWN = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.text.startswith(_PROMPT) and "--model" not in block.text.partition("\n")[0]
]


def same(shown: str, printed: str) -> bool:
    """Whether two lines say the same: rounding errors and times depend on the machine, other numbers in the last digit."""
    if _NUMBER.sub("#", shown).split() != _NUMBER.sub("#", printed).split():
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return all("e" in first or abs(float(first) - float(second)) < 0.015 for first, second in pairs)


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.where)
def test_the_output_on_a_page_is_what_the_command_prints(
    block: Block, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    command, *shown = block.text.rstrip().splitlines()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command.removeprefix(_PROMPT)))
    printed = capsys.readouterr().out.rstrip().splitlines()
    assert not ended.value.code
    cut = shown.index("…") if "…" in shown else None  # the page shows the beginning
    for wanted, line in zip_longest(shown[:cut], printed[:cut], fillvalue=""):
        assert same(re.sub(r" in \d+\.\d+ s", " in 0.0 s", wanted), re.sub(r" in \d+\.\d+ s", " in 0.0 s", line)), line


def test_there_are_such_pages() -> None:
    assert {block.page.name for block in SHOWN} >= {"start.md", "cli.md", "mixing-ratio.md"}
