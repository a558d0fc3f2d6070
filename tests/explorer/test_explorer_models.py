"""The web app with models of every kind: what each reads, what it predicts, and explanations on demand."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_server import Running
from PIL import Image
from support.tiny_heads import tiny_head
from support.two_towers import saved
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import normscope
from normscope.errors import InputError
from normscope.explorer.predictions import predictions_of
from normscope.explorer.requests import Order, Reader
from normscope.explorer.server import WebApp
from normscope.explorer.work import Steps

TEXT = "The chef opened a restaurant."
HEADS = {
    "causal": ("gpt2", "GPT2LMHeadModel"),
    "masked": ("bert", "BertForMaskedLM"),
    "classifier": ("bert", "BertForSequenceClassification"),
    "translator": ("bart", "BartForConditionalGeneration"),
}


@pytest.fixture(scope="module")
def analyzers(analyzer: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The real model without a head, and tiny ones with heads that read the same tokens, and images."""
    tokenizer = analyzer.tokenizer
    models = {
        name: normscope.load(tiny_head(*kind, vocab_size=len(tokenizer)), tokenizer) for name, kind in HEADS.items()
    }
    folder = tmp_path_factory.mktemp("image")
    tiny_head("vit", "ViTForImageClassification").save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 12, "width": 12}).save_pretrained(folder)
    return {"mini": analyzer, **models, "image": normscope.load(folder)}


@pytest.fixture(scope="module")
def server(analyzers: dict[str, Any]) -> Iterator[Running]:
    running = Running(WebApp(analyzers).starlette())
    yield running
    running.stop()


def answered(server: Running, content: dict[str, Any]) -> dict[str, Any]:
    with server.client() as client:
        answer = client.post("/api/jobs", json=content)
        assert answer.status_code == 202, answer.text
        job = answer.json()["id"]
        with client.stream("GET", f"/api/jobs/{job}/events") as events:
            told = [line for line in events.iter_lines() if line.startswith("data: ")]
        status = json.loads(told[-1].removeprefix("data: "))
        assert status["stage"] == "done", status
        return client.get(f"/api/jobs/{job}/result").json()


def analysed(server: Running, model: str, **more: Any) -> dict[str, Any]:
    return answered(server, {"analyses": [{"text": TEXT, "model": model, **more}]})


def test_a_causal_model_says_what_it_predicts_everywhere_and_explains_the_last(
    server: Running, analyzers: dict[str, Any]
) -> None:
    payload = analysed(server, "causal")
    count = len(payload["analyses"][0]["queries"]["token"])
    assert [one["position"] for one in payload["predictions"]] == list(range(count))
    for one in payload["predictions"]:
        chances = [option["probability"] for option in one["options"]]
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) <= 1
    (explanation,) = payload["explanations"]
    (target,) = explanation["targets"]
    assert target["name"] == payload["predictions"][-1]["options"][0]["name"]
    wanted = analyzers["causal"].explain(TEXT)
    assert dict(wanted.top_predictions())[target["name"]] == pytest.approx(
        payload["predictions"][-1]["options"][0]["probability"], rel=1e-4
    )


def test_any_prediction_is_explained_on_demand(server: Running, analyzers: dict[str, Any]) -> None:
    option = predictions_of(Order(analyzers["causal"], TEXT))[2]["options"][1]
    payload = answered(server, {"explain": {"text": TEXT, "model": "causal", "label": option["label"], "at": 2}})
    (explanation,) = payload["explanations"]
    (target,) = explanation["targets"]
    wanted = analyzers["causal"].explain(TEXT, target=option["label"], at=2)
    assert target["value"] == pytest.approx(float(wanted.dataset["value"].values[0]), rel=1e-4)
    assert (target["name"], target["position"]) == (option["name"], 2)
    against = {"text": TEXT, "model": "causal", "label": option["label"], "against": "chef", "at": 2}
    (contrast,) = answered(server, {"explain": against})["explanations"]
    assert contrast["targets"][0]["name"] == f"{option['name']} - chef"


def test_masks_and_classes_are_predicted(server: Running) -> None:
    payload = analysed(server, "masked", text="The [MASK] opened a restaurant.")
    (prediction,) = payload["predictions"]
    assert prediction["position"] == 2
    assert payload["explanations"][0]["targets"][0]["position"] == 2
    assert analysed(server, "masked")["explanations"] == []  # nothing to fill in
    payload = analysed(server, "classifier", pair="It was good.")
    assert payload["predictions"][0]["position"] == -1
    assert payload["explanations"][0]["targets"][0]["name"] == payload["predictions"][0]["options"][0]["name"]
    assert "good" in payload["analyses"][0]["queries"]["token"]


@pytest.mark.parametrize("name", ["decoder_text", "target"])  # the second is the name of version 0.2
def test_an_encoder_decoder_reads_two_texts(server: Running, name: str) -> None:
    payload = analysed(server, "translator", **{name: "A restaurant opened."})
    (analysis,) = payload["analyses"]
    assert "chef" in analysis["encoder"]["queries"]["token"]
    assert "restaurant" in analysis["queries"]["token"]
    (explanation,) = payload["explanations"]
    assert explanation["encoder"]["tokens"]["token"] == analysis["encoder"]["queries"]["token"]


