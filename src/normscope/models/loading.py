"""Loading a model from the hub, a folder or an object in memory, and checking that it can be analysed.

Safe by default: safetensors only, no remote code. Every error says what the user can do about it.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
import transformers
from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from normscope.capture import family_in
from normscope.describing import Description, describe_model
from normscope.errors import (
    InputError,
    ModelError,
    NormscopeError,
    UnsafeWeightsError,
    UnsupportedArchitectureError,
    listing,
)
from normscope.families import Family, family_of, supported_models
from normscope.families.heads import note_head
from normscope.families.refused import check_class, refused_models
from normscope.families.spec import Config
from normscope.models import source as embedded
from normscope.models.checkpoint import DTYPES, check_complete, check_dtypes, check_finite
from normscope.models.gguf import GgufFile, gguf_file
from normscope.models.model import Model
from normscope.models.options import ModelOptions
from normscope.models.source import (
    check_layer_count,
    check_model_exists,
    check_pickle,
    check_tokenizer_exists,
    has_vocabulary,
    is_folder,
    is_hub_name,
    model_name,
)

_HUB_SECONDS = 5
"""Timeout of the request that checks whether the hub has a model."""


@dataclass(frozen=True)
class _Place:
    """Where transformers reads a saved model, and with which options. `requested` is how the user calls it."""

    requested: str
    name: str
    location: str
    options: dict[str, Any]
    gguf: GgufFile | None = None

    @classmethod
    def of(cls, options: ModelOptions) -> _Place:
        """The location of a model in a folder, on the hub or in a GGUF file, whose checksum is verified if it is
        known."""
        requested = str(embedded.model_folder() if options.model is None else options.model)
        check_model_exists(requested)
        given = {"revision": options.revision, "trust_remote_code": options.trust_remote_code}
        file = gguf_file(requested)
        if file is None:
            name = embedded.NAME if options.model is None else model_name(requested)
            return cls(requested, name, requested, {**given, **hub_options(requested)})
        file.verify()
        return cls(requested, file.name, file.location, {**given, **file.options}, file)

    @property
    def is_on_hub(self) -> bool:
        return self.gguf is None and is_hub_name(self.location)


def load_model(options: ModelOptions) -> Model:
    """Load a model, or take one that is loaded, and check that it can be analysed."""
    source: object = options.model
    tokenizer = options.tokenizer
    _check_dtype(options.dtype)
    if isinstance(source, torch.nn.Module):
        _check_live_options(options)
    if isinstance(source, PreTrainedModel):
        model, commit, name = source, None, _name(source)
    elif isinstance(source, torch.nn.Module):
        model = getattr(source, "_orig_mod", None)  # a compiled model keeps the original here
        if not isinstance(model, PreTrainedModel):
            raise ModelError(f"A {type(source).__name__} is not a Hugging Face model (transformers.PreTrainedModel).")
        commit, name = None, _name(model)
    else:
        place = _Place.of(options)
        model = _from_pretrained(place, options)
        commit, name = getattr(model.config, "_commit_hash", None), place.name
        tokenizer = _tokenizer(place.location, place.options) if tokenizer is None else tokenizer
    if isinstance(tokenizer, str | Path):
        tokenizer = _tokenizer(str(tokenizer), {"trust_remote_code": options.trust_remote_code}, required=True)
    _check_vocabulary(model, tokenizer)
    if options.device is not None:
        model = _moved(model, options.device)
    described = _described(model, options)
    check_dtypes(model)
    check_finite(model)
    processor = None if described.reads == "text" else _processor(source, described.reads)
    return Model(model, tokenizer, described, name, commit, processor)


def describe(
    model: str | Path | PreTrainedModel,
    *,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Description:
    """Describe the architecture of a model by observing it: its family and its head, as they would be registered.

    The model runs once on random ids in float64. The parts of its blocks are found by comparing numbers, and the result has
    passed the battery of `normscope.testing`. Raises `UnsupportedArchitectureError` with what was found and what is missing.

    Args:
        model: a hub name, a local folder, or a live model.
        revision: the hub revision to load.
        allow_pickle: load a pickle checkpoint. Only if you trust it.
        trust_remote_code: run model code from the repository. Only if you trust it.

    Examples:
        >>> import normscope as ns
        >>> from transformers import GPT2Config, GPT2Model
        >>> description = ns.describe(GPT2Model(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50)))
        >>> description.family.stack.blocks, description.family.stack.causal
        ('h.*', True)
        >>> description.completeness < 1e-5
        True
    """
    if not isinstance(model, PreTrainedModel):
        options = ModelOptions(model, revision=revision, allow_pickle=allow_pickle, trust_remote_code=trust_remote_code)
        model, _ = _read(_Place.of(options), options)
    check_dtypes(model)
    return describe_model(model)


def _family(model: PreTrainedModel, choice: str) -> Family:
    """The registered family of a model or, for an unknown type, the one that is found by observing it."""
    model_type = model.config.model_type
    if choice == "registered" or model_type in supported_models():
        return family_of(model_type)
    if model not in _found:
        description = _description(model)
        if description.head is not None:
            note_head(model, description.head)
        _found[model] = description.family
        warnings.warn(
            f"The architecture {model_type!r} is not registered; it was described automatically ({description.proof}). "
            f"normscope.describe() shows the description.",
            stacklevel=2,
        )
    return _found[model]


def _description(model: PreTrainedModel) -> Description:
    """The description of a model of an unknown type; raises with the known reason, if any, and with what was found."""
    model_type = model.config.model_type
    check_class(type(model).__name__)
    check_dtypes(model)
    try:
        return describe_model(model)
    except NormscopeError as error:
        reason = refused_models().get(model_type, "no family is registered for this config.model_type")
        raise UnsupportedArchitectureError(
            f"The architecture {model_type!r} is not supported: {reason}. {error} `normscope models` lists what is. To add "
            f"an architecture, describe its blocks in a normscope.Family, check it with "
            f"normscope.testing.assert_family() and pass it to normscope.register_family()."
        ) from error


_found: WeakKeyDictionary[PreTrainedModel, Family] = WeakKeyDictionary()
"""The families of models of unknown types."""


def sketched_model(options: ModelOptions) -> Model:
    """A model without weights, on the meta device: only its configuration and its tokenizer are read.

    The cost of an analysis can be estimated with it, and nothing else.
    """
    if options.is_live or not isinstance(options.tokenizer, str | Path | None):
        raise InputError("A live model has its weights: estimate it as it is.")
    place = _Place.of(options)
    config = _config(place)
    if options.family == "registered":
        family_of(config.model_type)
    model = _without_weights(place, config)
    if options.tokenizer is None:
        tokenizer = _tokenizer(place.location, place.options)
    else:
        tokenizer = _tokenizer(str(options.tokenizer), _code(place.options), required=True)
    _check_vocabulary(model, tokenizer)
    described = _described(model, options)
    return Model(model.to(_torch_dtype(options) or model.dtype).eval(), tokenizer, described, place.name)


def _described(model: PreTrainedModel, options: ModelOptions) -> Family:
    """The family of a model, with the stage to analyse where one was chosen."""
    family = _family(model, options.family)
    return family_in(model, family if options.stage is None else family.at_stage(model.config, options.stage))


def _without_weights(place: _Place, config: Config) -> Any:
    """A model of a configuration on the meta device."""
    loader = _model_class(place, config)
    try:
        with torch.device("meta"):
            return AutoModel.from_config(config, **_code(place.options)) if loader is AutoModel else loader(config)
    except Exception as error:  # whatever a damaged configuration may throw
        raise _translated(place, error) from error


def _code(options: dict[str, Any]) -> dict[str, Any]:
    return {"trust_remote_code": options["trust_remote_code"]}


def _check_dtype(dtype: object) -> None:
    names = [str(known).removeprefix("torch.") for known in DTYPES]
    if dtype is not None and dtype not in DTYPES and dtype not in names:
        raise InputError(f"Models are loaded in {listing(f'torch.{name}' for name in names)}, not in {dtype!r}.")


def _torch_dtype(options: ModelOptions) -> torch.dtype | None:
    return getattr(torch, options.dtype) if isinstance(options.dtype, str) else options.dtype


def _check_live_options(options: ModelOptions) -> None:
    if options.dtype is not None:
        raise ModelError("A live model is analysed as it is: convert it first (model.to(dtype)), or leave out dtype.")
    if options.device_map is not None:
        raise ModelError(
            "A live model is analysed where it lies: spread it when you load it (from_pretrained(..., device_map=...)), "
            "or leave out device_map."
        )


def _name(model: PreTrainedModel) -> str:
    return model_name(model.name_or_path) if model.name_or_path else type(model).__name__


def hub_options(location: str) -> dict[str, Any]:
    """For a name on the hub: whether to use the network at all. Offline, transformers would retry for a minute."""
    if not is_hub_name(location):
        return {}
    try:
        HfApi().model_info(location, timeout=_HUB_SECONDS)
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"No model was found under {location!r}: there is no such folder with a config.json, and the hub has no such "
            f"model."
        ) from error
    except Exception:  # the hub cannot be reached: use the local cache
        return {"local_files_only": True}
    return {}


def _moved(model: PreTrainedModel, device: str | torch.device) -> PreTrainedModel:
    devices = set[object](getattr(model, "hf_device_map", {}).values())
    if len(devices) > 1:
        raise ModelError(
            f"The model cannot be put on {str(device)!r}: it is spread over {listing(sorted(map(str, devices)))}, and is "
            f"analysed there. Leave out device."
        )
    try:
        return model.to(device)  # pyright: ignore[reportArgumentType]
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"The model cannot be put on {str(device)!r}: {_first_line(error)}") from error


def _from_pretrained(place: _Place, options: ModelOptions) -> PreTrainedModel:
    config = _config(place)
    if options.family == "registered":
        family_of(config.model_type)
    elif config.model_type not in supported_models():
        _description(_without_weights(place, config))  # raise before weights are read
    model, report = _read(place, options)
    described = _family(model, options.family)
    check_complete(place.requested, model, described, report["missing_keys"], report["unexpected_keys"])
    return model


def _read(place: _Place, options: ModelOptions) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model at a place, and what transformers reports about its weights."""
    keywords = {**place.options, "output_loading_info": True, "dtype": _torch_dtype(options) or "auto"}
    if place.gguf is None:
        check_pickle(place.location, allow_pickle=options.allow_pickle)
        keywords["use_safetensors"] = None if options.allow_pickle else True
    elif hasattr(transformers, "GgufConfig"):  # without it, versions that can keep weights packed would do so
        keywords["quantization_config"] = transformers.GgufConfig(dequantize=True)
    config = _config(place)
    if options.device_map is not None:
        spread = options.device_map
        keywords["device_map"] = spread if isinstance(spread, str) else dict(spread)
    try:
        loader = _model_class(place, config)
        with nullcontext() if place.is_on_hub else _no_bar():
            model, report = loader.from_pretrained(place.location, config=config, **keywords)
    except ModelError:
        raise
    except Exception as error:  # whatever a damaged checkpoint may throw
        raise _translated(place, error) from error
    if place.gguf is not None:
        _forget_quantisation(model)
    return cast(PreTrainedModel, model.eval()), report


