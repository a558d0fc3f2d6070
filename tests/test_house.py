"""The measures of the source tree count what they say: lines of code, import knots, declarations of options."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[1] / "tools"

FILES = {
    "__init__.py": '"""The package."""\n',
    "low.py": "from typing import Any\n\n# A comment.\nvalue: Any = 1\n",
    "a.py": '"""Doc."""\n\nfrom . import b\n\n\ndef run_command(truncate: bool) -> None:\n    """Doc."""\n    match b:\n'
    "        case Fork():\n            pass\n",
    "inner/__init__.py": "from ..low import value\n",
    "inner/b.py": "def late(truncate: bool) -> None:\n    from house_sample import c\n",
    "c.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from house_sample.inner.b import late\n\n\n"
    "class Options:\n    truncate: bool\n",
}


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tool, imported by its name."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return import_module("house")


@pytest.fixture
def tree(house: Any, tmp_path: Path) -> Any:
    for name, text in FILES.items():
        path = tmp_path / "house_sample" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.read_tree(tmp_path, "house_sample")


def test_lazy_and_type_only_imports_make_a_knot(house: Any, tree: Any) -> None:
    graph = house.imports(tree)

    assert graph["house_sample.inner"] == {"house_sample.low"}
    assert house.largest_knot(graph) == {"house_sample.inner.b", "house_sample.c"}


def test_measures_count_code_without_blanks_comments_and_docstrings(house: Any, tree: Any) -> None:
    found = {measure.name: measure.value for measure in house.measures(tree)}

    assert found["modules of the features at the redesign"] == 6
    assert found["modules of features added since"] == 0
    assert found["modules at the root"] == 4
    assert found["code lines (no blanks, comments, docstrings)"] == 2 + 5 + 1 + 2 + 5
    assert found["places with `case Fork()`"] == 1
    assert found["declarations of the option declared most often"] == 3
    assert found["lines of `run_command`"] == 5
    assert found["`Any` for every 1,000 code lines"] == pytest.approx(1000 / 15)


def test_modules_of_later_features_are_counted_separately(
    house: Any, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "PACKAGE", "house_sample")
    monkeypatch.setattr(house, "ADDED", {"inner things": ("inner",), "another": ("c",)})

    found = {measure.name: measure for measure in house.measures(tree)}

    assert found["modules of the features at the redesign"].value == 3
    assert found["modules of features added since"].value == 3
    assert found["modules of features added since"].note == "inner things 2, another 1"
    assert found["... in modules of features added since"].value == 1 + 2 + 5


def test_every_module_of_a_later_feature_is_in_the_tree(house: Any) -> None:
    tree = house.read_tree()

    named = [f"{house.PACKAGE}.{name}" for names in house.ADDED.values() for name in names]

    assert set(named) <= set(tree)
    assert len(named) == len(set(named))
