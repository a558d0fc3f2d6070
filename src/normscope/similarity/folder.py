"""The description of an embedding from the files of sentence-transformers next to a model: `modules.json` and what it names.

For local folders and for names on the hub. Weights of dense layers are read from safetensors alone.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers.utils.hub import cached_file

from normscope.chain.activations import recognise
from normscope.chain.trace import LayerNorm, Linear
from normscope.errors import ModelError, UnsafeWeightsError, listing
from normscope.models.loading import hub_options
from normscope.models.model import Model
from normscope.models.source import is_folder, is_hub_name
from normscope.options import LATE_INTERACTION, PoolingMode
from normscope.similarity.spec import Centre, Dense, EmbeddingSpec, EmbeddingStep, Expansion, Pool, Reading, UnitLength

_MODULES, _SETTINGS = "modules.json", "config_sentence_transformers.json"
_Settings = dict[str, Any]
"""A JSON object of a file."""

_READINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_LENGTH_EPSILON = 1e-5

_MODES: dict[str, PoolingMode] = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-len",
    "weightedmean": "weighted-mean",
    "lasttoken": "last",
}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The modes as older folders name them, in the order in which they are concatenated."""

_MEASURES: dict[str | None, str] = {None: "cosine", "cosine": "cosine", "dot": "dot", "dot_score": "dot"}


def folder_spec(model: Model) -> EmbeddingSpec | None:
    """The description next to a model; `None` where there is no `modules.json`, or one of a model without embeddings."""
    folder = _Folder.beside(model)
    return None if folder is None or folder.is_bare else folder.spec()


def folder_reading(model: Model) -> Reading:
    """How the texts of a model are read, as far as the files next to it specify."""
    folder = _Folder.beside(model)
    return Reading() if folder is None else folder.reading()