@pytest.mark.parametrize("target", ["A restaurant opened.", None])
def test_what_a_decoder_could_say_is_predicted_everywhere_and_explained(
    server: Running, analyzers: dict[str, Any], target: str | None
) -> None:
    translator = analyzers["translator"]
    predicted = predictions_of(Order(translator, TEXT, target))
    own = translator.explain(TEXT, target=target)
    assert [one["position"] for one in predicted] == own.dataset["target_position"].values.tolist()
    last = predicted[-1]["options"][0]["name"] if target is None else "[SEP]"  # what it says, or the end of the text
    assert own.dataset["target_name"].values[-1] == last
    option = predicted[2]["options"][1]
    asked = {"text": TEXT, "model": "translator", "decoder_text": target, "at": 2}
    (explanation,) = answered(server, {"explain": {**asked, "label": option["label"]}})["explanations"]
    (value,) = explanation["targets"]
    assert (value["name"], value["position"]) == (option["name"], 2)
    assert explanation["error"] < 1e-4
    assert explanation["encoder"]["tokens"]["token"][1] == "the"
    (words,) = answered(server, {"explain": {**asked, "label": "unbelievably"}})["explanations"]
    assert [one["position"] for one in words["targets"]] == [2, 3, 4, 5, 6]


def test_images_and_methods_are_taken(server: Running) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (30, 40, 3), dtype=np.uint8)
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    picture = base64.b64encode(stream.getvalue()).decode()
    payload = answered(server, {"analyses": [{"image": picture, "model": "image"}]})
    assert payload["analyses"][0]["image"]["height"] == 12
    assert payload["predictions"][0]["position"] == -1
    compared = [{"text": TEXT, "model": "mini"}, {"text": TEXT, "model": "mini", "method": "alti"}]
    payload = answered(server, {"analyses": compared, "heads": True})
    assert [one["method"] for one in payload["analyses"]] == ["norms", "alti"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"analyses": [{"model": "image", "text": TEXT}]}, "no image"),
        ({"analyses": [{"model": "image", "image": "bm90IGFuIGltYWdl"}]}, "image cannot be read"),
        ({"analyses": [{"model": "mini", "text": TEXT, "method": "magic"}]}, "method"),
        ({"analyses": [{"model": "mini", "text": TEXT, "decoder_text": "x"}]}, "no decoder"),
        ({"explain": {"model": "mini", "text": TEXT}}, "no head"),
        ({"explain": {"model": "causal", "text": TEXT, "at": -1}}, "position"),
        ({"explain": {"model": "causal", "text": TEXT, "label": 1.5}}, "label"),
        ({"explain": "everything"}, "empty"),
    ],
)
def test_what_a_model_cannot_do_is_refused(server: Running, content: Any, words: str) -> None:
    with server.client() as client:
        answer = client.post("/api/jobs", json=content)
        assert answer.status_code == 422
        assert words in answer.json()["error"]


def test_a_head_whose_weights_are_lacking_is_refused_by_name(analyzer: Any, tmp_path: Path) -> None:
    model = tiny_head("bert", "BertForSequenceClassification", vocab_size=len(analyzer.tokenizer))
    model.base_model.save_pretrained(tmp_path)
    model.config.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**settings, "architectures": [type(model).__name__]}))
    headless = normscope.load(tmp_path, analyzer.tokenizer)
    reader = Reader({"headless": headless}, 100)
    (order,), _ = reader.orders({"analyses": [{"text": TEXT}]})
    assert predictions_of(order) == []
    with pytest.raises(normscope.InputError, match=r"lacks weights of its task head: 'classifier\.bias'"):
        reader.question({"explain": {"text": TEXT}})


def test_an_image_of_too_many_pixels_is_refused_before_it_is_read(analyzers: dict[str, Any]) -> None:
    stream = BytesIO()
    Image.new("1", (6000, 6000)).save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    with pytest.raises(normscope.InputError, match="6000 x 6000"):
        Reader(analyzers, 100).orders({"analyses": [{"model": "image", "image": data}]})


def test_progress_over_models_of_different_depth_is_steady() -> None:
    told: list[tuple[int, int]] = []
    steps = Steps([6, 2], lambda done, total: told.append((done, total)), lambda: False)
    for layers in (6, 2):
        with steps.next() as tell:
            for done in range(layers + 1):
                tell(done, layers)
    assert [done for done, _ in told] == [0, 1, 2, 3, 4, 5, 6, 6, 7, 8]
    assert {total for _, total in told} == {8}