def _forget_quantisation(model: PreTrainedModel) -> None:
    """The weights of a GGUF file are plain numbers once they are loaded: the model is no longer a quantised one."""
    for owner, name in ((model.config, "quantization_config"), (model, "hf_quantizer"), (model, "is_quantized")):
        if name in vars(owner):
            delattr(owner, name)


def _config(place: _Place) -> Config:
    location = place.location
    if place.gguf is None and not place.is_on_hub:
        check_layer_count(location)
    try:
        config = AutoConfig.from_pretrained(location, **place.options)
    except OSError as error:
        if (Path(location) / "config.json").is_file():
            raise _translated(place, error) from error
        raise ModelError(
            f"No model was found under {location!r}: it is neither a folder with a config.json "
            f"nor a model that was fetched from the hub before, and the hub cannot be reached now."
        ) from error
    except Exception as error:  # whatever a damaged configuration may throw
        raise _translated(place, error) from error
    heads = getattr(config.get_text_config(), "num_attention_heads", 1)
    if isinstance(heads, int) and heads < 1:
        raise ModelError(f"{location!r} could not be loaded: its config.json says that a layer has {heads} heads.")
    return config


@contextmanager
def _no_bar() -> Generator[None]:
    """Disables the progress bar of transformers, which it shows even for local files."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def _model_class(place: _Place, config: Config) -> Any:
    """The class that a checkpoint was saved from, so that all its weights find their place.

    A GGUF file does not name it: it has a language model if its architecture is causal.
    """
    if place.gguf is not None:
        family = supported_models().get(config.model_type)
        causal = family is None or family.stack.causal
        return MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), AutoModel) if causal else AutoModel
    name = (getattr(config, "architectures", None) or ["AutoModel"])[0]
    loader = getattr(transformers, name, AutoModel)
    if loader is not AutoModel and not (isinstance(loader, type) and issubclass(loader, PreTrainedModel)):
        raise ModelError(
            f"The configuration of {place.requested!r} names {name!r} as its architecture, which is not a model class."
        )
    return loader


def _translated(place: _Place, error: Exception) -> ModelError:
    location, text = place.requested, str(error)
    if place.gguf is not None:
        if "not supported" in text:
            return UnsupportedArchitectureError(f"transformers cannot read {location!r}. ({_first_line(error)})")
        return ModelError(
            f"{location!r} could not be read as a GGUF file. It is damaged or incomplete, or in a format that transformers "
            f"does not know. ({_first_line(error)})"
        )
    if "trust_remote_code" in text:
        return UnsafeWeightsError(
            f"{location!r} needs Python code from its repository to run. "
            f"If you trust it, pass trust_remote_code=True (--trust-remote-code)."
        )
    if "offload_folder" in text:
        return ModelError(
            f"{location!r} does not fit: its device map leaves weights on disk, and they would have to be written there in "
            f"another form first. Use dtype=torch.bfloat16 (--dtype), more memory or another device_map; or load the model "
            f"yourself (from_pretrained(..., offload_folder=...)) and pass it live."
        )
    if "safetensors" in text and not isinstance(error, FileNotFoundError):
        return UnsafeWeightsError(
            f"{location!r} has no safetensors weights. If you trust its pickle checkpoint, "
            f"pass allow_pickle=True (--allow-pickle). ({_first_line(error)})"
        )
    if "model type" in text or "Unrecognized model" in text:
        return UnsupportedArchitectureError(f"{location!r} is not a model transformers knows. ({_first_line(error)})")
    return ModelError(f"{location!r} could not be loaded: {_first_line(error)}")


def _tokenizer(location: str, options: dict[str, Any], *, required: bool = False) -> PreTrainedTokenizerBase | None:
    """The tokenizer saved with a model, or `None` if there is none: token ids work without one.

    A folder without a vocabulary has none, although transformers would create an empty one.
    """
    if required:
        check_tokenizer_exists(location)
    elif "gguf_file" not in options and is_folder(location) and not has_vocabulary(Path(location)):
        return None
    try:
        return cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(location, **options))
    except Exception as error:  # tokenizers raise errors of many types
        if required:
            raise ModelError(f"No tokenizer could be loaded from {location!r}: {_first_line(error)}") from error
        return None


def _check_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Raise for a tokenizer with more tokens (without those added later) than the model has embeddings for.

    Many of its ids would mean other tokens to the model, and no error would say so.
    """
    try:
        known = getattr(model.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:
        return
    if tokenizer is not None and known is not None and tokenizer.vocab_size > known:
        raise ModelError(
            f"The tokenizer has {tokenizer.vocab_size} tokens, but {type(model).__name__} knows {known}: it is that of "
            f"another model. Pass the one that this model was trained with."
        )


def _processor(source: Any, reads: str) -> Any | None:
    """The saved processor that converts images or sounds to the model's input, or `None`: prepared inputs work without
    it."""
    location = source if isinstance(source, str | Path) else getattr(source, "name_or_path", None)
    try:
        if not location:
            return None
        if reads == "audio":
            return AutoFeatureExtractor.from_pretrained(str(location))
        return AutoImageProcessor.from_pretrained(str(location), backend="pil")
    except Exception:  # whatever a damaged one may throw
        return None


def _first_line(error: Exception) -> str:
    """The first line of an error message, or the next if that only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    first = f"{lines[0]} {lines[1]}" if lines[0].endswith(":") and len(lines) > 1 else lines[0]
    return f"{type(error).__name__}: {first}" if isinstance(error, LookupError) else first
