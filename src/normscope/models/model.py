"""A model that is analysed, and all that is known of it: family, layers, scopes, limits, and where its results come from."""

from __future__ import annotations

from html import escape
from importlib.metadata import version
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope.capture import blocks_of
from normscope.chain.proof import TOLERANCE, Proof
from normscope.errors import listing
from normscope.families import Family
from normscope.models.loading import LoadedModel
from normscope.scopes import Scope, scopes_of


class Subject:
    """A loaded model, described. `Analyzer` adds what can be asked of it."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        blocks_of(self.model, self.family.stack)  # refuse now what would fail later

    @property
    def model(self) -> PreTrainedModel:
        """The model itself, as transformers has it."""
        return self._loaded.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """What makes tokens of a text, or `None`: then inputs are token ids."""
        return self._loaded.tokenizer

    @property
    def processor(self) -> Any:
        """What makes pixels of an image, for a vision model that came with it."""
        return self._loaded.processor

    @property
    def family(self) -> Family:
        """The description of the architecture: where a block keeps its parts, and in what order they act."""
        return self._loaded.family

    @property
    def name(self) -> str:
        """The name of the model on the hub, or of its folder."""
        return self._loaded.name

    @property
    def layers(self) -> list[int]:
        """The layers, numbered from 1."""
        return list(range(1, 1 + self.family.stack.depth(self.model.config)))

    @property
    def scopes(self) -> list[Scope]:
        """The scopes of the model's blocks, in the order in which their maps grow."""
        return scopes_of(self.family.stack.topology_of(self.model.config).components())

    @property
    def encoder_scopes(self) -> list[Scope]:
        """The scopes of the encoder's blocks, where there is an encoder."""
        encoder = self.family.encoder
        return [] if encoder is None else scopes_of(encoder.topology_of(self.model.config).components())

    @property
    def longest(self) -> int | None:
        """The most tokens an input may have, or `None` where nothing limits it."""
        return self.family.longest(self.model.config)

    @property
    def tolerance(self) -> float:
        """The completeness error above which a result is refused."""
        return TOLERANCE[self.weight_dtype]

    @property
    def proof(self) -> Proof:
        """What every trace of the model has to pass."""
        return Proof(self.name, self.family.name, self.weight_dtype)

    @property
    def weight_dtype(self) -> torch.dtype:
        """The dtype in which the model computes."""
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    @property
    def facts(self) -> dict[str, str | int | float]:
        """What every result says about where it came from: the model as it is now, also if it was changed since."""
        return {
            "model": self.name,
            "model_type": self.model.config.model_type,
            "family": self.family.name,
            "revision": self._loaded.revision or "",
            "fingerprint": self._loaded.fingerprint(),
            "dtype": str(self.weight_dtype).removeprefix("torch."),
            "tolerance": self.tolerance,
            "normscope_version": version("normscope"),
            "torch_version": version("torch"),
            "transformers_version": version("transformers"),
        }

    def __repr__(self) -> str:
        head = f"{type(self).__name__}({self.name!r}, family={self.family.name!r}, layers={len(self.layers)})"
        return f"{head}\nscopes: {listing(self.scopes)}"

    def _repr_html_(self) -> str:
        """What there is, as a small table in a notebook."""
        rows = {
            "model": self.name,
            "architecture": f"{self.model.config.model_type} (family {self.family.name})",
            "layers": len(self.layers),
            "scopes": listing(self.scopes),
            "encoder's scopes": listing(self.encoder_scopes),
            "longest input": "" if self.longest is None else f"{self.longest} tokens",
            "weights": f"{str(self.weight_dtype).removeprefix('torch.')}, tolerance {self.tolerance:.0e}",
        }
        left = "style='text-align: left'"
        cells = [
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(value))}</td></tr>"
            for name, value in rows.items()
            if value != ""
        ]
        return f"<table>{''.join(cells)}</table>"
