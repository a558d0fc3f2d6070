"""Similarities of images and texts: against vectors that are all written out, and against the model's cosine and logit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.tiny_architectures import TOWERS
from support.two_towers import END, MODELS, made, saved
from torch import Tensor
from transformers import CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModelWithProjection

import normscope as ns
from normscope.errors import CompletenessError
from normscope.similarity.comparing import Comparison
from normscope.similarity.encoders import Encoders
from normscope.similarity.recording import record
from normscope.similarity.texts import read_image

from .frozen import Parts, last_states, products, table_of, text_of


def pixels() -> Tensor:
    return torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(2))


def of_clip(model: Any, states: Parts, *, image: bool) -> Parts:
    """The class token behind its norm, or the end token, through the projection."""
    row = 0 if image else -1
    one = Parts(states.parts[row][None], states.bias[row][None])
    if not image:
        return one.through(lambda vectors: vectors @ model.text_projection.weight.T)
    norm = model.vision_model.post_layernorm
    whole = one.parts.sum(1) + one.bias
    deviation = (whole.var(correction=0) + norm.eps).sqrt()
    centred = one.through(
        lambda vectors: (vectors - vectors.mean(-1, keepdim=True)) / deviation * norm.weight, norm.bias
    )
    return centred.through(lambda vectors: vectors @ model.visual_projection.weight.T)


def of_siglip(model: Any, states: Parts, *, image: bool) -> Parts:
    """The last token through a matrix; or the pooling by attention with the weights that PyTorch gives for it."""
    if not image:
        head = model.text_model.head
        last = Parts(states.parts[-1][None], states.bias[-1][None])
        return last.through(lambda vectors: vectors @ head.weight.T, head.bias)
    head = model.vision_model.head
    own = (states.parts.sum(1) + states.bias)[None]
    _, weights = head.attention(head.probe, own, own, average_attn_weights=False)
    matrix, bias = head.attention.in_proj_weight.chunk(3)[2], head.attention.in_proj_bias.chunk(3)[2]
    sizes = len(matrix) // len(weights[0])
    output = head.attention.out_proj

    def attended(vectors: Tensor) -> Tensor:
        values = (vectors @ matrix.T).unflatten(-1, (-1, sizes))  # [token, ..., head, f]
        mixed = torch.einsum("hk,k...hf->...hf", weights[0, :, 0], values).flatten(-2)
        return mixed[None] @ output.weight.T

    pooled = Parts(attended(states.parts), attended(states.bias) + bias @ output.weight.T + output.bias)
    row = pooled.parts.sum(1) + pooled.bias
    norm, mlp = head.layernorm, head.mlp
    deviation = (row.var(correction=0) + norm.eps).sqrt()
    normed = pooled.through(
        lambda vectors: (vectors - vectors.mean(-1, keepdim=True)) / deviation * norm.weight, norm.bias
    )
    inner = normed.through(lambda vectors: vectors @ mlp.fc1.weight.T, mlp.fc1.bias)
    neurons = inner.parts.sum(1) + inner.bias
    slopes = mlp.activation_fn(neurons) / neurons
    inner = inner.through(lambda vectors: vectors * slopes @ mlp.fc2.weight.T, mlp.fc2.bias)
    return Parts(pooled.parts + inner.parts, pooled.bias + inner.bias)


@pytest.mark.parametrize("name", MODELS)
def test_an_image_and_a_text_are_the_product_of_vectors(name: str) -> None:
    model = made(name).double()
    analyzer = ns.load(model)
    encoders = Encoders.of(analyzer, None)
    assert encoders.image is not None
    inputs = [read_image(encoders.image.model, {"pixel_values": pixels()}), text_of([3, 5, 7, 2, END])]
    sides = []
    with torch.no_grad():
        for each in inputs:
            encoder = encoders.encoder(each)
            (recorded,) = record(encoder.model, encoder.spec, [each])
            written = of_siglip if name == "siglip" else of_clip
            sides.append(written(model, last_states(recorded), image=each.is_image))
    lengths = [float((side.parts.sum(1) + side.bias).norm()) for side in sides]
    expected = products(*sides, 1 / (lengths[0] * lengths[1]))
    found = table_of(Comparison(analyzer, encoders, "cosine"), *inputs)
    largest = float(expected.abs().max())
    torch.testing.assert_close(
        found, expected, rtol=1e-5, atol=1e-6 * largest
    )  # attention is in float32 here and there


@pytest.mark.parametrize("name", MODELS)
def test_the_value_is_the_cosine_of_the_model_and_its_logit(name: str, tmp_path: Path) -> None:
    folder, picture = saved(name, tmp_path)
    analyzer = ns.load(folder)
    text = "a photo of the cat"
    image = np.asarray(Image.open(picture))
    ids = analyzer.tokenizer(text, **({"padding": "max_length", "max_length": 8} if name == "siglip" else {}))
    inputs = CLIPImageProcessorPil.from_pretrained(folder)(images=image, return_tensors="pt")
    with torch.no_grad():
        own = analyzer.model(input_ids=torch.tensor([ids["input_ids"]]), **inputs)
    cosine = float((own.image_embeds * own.text_embeds).sum())
    for given in (picture, str(picture), image, Image.open(picture)):
        similarity = analyzer.similarity(given, text)
        assert similarity.value == pytest.approx(cosine, abs=1e-5)
        assert similarity.logit == pytest.approx(float(own.logits_per_image), abs=1e-4)
        assert similarity.table.shape == (9 + (name != "siglip"), 8 if name == "siglip" else 6)
        assert similarity.completeness < 1e-5
    turned = analyzer.similarity(text, picture)
    np.testing.assert_allclose(turned.table.values, similarity.table.values.T, atol=1e-5)
    shares = analyzer.similarity(picture, text, table=False)
    assert float(shares.first.sum()) + shares.first_bias == pytest.approx(cosine, abs=1e-5)


def test_texts_and_images_are_searched_for_each_other(tmp_path: Path) -> None:
    folder, picture = saved("clip", tmp_path)
    analyzer = ns.load(folder)
    texts = ["a photo of the cat", "the dog", "on the photo", "a cat"]
    values = [analyzer.similarity(picture, text).value for text in texts]
    hits = analyzer.search(picture, texts, top=2)
    assert [hit.attrs["passage"] for hit in hits] == np.argsort(values)[::-1][:2].tolist()
    noise = np.random.default_rng(4).integers(0, 255, (20, 20, 3), dtype=np.uint8)
    (best,) = analyzer.search("the dog", [noise, picture], top=1)
    own = [analyzer.similarity(image, "the dog").value for image in (noise, picture)]
    assert best.value == pytest.approx(max(own), abs=1e-6)


def test_two_images_are_compared_as_the_image_tower_alone_does() -> None:
    torch.manual_seed(0)
    tower = CLIPVisionModelWithProjection(CLIPVisionConfig(**TOWERS["vision_config"])).eval()
    one, other = pixels(), pixels().flip(-1)
    similarity = ns.load(tower).similarity({"pixel_values": one}, {"pixel_values": other})
    with torch.no_grad():
        embedded = tower(pixel_values=torch.cat([one, other])).image_embeds
    own = torch.nn.functional.cosine_similarity(embedded[0], embedded[1], dim=0)
    assert similarity.value == pytest.approx(float(own), abs=1e-5)
    assert similarity.logit is None
    with pytest.raises(ns.InputError, match="reads images, and 'a cat' is a text"):
        ns.load(tower).similarity({"pixel_values": one}, "a cat")


def test_patches_and_pictures_are_kept_in_files_and_by_words(tmp_path: Path) -> None:
    folder, picture = saved("clip", tmp_path)
    similarity = ns.load(folder).similarity(picture, "a photo of the cat")
    read = ns.open(similarity.save(tmp_path / "cat.nc"))
    patches = read.words().patches("first")
    assert patches is not None
    assert patches.tolist() == [[-1, -1], *([row, column] for row in range(3) for column in range(3))]
    assert read.patches("second") is None
    image = read.image("first")
    assert image is not None
    assert image.shape == (12, 12, 3)
    assert read.texts == ("cat.png", "a photo of the cat")
    for ending in ("svg", "html", "csv"):
        assert similarity.save(tmp_path / f"cat.{ending}").stat().st_size > 0


def test_what_cannot_be_compared_is_refused_in_a_sentence(tmp_path: Path) -> None:
    folder, picture = saved("clip", tmp_path)
    analyzer = ns.load(folder)
    with pytest.raises(ns.InputError, match="embeds the first end token of a text"):
        analyzer.similarity(picture, "a [end] photo")
    with pytest.raises(ns.InputError, match="leave out pooling"):
        analyzer.similarity(picture, "a photo", pooling="mean")
    with pytest.raises(ns.InputError, match="is not an image that can be read"):
        analyzer.similarity("missing.png", "a photo")
    with pytest.raises(ns.InputError, match="An image was given, but all-MiniLM-L6-v2 reads text"):
        ns.load().similarity(np.zeros((8, 8, 3)), "a photo")
    with pytest.raises(ns.UnsupportedArchitectureError, match=r"two towers.*of_stack"):
        analyzer.analyze("a photo")
    with pytest.raises(ns.InputError, match="say 'image' or 'text'"):
        analyzer.of_stack("encoder")
    assert len(analyzer.of_stack("text").analyze("a photo").tokens) == 3


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("clip", "visual_projection"),
        ("clip", "text_projection"),
        ("metaclip_2", "visual_projection"),
        ("siglip", "text_model.head"),
        ("siglip", "vision_model.head"),
        ("siglip", "vision_model.head.mlp"),
    ],
)
def test_a_projection_that_outputs_something_else_is_refused(name: str, module: str, tmp_path: Path) -> None:
    folder, picture = saved(name, tmp_path)
    analyzer = ns.load(folder)
    hook = analyzer.model.get_submodule(module).register_forward_hook(lambda _, __, output: output.roll(1, -1))
    with pytest.raises(CompletenessError, match=r"not what the pooling makes|a hook changes"):
        analyzer.similarity(picture, "a photo of the cat")
    hook.remove()
    assert analyzer.similarity(picture, "a photo of the cat").completeness < 1e-5