@dataclass(frozen=True)
class _Folder:
    """A local folder, or a repository of the hub, with a `modules.json`."""

    location: str
    model: str
    find: Callable[[str], Path | None]
    modules: list[_Settings]

    @staticmethod
    def beside(model: Model) -> _Folder | None:
        location = str(model.module.name_or_path or "")
        for place in (location, str(Path(location).parent)) if is_folder(location) else (location,):
            find = _finder(place, model.revision)
            path = find(_MODULES) if place else None
            if path is not None:
                modules = _json(path)
                if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
                    raise ModelError(f"{path} is no list of modules, as sentence-transformers writes it.")
                _check_paths(path, cast("list[_Settings]", modules))
                folder = _Folder(place, model.name, find, cast("list[_Settings]", modules))
                # An older folder keeps its transformer in a folder of its own, which was loaded.
                if place == location or any(each.get("path") == Path(location).name for each in modules):
                    return folder
        return None

    @property
    def is_bare(self) -> bool:
        """Whether nothing comes after the transformer except what makes a score, as of a cross-encoder."""
        return all(str(module.get("type", "")).endswith(("Transformer", "LogitScore")) for module in self.modules)

    def spec(self) -> EmbeddingSpec:
        """The description of the embedding."""
        steps: list[EmbeddingStep] = []
        skipped: tuple[str, ...] = ()
        pooled = False
        kinds = [str(module.get("type", "")) for module in self.modules]
        for place, (module, kind) in enumerate(zip(self.modules, kinds, strict=True)):
            name, path = kind.rsplit(".", 1)[-1], str(module.get("path", ""))
            config = self._config(path)
            match name:
                case "Transformer" if place == 0:
                    continue
                case "Pooling":
                    steps.append(self._pool(config, path))
                    pooled = True
                case "Dense":
                    self._check_input(config, kind, path, pooled=pooled)
                    steps.append(self._dense(config, path))
                case "Normalize":
                    self._check_input(config, kind, path, pooled=pooled)
                    steps.append(UnitLength())
                case "LayerNorm" if pooled:
                    steps.append(self._centre(path))
                case "Dropout":
                    continue
                case "MultiVectorMask":
                    skipped = self._skipped(config)
                case _:
                    raise ModelError(self._unknown(name))
        return self._finished(steps, skipped, kinds)

    def _finished(self, steps: list[EmbeddingStep], skipped: tuple[str, ...], kinds: list[str]) -> EmbeddingSpec:
        reading, settings = self.reading(), self._read(_SETTINGS)
        late = not any(isinstance(step, Pool) for step in steps)
        if late and any(kind.startswith("pylate") for kind in kinds):  # which divides by lengths on its own
            steps = [*steps, *([] if UnitLength() in steps else [UnitLength()])]
            skipped = skipped or tuple(settings.get("skiplist_words", string.punctuation))
        function = settings.get("similarity_fn_name")
        measure = LATE_INTERACTION if late else _MEASURES.get(function, str(function))
        source = f"modules.json of {self.model}"
        mean = late and function == "meanmaxsim"
        return EmbeddingSpec(tuple(steps), source, measure, reading, skipped, mean)

    # ---- the modules ---------------------------------------------------------------------------------------------------

    def _pool(self, config: _Settings, path: str) -> Pool:
        given = config.get("pooling_mode")
        if given is None:
            given = [mode for flag, mode in _FLAGS.items() if config.get(flag)] or ["mean"]
        names = [given] if isinstance(given, str) else list(given)
        strange = [str(name) for name in names if name not in _MODES]
        if strange:
            raise ModelError(f"{path} of {self.model} pools by {listing(strange)}; known are {listing(_MODES)}.")
        return Pool(tuple(_MODES[name] for name in names), bool(config.get("include_prompt", True)))

    def _dense(self, config: _Settings, path: str) -> Dense:
        weights = self._weights(path)
        linear = Linear(self._tensor(weights, "linear.weight", path), weights.get("linear.bias"))
        residual: Any = None
        if config.get("use_residual"):
            residual = Linear(weights["residual.weight"]) if "residual.weight" in weights else "itself"
        return Dense(linear, self._activation(str(config.get("activation_function", "torch.nn.Tanh")), path), residual)

    def _activation(self, name: str, path: str) -> Any:
        kind = getattr(nn, name.rsplit(".", 1)[-1], None)
        if not name.startswith("torch.nn.") or not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise ModelError(f"The activation {name!r} of {path} of {self.model} is none of torch.nn.")
        try:
            return None if kind is nn.Identity else recognise(kind())
        except Exception as error:  # one that is not element-wise, or takes arguments
            raise ModelError(
                f"The activation {name!r} of {path} of {self.model} cannot be followed: {error}"
            ) from error

    def _centre(self, path: str) -> Centre:
        weights = self._weights(path)
        norm = LayerNorm(self._tensor(weights, "norm.weight", path), weights.get("norm.bias"), _LENGTH_EPSILON)
        return Centre(norm)

    def _skipped(self, config: _Settings) -> tuple[str, ...]:
        if config.get("keep_only_token_ids") or list(config.get("skiplist_tasks") or ["document"]) != ["document"]:
            raise ModelError(
                f"{self.model} matches only some tokens of its texts, in a way that is not described here."
            )
        return tuple(config.get("skiplist_words") or ())

    def _check_input(self, config: _Settings, kind: str, path: str, *, pooled: bool) -> None:
        """Before the pooling a module reads the tokens' vectors, after it the embedding."""
        default = "token_embeddings" if kind.startswith("pylate") else "sentence_embedding"
        names = [config.get("module_input_name", default)]
        names.append(config.get("module_output_name") or names[0])
        expected = "sentence_embedding" if pooled else "token_embeddings"
        if names != [expected, expected]:
            raise ModelError(
                f"{path} of {self.model} reads {names[0]!r} and writes {names[1]!r}, where {expected!r} is at this place of "
                f"its modules.json: such a way through the modules is not described here."
            )

    def _unknown(self, name: str) -> str:
        if name in ("Asym", "Router"):
            return (
                f"{self.model} has different modules for queries and documents ({name}), so that the two sides have "
                f"different models. Load one of them, or a model with one way for both."
            )
        return (
            f"The modules.json of {self.model} has a module {name!r}, through which nothing can be followed yet. Known are "
            f"Transformer, Pooling, Dense, LayerNorm, Normalize, Dropout and MultiVectorMask."
        )

    # ---- how texts are read --------------------------------------------------------------------------------------------

    def reading(self) -> Reading:
        """How texts are read."""
        path = str(self.modules[0].get("path", "")) if self.modules else ""
        found = next((config for name in _READINGS if (config := self._read(_joined(path, name)))), {})
        settings = self._read(_SETTINGS)
        prompts = {str(name): str(text) for name, text in (settings.get("prompts") or {}).items() if text}
        expansion = found.get("query_expansion")
        return Reading(
            longest=found.get("max_seq_length"),
            lower_case=bool(found.get("do_lower_case", False)),
            prompts=prompts,
            default_prompt=str(settings.get("default_prompt_name") or ""),
            query_length=found.get("query_length"),
            document_length=found.get("document_length"),
            expansion=None if not expansion else _expansion(expansion),
        )

    # ---- files ---------------------------------------------------------------------------------------------------------

    def _config(self, path: str) -> _Settings:
        return self._read(_joined(path, "config.json")) if path else {}

    def _read(self, name: str) -> _Settings:
        path = self.find(name)
        content = {} if path is None else _json(path)
        if not isinstance(content, dict):
            raise ModelError(f"{name} of {self.model} is not an object of settings.")
        return cast(_Settings, content)

    def _weights(self, path: str) -> dict[str, Tensor]:
        file = self.find(_joined(path, "model.safetensors"))
        if file is None:
            pickled = self.find(_joined(path, "pytorch_model.bin")) is not None
            raise (UnsafeWeightsError if pickled else ModelError)(
                f"{path} of {self.model} has no model.safetensors"
                + (", only a pickle checkpoint, and unpickling can run any code" if pickled else "")
                + ". Save the model with a current sentence-transformers, which writes safetensors."
            )
        try:
            weights = load_file(file)
        except Exception as error:  # whatever a damaged file may throw
            raise ModelError(f"{path}/model.safetensors of {self.model} cannot be read: {error}") from error
        for name, tensor in weights.items():
            if not bool(torch.isfinite(tensor).all()):
                raise ModelError(f"{name} of {path} of {self.model} has numbers that are not finite.")
        return weights

    def _tensor(self, weights: Mapping[str, Tensor], name: str, path: str) -> Tensor:
        if name not in weights:
            raise ModelError(f"{path} of {self.model} has no {name!r}, only {listing(weights)}.")
        return weights[name]


