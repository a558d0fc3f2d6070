"""Which model to load and how: the options of `normscope.load` as one value, for command line and processes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope.documented import Documentation, with_documentation
from normscope.errors import InputError, listing

if TYPE_CHECKING:
    from normscope.analyzer import Analyzer

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class LoadingOptions(TypedDict, total=False):
    """The fields of `ModelOptions` but the model itself, as keyword arguments."""

    tokenizer: PreTrainedTokenizerBase | str | Path | None
    dtype: torch.dtype | str | None
    device: torch.device | str | None
    revision: str | None
    allow_pickle: bool
    trust_remote_code: bool


@with_documentation
@dataclass(frozen=True)
class ModelOptions:
    """A model to load, and how. A live model, too, may have a tokenizer and a device."""

    model: Annotated[
        PreTrainedModel | str | Path | None,
        Documentation(
            "A folder or hub name. Default: the embedded all-MiniLM-L6-v2.", ("--model", "-m"), command_line_type=str
        ),
    ] = None
    tokenizer: Annotated[
        PreTrainedTokenizerBase | str | Path | None,
        Documentation("Folder or hub name of the tokenizer, if not the model's own.", command_line_type=str),
    ] = None
    dtype: Annotated[
        torch.dtype | str | None,
        Documentation(
            "Load the weights as float64, float32, bfloat16 or float16. Default: as they are stored.",
            command_line_type=str,
        ),
    ] = None
    device: Annotated[
        torch.device | str | None,
        Documentation("Where to put the model, such as 'cuda'. Default: the CPU.", command_line_type=str),
    ] = None
    revision: Annotated[str | None, Documentation("The hub revision to load.")] = None
    allow_pickle: Annotated[
        bool, Documentation("Load a pickle checkpoint. It can run any code: only if you trust it.")
    ] = False
    trust_remote_code: Annotated[
        bool, Documentation("Run the Python code of the model's repository. Only if you trust it.")
    ] = False

    def __post_init__(self) -> None:
        if isinstance(self.dtype, str) and self.dtype not in _DTYPES:
            raise InputError(f"There is no dtype {self.dtype!r} here. Known: {listing(_DTYPES)}.")

    @classmethod
    def of(cls, model: PreTrainedModel | str | Path | None, options: LoadingOptions) -> ModelOptions:
        """The model and its loading options; refuses options that do not exist."""
        known = [field.name for field in fields(cls) if field.name != "model"]
        for name in options:
            if name not in known:
                raise InputError(f"There is no loading option {name!r}. Loading options: {listing(known)}.")
        return cls(model, **options)

    @property
    def is_live(self) -> bool:
        """Whether the model exists in this process only."""
        return isinstance(self.model, PreTrainedModel)

    def load(self) -> Analyzer:
        """The analyzer of the model."""
        from normscope import analyzer  # noqa: PLC0415  (which is all of normscope, and this but its options)

        return analyzer.load(
            self.model,
            tokenizer=self.tokenizer,
            dtype=_DTYPES[self.dtype] if isinstance(self.dtype, str) else self.dtype,
            device=self.device,
            revision=self.revision,
            allow_pickle=self.allow_pickle,
            trust_remote_code=self.trust_remote_code,
        )
