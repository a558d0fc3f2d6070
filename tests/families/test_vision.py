"""Images: patches with rows and columns, and what is no image."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.tiny_architectures import (
    IMAGE,
    tiny,
)
from transformers import (
    ViTModel,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import normscope as ns


@pytest.fixture(scope="module")
def vit_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    model = tiny("vit", **IMAGE)
    assert isinstance(model, ViTModel)
    model.save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder)
    return folder


def test_an_image_gives_patches_with_rows_and_columns(vit_folder: Path, tmp_path: Path) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8))
    picture.save(tmp_path / "picture.png")
    analyzer = ns.load(vit_folder)
    analysis = analyzer.analyze(tmp_path / "picture.png")
    assert analysis.tokens[:5] == ["[CLS]", "0,0", "0,1", "0,2", "1,0"]
    assert analysis.dataset["key_row"].values.tolist() == [-1, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert analysis.dataset["key_column"].values.tolist() == [-1, 0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert analysis.dataset["image"].shape == (12, 12, 3)
    for same in (picture, np.asarray(picture), str(tmp_path / "picture.png")):
        np.testing.assert_array_equal(analyzer.analyze(same).map("Attn").values, analysis.map("Attn").values)
    assert not math.isnan(float(analysis.completeness.max()))


def test_a_file_that_is_no_image_is_refused(vit_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("no")
    with pytest.raises(ns.InputError, match="not an image"):
        ns.load(vit_folder).analyze(tmp_path / "no.png")


def test_an_image_for_a_text_model_is_refused(llama: ns.Analyzer) -> None:
    with pytest.raises(ns.InputError, match="reads text"):
        llama.analyze(Image.new("RGB", (4, 4)))


def test_the_plot_of_an_image_lays_the_map_over_it(vit_folder: Path) -> None:
    analysis = ns.load(vit_folder).analyze(np.full((20, 20, 3), 128, dtype=np.uint8))
    figure = analysis.plot("AttnRes", layer=2, query=0)
    image, overlay = figure.axes[0].get_images()
    assert image.get_array().shape == (12, 12, 3)  # type: ignore[union-attr]
    row = analysis.map("AttnRes").sel(layer=2, query=0).values[1:]
    np.testing.assert_array_equal(overlay.get_array(), row.reshape(3, 3))
