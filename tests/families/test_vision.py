"""Images: patches with rows and columns, and what is no image."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.tiny_architectures import (
    IMAGE,
    PATCHES,
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


def test_a_list_of_patches_is_read_without_its_padding() -> None:
    analyzer = ns.load(tiny("siglip2_vision_model", **PATCHES))
    pixels = torch.randn(1, 12, 48, generator=torch.Generator().manual_seed(0))
    padded = {"pixel_values": pixels, "spatial_shapes": [[2, 5]], "pixel_attention_mask": [[1] * 10 + [0] * 2]}
    analysis = analyzer.analyze(padded)
    assert analysis.tokens[:6] == ["0,0", "0,1", "0,2", "0,3", "0,4", "1,0"] and len(analysis.tokens) == 10
    kept: list[torch.Tensor] = []
    layer = analyzer.model.encoder.layers[-1]  # pyright: ignore[reportAttributeAccessIssue]
    with torch.no_grad(), layer.register_forward_hook(lambda _, __, output: kept.append(output)):
        analyzer.model.eval()(**{name: torch.as_tensor(value) for name, value in padded.items()})
    state = analyzer.traces(padded)[-1].states[-1]
    assert state is not None
    torch.testing.assert_close(state, kept[0][0, :10], rtol=1e-4, atol=1e-4)
    with pytest.raises(ns.InputError, match="spatial_shapes"):
        analyzer.analyze({"pixel_values": pixels})
    with pytest.raises(ns.InputError, match="12 patches, not 5 rows and 3 columns"):
        analyzer.analyze({"pixel_values": pixels, "spatial_shapes": [[5, 3]]})


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
