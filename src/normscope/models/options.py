"""Which model to load and how: the options of `normscope.load` as one value, for the command line and other processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from normscope.errors import InputError, listing, require_extra, unknown
from normscope.models import source as embedded
from normscope.models.gguf import gguf_file
from normscope.models.source import check_model_exists, check_pickle, check_tokenizer_exists, is_hub_name, model_name
from normscope.options import Documentation, with_documentation

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from normscope.models.config import Outline

    Source = PreTrainedModel | str | Path
    Tokenizer = PreTrainedTokenizerBase | str | Path
    Dtype = torch.dtype | str
    Device = torch.device | str
    DeviceMap = str | Mapping[str, torch.device | str | int]
else:  # importing torch takes seconds, and a command line that only shows its options should not wait for it
    Source = Tokenizer = Dtype = Device = DeviceMap = Any

_DTYPES = ("float64", "float32", "bfloat16", "float16")
_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu", "mtia", "xla", "meta")
_DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
_DEVICE = re.compile(r"([a-z]+)(:[0-9]+)?")


FAMILY_CHOICES = ("auto", "registered")
"""What to do with a model whose type no family describes: try to describe it, or refuse it."""


class LoadingOptions(TypedDict, total=False):
    """All fields of `ModelOptions` except `model`, as keyword arguments."""

    tokenizer: Tokenizer | None
    dtype: Dtype | None
    device: Device | None
    device_map: DeviceMap | None
    revision: str | None
    allow_pickle: bool
    trust_remote_code: bool
    family: str
    stage: int | None


@with_documentation
@dataclass(frozen=True)
class ModelOptions:
    """A model to load, and how. A live model, too, may have a tokenizer and a device."""

    model: Annotated[
        Source | None,
        Documentation(
            "A folder, hub name or GGUF file, or smollm2. Default: the embedded all-MiniLM-L6-v2.",
            ("--model", "-m"),
            command_line_type=str,
        ),
    ] = None
    tokenizer: Annotated[
        Tokenizer | None,
        Documentation("Folder or hub name of the tokenizer, if not the model's own.", command_line_type=str),
    ] = None
    dtype: Annotated[
        Dtype | None,
        Documentation(
            "Load the weights as float64, float32, bfloat16 or float16. Default: as they are stored.",
            command_line_type=str,
        ),
    ] = None
    device: Annotated[
        Device | None,
        Documentation("Where to put the model, such as 'cuda'. Default: the CPU.", command_line_type=str),
    ] = None
    device_map: Annotated[
        DeviceMap | None,
        Documentation(
            "Spread the model over all devices: 'auto', 'balanced' or 'sequential'. Needs the extra accelerate.",
            command_line_type=str,
        ),
    ] = None
    revision: Annotated[str | None, Documentation("The hub revision to load.")] = None
    allow_pickle: Annotated[
        bool, Documentation("Load a pickle checkpoint. It can run any code: only if you trust it.")
    ] = False
    trust_remote_code: Annotated[
        bool, Documentation("Run the Python code of the model's repository. Only if you trust it.")
    ] = False
    family: Annotated[
        str,
        Documentation(
            "For a model whose type is not registered: 'auto' describes it by observing it, 'registered' refuses it.",
            command_line_type=str,
        ),
    ] = "auto"
    stage: Annotated[
        int | None,
        Documentation("The stage to analyse of a vision model that merges tokens (Swin), from 1. Default: the last."),
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str) and self.dtype not in _DTYPES:
            raise InputError(f"There is no dtype {self.dtype!r} here. Known: {listing(_DTYPES)}.")
        device = _DEVICE.fullmatch(self.device) if isinstance(self.device, str) else None
        if isinstance(self.device, str) and (device is None or device[1] not in _DEVICES):
            raise InputError(unknown(f"There is no device {self.device!r}", self.device, "Devices", _DEVICES))
        check_device_map(self.device_map, self.device)
        check_family_choice(self.family)

    @classmethod
    def of(cls, model: Source | None, options: LoadingOptions) -> ModelOptions:
        """The model and its loading options; raises for options that do not exist."""
        known = [field.name for field in fields(cls) if field.name != "model"]
        for name in options:
            if name not in known:
                raise InputError(f"There is no loading option {name!r}. Loading options: {listing(known)}.")
        return cls(model, **options)

    @property
    def is_live(self) -> bool:
        """Whether the model exists in this process only."""
        return not isinstance(self.model, str | Path | None)

    def refuse_unusable(self) -> None:
        """Raise for what file names alone show: no model, pickled weights, no tokenizer. Nothing is loaded."""
        if self.model is None:
            embedded.installed_folder()
        elif isinstance(self.model, str | Path):
            check_model_exists(str(self.model))
            check_pickle(str(self.model), allow_pickle=self.allow_pickle)
        if isinstance(self.tokenizer, str | Path):
            check_tokenizer_exists(str(self.tokenizer))

    def outline(self) -> Outline | None:
        """What the configuration says about the model before it is loaded; `None` for a live model, or one on the hub."""
        self.refuse_unusable()
        if self.is_live or self.trust_remote_code:
            return None
        if self.model is not None and (is_hub_name(str(self.model)) or gguf_file(str(self.model)) is not None):
            return None
        from normscope.models.config import Outline  # noqa: PLC0415  (only the command line needs it)

        if self.model is None:
            return Outline.read(embedded.installed_folder(), embedded.NAME, stage=self.stage)
        registered = self.family == "registered"
        name = model_name(str(self.model))
        return Outline.read(Path(str(self.model)), name, registered=registered, stage=self.stage)


def check_family_choice(family: str) -> None:
    """Raise for a choice that does not exist."""
    if family not in FAMILY_CHOICES:
        raise InputError(f"family is {family!r}; it is one of {listing(FAMILY_CHOICES)}.")


def check_device_map(device_map: DeviceMap | None, device: Device | None) -> None:
    """Raise for a device map that has an unknown name, is combined with a device, or needs a missing package."""
    if device_map is None:
        return
    if isinstance(device_map, str) and device_map not in _DEVICE_MAPS:
        what = f"There is no device map {device_map!r} (for one device, use device)"
        raise InputError(unknown(what, device_map, "Device maps", _DEVICE_MAPS))
    if device is not None:
        raise InputError(
            f"device is {str(device)!r} and device_map {device_map!r}: a model goes to one device, or is spread over "
            f"several. Leave out one of the two."
        )
    require_extra("accelerate", "A device map (--device-map)", "accelerate")