@pytest.mark.parametrize("name", ["decoder_text", "reply"])  # the second is in links of version 0.2
def test_what_a_translator_could_say_is_chosen_in_the_page(browser: Any, server: Running, name: str) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    fragment = f"text=The+chef+opened+a+restaurant.&model=translator&{name}=A+restaurant+opened.&view=flow"
    page.goto(f"{server.url}/#{fragment}")
    page.locator(".flow-graph[data-drawn]").wait_for()
    page.locator(".predictions").get_by_label("after").select_option(label="restaurant")
    second = page.locator(".predictions .link").nth(1)
    label = second.inner_text()
    second.click()
    page.locator(".predictions li.chosen", has_text=label).wait_for()
    assert label in page.locator("h1:visible").inner_text()
    page.get_by_label("Encoder", exact=True).last.check(force=True)
    assert page.locator(".predictions").get_by_label("after").locator("option:checked").inner_text() == "restaurant"
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(".predictions li.chosen", has_text=label).wait_for()
    assert trouble == []
    page.close()


def test_a_prediction_is_chosen_in_the_page_and_the_address_brings_it_back(browser: Any, server: Running) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(server.url)
    assert page.locator(".example").count() == 3
    page.get_by_label("Model").first.select_option("causal")
    page.locator(".example").first.click()
    page.locator(".flow-graph[data-drawn]").wait_for()  # of a causal model the prediction is shown first
    page.wait_for_function("() => location.hash.includes('text=Once+upon')")
    second = page.locator(".predictions .link").nth(1)
    label = second.inner_text()
    second.click()
    page.locator(".predictions li.chosen", has_text=label).wait_for()
    assert label in page.locator("h1:visible").inner_text()
    page.wait_for_function("() => location.hash.includes('explain=')")
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator(".predictions li.chosen", has_text=label).wait_for()
    assert page.url == address
    assert label in page.locator("h1:visible").inner_text()
    page.goto("about:blank")
    page.goto(address.partition("explain=")[0] + "explain=nonsense")
    page.locator(".predictions li.chosen").wait_for()
    page.wait_for_function("() => !location.hash.includes('explain')")
    page.get_by_label("Explain", exact=True).last.fill("nowordatallxyzzy\N{SNOWMAN}")
    page.get_by_role("button", name="Explain").click()
    page.locator(".predictions [role=status]", has_text="vocabulary").wait_for()
    page.goto("about:blank")
    page.goto(f"{server.url}/#text=The+chef+slept.&model=mini&text2=The+chef+woke.&model2=causal&layer=1")
    page.locator(".stage").nth(1).wait_for()
    assert page.get_by_label("Second text", exact=True).input_value() == "The chef woke."
    assert "layer=1" in page.url
    page.get_by_role("button", name="Options").click()
    page.get_by_label("Model").first.select_option("image")
    assert page.get_by_label("Image to analyse").is_visible()
    assert not page.get_by_label("Text to analyse").is_visible()
    assert trouble == []
    page.close()


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model of images and texts, and an image."""
    folder, picture = saved("clip", tmp_path_factory.mktemp("towers"))
    return normscope.load(folder), picture


def test_an_image_is_compared_with_texts(towers: tuple[Any, Path], browser: Any) -> None:
    analyzer, picture = towers
    captions = ["a photo of cat", "the dog", "a photo on a photo"]
    wanted = sorted(analyzer.similarity(picture, captions), key=lambda similarity: -similarity.value)
    running = Running(WebApp({"towers": analyzer}).starlette())
    try:
        data = base64.b64encode(picture.read_bytes()).decode()
        entry = {"model": "towers", "first_image": data, "second": "\n".join(captions)}
        found = answered(running, {"similarity": entry})["similarities"]
        assert [one["second"]["text"] for one in found] == [one.texts[1] for one in wanted]
        assert [one["value"] for one in found] == pytest.approx([one.value for one in wanted], abs=1e-6)
        assert found[0]["first"]["image"]["width"] > 0
        swapped = {"model": "towers", "first": captions[0], "second_image": data}
        (one,) = answered(running, {"similarity": swapped})["similarities"]
        assert one["value"] == pytest.approx(analyzer.similarity(picture, captions[0]).value, abs=1e-6)
        (analysis,) = answered(running, {"analyses": [{"model": "towers", "image": data}]})["analyses"]
        assert analysis["image"]["width"] > 0  # of a model of two towers the image is analysed

        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(running.url)
        page.get_by_label("First image").set_input_files(picture)
        assert not page.get_by_label("First text").is_visible()
        page.get_by_label("Second text to compare").fill(captions[0])
        page.get_by_role("button", name="Compare").click()
        page.locator("h1", has_text="cosine").wait_for()
        page.reload()  # an image is in no address: the form is there again, with the text
        assert page.get_by_label("Second text to compare").input_value() == captions[0]
        page.close()
    finally:
        running.stop()


def test_a_text_to_compare_never_names_a_file(towers: tuple[Any, Path], analyzer: Any) -> None:
    model, picture = towers
    reader = Reader({"towers": model, "mini": analyzer}, 1000)
    refused = {
        "files are not read here": {"first": str(picture), "second": "a cat"},
        "send a PNG": {"first_image": "AAAA", "second": "a cat"},
        "compares texts, and an image": {"model": "mini", "first_image": "AAAA", "second": "a cat"},
        "The text is empty": {"first_image": base64.b64encode(picture.read_bytes()).decode()},
    }
    for words, entry in refused.items():
        with pytest.raises(InputError, match=words):
            reader.pairing({"similarity": entry})
