"""Files of sentence-transformers that somebody else wrote: nothing outside of their folder is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.tiny_models import tiny

import normscope as ns
from normscope.similarity.folder import folder_spec


@pytest.mark.parametrize("above", [True, False])
def test_a_module_outside_of_the_models_folder_is_refused(tmp_path: Path, above: bool) -> None:
    folder, other = tmp_path / "model", tmp_path / "other"
    for each in (folder, other):
        each.mkdir()
    (other / "config.json").write_text('{"pooling_mode": "cls"}', encoding="utf-8")
    kinds = {"Transformer": "", "Pooling": "../other" if above else str(other)}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    model = tiny("bert")
    model.name_or_path = str(folder)
    with pytest.raises(ns.ModelError, match=r"modules.json has a module at .*, which is outside of its folder"):
        folder_spec(ns.load(model))
