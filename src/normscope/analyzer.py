"""The analyzer: a model ready to be analysed, and the one way from inputs to results.

Resolves what was asked for against what the model has; `run` does the work and `Analysis` holds the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import torch
import xarray as xr
from PIL import Image
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope import schema
from normscope.analysis import Analysis
from normscope.capture import blocks_of
from normscope.errors import InputError, SelectionError
from normscope.families import Family
from normscope.inputs import ImageInput, Input, TokenSequence, read_images, read_inputs, with_targets
from normscope.loading import LoadedModel, load_model
from normscope.run import TOLERANCE, Request, Run, whole_numbers
from normscope.scopes import ATTENTION_WEIGHTS, HALF_ATTENTION_WEIGHTS, resolve_all, scopes_of


def load(
    model: str | Path | torch.nn.Module | None = None,
    tokenizer: PreTrainedTokenizerBase | str | Path | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Analyzer:
    """Load a model to analyse: a hub name, a local folder, a live model, or (by default) the embedded one.

    Args:
        model: what to load. A live model is used as it is and is left exactly as it was after every analysis.
        tokenizer: the tokenizer, or where to load it from; by default the one beside the model. Optional: token ids
            work without one.
        dtype: dtype to load the weights in (default: that of the checkpoint). `torch.float64` gives an analysis to
            1e-12; bf16 and fp16 weights are analysed in float32 arithmetic.
        device: where to put the model.
        revision: the hub revision to load.
        allow_pickle: load a pickle checkpoint (`pytorch_model.bin`). Unpickling can run any code: only if you trust it.
        trust_remote_code: run model code from the repository. Only if you trust it.
    """
    return Analyzer(
        load_model(
            model,
            tokenizer,
            dtype=dtype,
            device=device,
            revision=revision,
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
    )


class Analyzer:
    """A model that can be analysed. Made by `load`."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        blocks_of(self.model, self.family.stack)  # refuse now what would fail later

    # ---- what there is -------------------------------------------------------------------------------------------------

    @property
    def model(self) -> PreTrainedModel:
        return self._loaded.model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        return self._loaded.tokenizer

    @property
    def family(self) -> Family:
        return self._loaded.family

    @property
    def name(self) -> str:
        """The hub name or folder the model came from."""
        return self._loaded.name

    @property
    def layers(self) -> list[int]:
        """The layers, numbered from 1."""
        return list(range(1, 1 + self.family.stack.depth(self.model.config)))

    @property
    def scopes(self) -> list[str]:
        """The scopes of the model's blocks, in the order in which their maps grow."""
        return scopes_of(self.family.stack.topology_of(self.model.config).components())

    @property
    def encoder_scopes(self) -> list[str]:
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
    def weight_dtype(self) -> torch.dtype:
        """The dtype in which the model computes."""
        return next(p.dtype for p in self.model.parameters() if p.is_floating_point())

    @cached_property
    def facts(self) -> dict[str, str | int | float]:
        """What every result says about where it came from."""
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
        return f"Analyzer({self.name!r}, family={self.family.name!r}, layers={len(self.layers)})"

    # ---- analyses ------------------------------------------------------------------------------------------------------

    def analyze(
        self,
        inputs: Input | ImageInput,
        *,
        target: Input | None = None,
        scopes: str | Sequence[str] | None = None,
        layers: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
        heads: bool = False,
        words: bool = False,
        truncate: bool = False,
        value_bias: str = "token",
        dtype: torch.dtype | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Attribution maps of one input, or of each of a list.

        Args:
            inputs: a text, a pair of texts, a list of these, a `BatchEncoding`, or token ids. One input (also an
                encoding of one sequence) gives an `Analysis`; a list gives a list, batched inside, with exactly what
                each gives alone. For a vision model, an image: a path, a PIL image, an array, or its `pixel_values`.
            target: for an encoder-decoder model, the text (or texts, or ids) that the decoder is made to read; without
                it the model generates one. The result is the decoder's analysis, with the encoder's as `.encoder`.
            scopes: the scopes to compute (default all). The chain is followed only as far as they need.
            layers: the layers to compute, from 1 (default all). The forward pass ends after the last of them.
            queries: the positions of the rows to compute, negative from the end (default all).
            heads: also keep the maps of each head (`AttnW`, `Attn`).
            words: the inputs are lists of words.
            truncate: cut inputs that are longer than the model takes, instead of refusing them.
            value_bias: count the value projection's bias with the `"token"` (as the papers do) or with the `"bias"`.
            dtype: arithmetic of the decomposition (default float32, or float64 for a float64 model).
            progress: show a progress bar (default: for long lists in a terminal).

        Returns:
            An `Analysis`, or a list of them for a list.

        Raises:
            CompletenessError: if the parts do not add up to the model's own states within the tolerance.
        """
        request = self._request(scopes, layers, queries, value_bias, dtype, maps=True, heads=heads)
        sequences, single = self._read(inputs, target, words=words, truncate=truncate)
        pairs = Run(self, request).dataset_pairs(sequences, progress=progress)
        analyses = [Analysis(main, None if side is None else Analysis(side)) for main, side in pairs]
        return analyses[0] if single else analyses

    def mixing_ratios(
        self,
        inputs: Input | ImageInput,
        *,
        target: Input | None = None,
        scopes: str | Sequence[str] | None = None,
        layers: int | Sequence[int] | None = None,
        words: bool = False,
        truncate: bool = False,
        value_bias: str = "token",
        dtype: torch.dtype | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Mixing ratios `[scope, layer, query]` without any map, for about the price of a few forward passes.

        Arguments and return value are as in `analyze`; the completeness error of each layer comes as a coordinate.
        """
        request = self._request(scopes, layers, None, value_bias, dtype, maps=False)
        sequences, single = self._read(inputs, target, words=words, truncate=truncate)
        ratios = [_ratios(dataset) for dataset in Run(self, request).datasets(sequences, progress=progress)]
        return ratios[0] if single else ratios

    def _read(
        self, inputs: Any, target: Input | None, *, words: bool, truncate: bool
    ) -> tuple[list[TokenSequence], bool]:
        if self.family.encoder is None and target is not None:
            raise InputError(f"A target was given, but {self.name} has no encoder: give it one text only.")
        if self.family.reads == "image":
            return read_images(inputs, self.model, self._loaded.processor)
        if _is_image(inputs):
            raise InputError(f"An image was given, but {self.name} reads text.")
        sequences, single = read_inputs(inputs, self.tokenizer, self.longest, words=words, truncate=truncate)
        if self.family.encoder is not None:
            options = (self.model, self.tokenizer, self.longest)
            sequences = with_targets(sequences, target, *options, truncate=truncate)
        for sequence in sequences:
            self._refuse_unknown_ids(sequence)
        return sequences, single

    def _refuse_unknown_ids(self, sequence: TokenSequence) -> None:
        embeddings = cast("torch.nn.Embedding | None", self.model.get_input_embeddings())
        known: dict[str, int] = {
            "input_ids": getattr(embeddings, "num_embeddings", 0),
            "token_type_ids": getattr(self.model.config, "type_vocab_size", 0),
        }
        for name, count in known.items():
            for number in sequence.features.get(name, []):
                if count and not 0 <= number < count:
                    raise InputError(f"The encoding's {name!r} has {number}, but the model knows 0 to {count - 1}.")
        if sequence.target is not None:
            self._refuse_unknown_ids(sequence.target)

    def _request(
        self,
        scopes: str | Sequence[str] | None,
        layers: int | Sequence[int] | None,
        queries: int | Sequence[int] | None,
        value_bias: str,
        dtype: torch.dtype | None,
        *,
        maps: bool,
        heads: bool = False,
    ) -> Request:
        encoder = self.encoder_scopes
        asked = resolve_all(scopes, list(dict.fromkeys([*self.scopes, *encoder, HALF_ATTENTION_WEIGHTS])))
        if HALF_ATTENTION_WEIGHTS in asked:  # is derived from the weights
            asked.append(ATTENTION_WEIGHTS)
        # Where only the encoder's scopes are asked for, its decoder still has an analysis to hang on.
        own = [scope for scope in self.scopes if scope in asked] or [ATTENTION_WEIGHTS]
        return Request(
            scopes=own,
            layers=self._layers(layers),
            queries=queries,
            value_bias=value_bias,
            dtype=dtype,
            maps=maps,
            heads=heads,
            encoder_scopes=[scope for scope in encoder if scope in asked],
            encoder_layers=self._encoder_layers(layers),
        )

    def _encoder_layers(self, layers: int | Sequence[int] | None) -> list[int]:
        if self.family.encoder is None:
            return []
        every = range(1, 1 + self.family.encoder.depth(self.model.config))
        asked = every if layers is None else whole_numbers(layers)
        return [layer for layer in every if layer in asked]

    def _layers(self, layers: int | Sequence[int] | None) -> list[int]:
        if layers is None:
            return self.layers
        asked = whole_numbers(layers)
        for layer in asked:
            if layer not in self.layers:
                raise SelectionError(f"There is no layer {layer}: {self.name} has layers 1 to {len(self.layers)}.")
        if not asked:
            raise SelectionError(f"No layer was asked for: {self.name} has layers 1 to {len(self.layers)}.")
        return sorted(set(asked))


def _is_image(inputs: Any) -> bool:
    return isinstance(inputs, Image.Image) or (isinstance(inputs, Mapping) and "pixel_values" in inputs)


def _ratios(dataset: xr.Dataset) -> xr.DataArray:
    ratios = dataset[schema.MIXING_RATIO].assign_attrs(dataset.attrs)
    return ratios.assign_coords({schema.COMPLETENESS: dataset[schema.COMPLETENESS]})