def _finder(location: str, revision: str | None) -> Callable[[str], Path | None]:
    """Finds files of a folder or of a repository; `None` for those that it does not have."""
    if not is_hub_name(location):
        return lambda name: path if (path := Path(location) / name).is_file() else None
    options = hub_options(location) if location else {}

    def find(name: str) -> Path | None:
        found = cached_file(
            location,
            name,
            revision=revision,
            _raise_exceptions_for_gated_repo=False,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            **options,
        )
        return None if found is None else Path(found)

    return find


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error


def _check_paths(file: Path, modules: list[dict[str, object]]) -> None:
    """Raise if a module is outside of the model's own folder."""
    for module in modules:
        path = PurePath(str(module.get("path", "")))
        if path.is_absolute() or ".." in path.parts:
            raise ModelError(
                f"{file} has a module at {str(path)!r:.80}, which is outside of its folder, so it is not read."
            )


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _expansion(settings: _Settings) -> Expansion:
    length = settings.get("length")
    if not isinstance(length, int) or settings.get("strategy") not in ("fixed", "min"):
        raise ModelError(f"The query expansion {dict(settings)!r} has no length, or a strategy that is not known.")
    return Expansion(
        length, settings.get("token"), bool(settings.get("attend", False)), settings["strategy"] == "fixed"
    )
