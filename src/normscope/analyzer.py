"""The analyzer: a model ready to be analysed, and the one way from inputs to results.

Resolves what was asked for against what the model has; `passes` does the work and `Analysis` holds the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast, overload

import torch
import xarray as xr
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope import schema
from normscope.analysis import Analysis
from normscope.capture import blocks_of
from normscope.errors import InputError, SelectionError
from normscope.explain.asked import Asked
from normscope.explain.explanation import Explanation
from normscope.explain.pulling import PullRequest
from normscope.explain.question import LabelName, Wanted
from normscope.explain.wording import read_question
from normscope.families import Family
from normscope.inputs import ImageInput, Input, TokenSequence, read_images, read_inputs, with_targets
from normscope.loading import LoadedModel, load_model
from normscope.measures import Decomposition, KeptTraces, Measure
from normscope.measures.decomposition import ValueBias
from normscope.methods import LayerMethod, MapRequest, Method, attribution, layer_method
from normscope.methods.across import AcrossLayers
from normscope.methods.prediction import Attribution, PullBack
from normscope.passes import TOLERANCE, Measured, Pass, Request, Results, StackRequest, Tell, whole_numbers
from normscope.scopes import ATTENTION_WEIGHTS, Scope, basis, resolve_all, scopes_of, with_derived
from normscope.trace import LayerTrace

Text = str | tuple[str, str]
"""One text, or a pair of them."""


class MixingOptions(TypedDict, total=False):
    """Options of `Analyzer.mixing_ratios`, which says what they mean."""

    target: Input | None
    scopes: str | Sequence[str] | None
    layers: int | Sequence[int] | None
    truncate: bool
    value_bias: ValueBias
    dtype: torch.dtype | None
    progress: bool | None
    tell: Tell | None


class AnalysisOptions(MixingOptions, total=False):
    """Options of `Analyzer.analyze`, which says what they mean."""

    queries: int | Sequence[int] | None
    heads: bool
    method: str | LayerMethod
    projections: bool


class ExplainOptions(TypedDict, total=False):
    """Options of `Analyzer.explain`, which says what they mean."""

    target: LabelName | Sequence[int] | None
    against: LabelName | None
    at: int | None
    continue_for: int | None
    direction: Tensor | Literal["state"] | None
    method: str | Method
    heads: bool
    truncate: bool
    dtype: torch.dtype | None
    max_memory: int | None
    tell: Tell | None


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

    @overload
    def analyze(self, inputs: Text, **options: Unpack[AnalysisOptions]) -> Analysis: ...
    @overload
    def analyze(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[AnalysisOptions]
    ) -> list[Analysis]: ...
    @overload
    def analyze(
        self, inputs: Input | ImageInput, *, words: bool = ..., **options: Unpack[AnalysisOptions]
    ) -> Analysis | list[Analysis]: ...

    def analyze(
        self,
        inputs: Input | ImageInput,
        *,
        target: Input | None = None,
        scopes: str | Sequence[str] | None = None,
        layers: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
        heads: bool = False,
        method: str | LayerMethod = schema.NORMS,
        projections: bool = False,
        words: bool = False,
        truncate: bool = False,
        value_bias: ValueBias = "token",
        dtype: torch.dtype | None = None,
        progress: bool | None = None,
        tell: Tell | None = None,
    ) -> Analysis | list[Analysis]:
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
            heads: also keep the maps of each head (`AttnW`, `Attn`; of projections at every scope).
            method: what the maps measure: `"norms"` of parts, or one of `normscope.methods.methods("layer maps")`, by name
                or, with options other than its defaults, as `normscope.methods.method(name, ...)` gives it.
            projections: beside the norms, also the projections, for `Analysis.map(..., quantity="projection")`.
            words: the inputs are lists of words.
            truncate: cut inputs that are longer than the model takes, instead of refusing them.
            value_bias: count the value projection's bias with the `"token"` (as the papers do) or with the `"bias"`.
            dtype: arithmetic of the decomposition (default float32, or float64 for a float64 model).
            progress: show a progress bar (default: for long lists in a terminal).
            tell: called with the layers done and their number before each layer of each input; may raise, to cancel.

        Returns:
            An `Analysis`, or a list of them for a list.

        Raises:
            CompletenessError: if the parts do not add up to the model's own states within the tolerance.
        """
        chosen = layer_method(method)
        sequences, single = self._read(inputs, target, words=words, truncate=truncate)
        wanted = MapRequest((), scopes is not None, heads, value_bias, projections)
        request = self._map_request(chosen, wanted, scopes, layers, queries, dtype)
        if chosen.across_layers:
            run = AcrossLayers(self, chosen, request)
            analyses = run.analyses(sequences, self._layers(layers), queries, tell)
        else:
            measured = Pass(self, request).over(sequences, progress=progress, tell=tell)
            analyses = [self.analysis_of(item, value_bias=value_bias, method=chosen) for item in measured]
        return analyses[0] if single else analyses

    def maps_by(
        self,
        sequence: TokenSequence,
        method: LayerMethod,
        scopes: Sequence[str] | None = None,
        dtype: torch.dtype | None = None,
        tell: Tell | None = None,
    ) -> Analysis:
        """The maps of all layers by a method, for a sequence that is ready for the model."""
        wanted = MapRequest((), scopes is not None)
        request = self._map_request(method, wanted, scopes, None, None, dtype)
        if method.across_layers:
            return AcrossLayers(self, method, request).analyses([sequence], self.layers, None, tell)[0]
        (measured,) = Pass(self, request).over([sequence], progress=False, tell=tell)
        return self.analysis_of(measured, method=method)

    def _map_request(
        self,
        method: LayerMethod,
        wanted: MapRequest,
        scopes: str | Sequence[str] | None,
        layers: int | Sequence[int] | None,
        queries: int | Sequence[int] | None,
        dtype: torch.dtype | None,
    ) -> Request:
        """What a method measures of each stack."""
        own, of_encoder = self._scopes(scopes)
        stacks = [
            StackRequest(method.measures(replace(wanted, scopes=tuple(each), layers=needed)), needed)
            for each, needed in (
                (own, method.layers_needed(self._layers(layers))),
                (of_encoder, method.layers_needed(self._encoder_layers(layers))),
            )
            if each and needed
        ]
        return Request(stacks[0], stacks[1] if len(stacks) > 1 else None, queries, dtype)

    @overload
    def mixing_ratios(self, inputs: Text, **options: Unpack[MixingOptions]) -> xr.DataArray: ...
    @overload
    def mixing_ratios(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[MixingOptions]
    ) -> list[xr.DataArray]: ...
    @overload
    def mixing_ratios(
        self, inputs: Input | ImageInput, *, words: bool = ..., **options: Unpack[MixingOptions]
    ) -> xr.DataArray | list[xr.DataArray]: ...

    def mixing_ratios(
        self,
        inputs: Input | ImageInput,
        *,
        target: Input | None = None,
        scopes: str | Sequence[str] | None = None,
        layers: int | Sequence[int] | None = None,
        words: bool = False,
        truncate: bool = False,
        value_bias: ValueBias = "token",
        dtype: torch.dtype | None = None,
        progress: bool | None = None,
        tell: Tell | None = None,
    ) -> xr.DataArray | list[xr.DataArray]:
        """Mixing ratios `[scope, layer, query]` without any map, for about the price of a few forward passes.

        Arguments and return value are as in `analyze`; the completeness error of each layer comes as a coordinate.
        """
        own, _ = self._scopes(scopes)
        measure = Decomposition(ratios=tuple(own), value_bias=value_bias)
        request = self._request([measure], [], layers, None, dtype)
        sequences, single = self._read(inputs, target, words=words, truncate=truncate)
        measured = Pass(self, request).over(sequences, progress=progress, tell=tell)
        ratios = [_ratios(self._dataset(item, value_bias=value_bias)) for item in measured]
        return ratios[0] if single else ratios

    @overload
    def explain(self, inputs: Text, **options: Unpack[ExplainOptions]) -> Explanation: ...
    @overload
    def explain(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[ExplainOptions]
    ) -> list[Explanation]: ...
    @overload
    def explain(
        self, inputs: Input | ImageInput, *, words: bool = ..., **options: Unpack[ExplainOptions]
    ) -> Explanation | list[Explanation]: ...

    def explain(
        self,
        inputs: Input | ImageInput,
        *,
        target: LabelName | Sequence[int] | None = None,
        against: LabelName | None = None,
        at: int | None = None,
        continue_for: int | None = None,
        direction: Tensor | Literal["state"] | None = None,
        method: str | Method = PullBack.name,
        heads: bool = False,
        words: bool = False,
        truncate: bool = False,
        dtype: torch.dtype | None = None,
        max_memory: int | None = None,
        tell: Tell | None = None,
    ) -> Explanation | list[Explanation]:
        """What made the model say this: the attribution of a logit to the input tokens, exactly, through all layers.

        Args:
            inputs: as in `analyze`; each input of a list is explained by itself.
            target: what to explain. A causal model: the word (or the whole continuation, token by token) that follows; a
                masked model: the word at the mask; a classifier: a label; an encoder-decoder: the text that it gives out.
                By default what the model itself predicts. A token id or a list of them, or the number of a label, work too.
            against: another word or label: the difference of the two logits is explained. Of words of several tokens, the
                first token in which they differ.
            at: the position of the token whose prediction is explained (causal: the next token after it), negative from
                the end. By default the last, the mask, or the only one.
            continue_for: instead of a target, let a causal model continue the text by at most so many tokens, always the
                most probable one, and explain each.
            direction: instead of a logit, the last state of the token `at` along a vector `[d]` of your own, or along the
                `"state"` itself. Needs no head. Of an encoder-decoder, `target` is then the text that the decoder reads.
            method: how to attribute, by name (`normscope methods` lists them) or with options (`normscope.method`). Only
                the pull-back follows what flows through the layers, adds up exactly, and takes the next two arguments.
            heads: also keep the edges of every head, `[layer, head, query, key]`.
            words: the inputs are lists of words.
            truncate: cut inputs that are longer than the model takes, instead of refusing them.
            dtype: arithmetic of the pull-back (default float32, or float64 for a float64 model).
            max_memory: bytes that the traces of the layers may take. Layers that do not fit are captured again.
            tell: called with the layers done and their number; may raise, to cancel.

        Raises:
            CompletenessError: if relevance and biases do not add up to the model's own value at every layer.
        """
        way = attribution(method)
        if heads and not way.follows:
            raise InputError(
                f"The method {way.facts['method']!r} does not follow single heads: leave out heads, or use 'pull-back'."
            )
        wanted = Wanted(target, against, at, continue_for, direction)
        sequences, single = self._read_sources(inputs, words=words, truncate=truncate)
        request = PullRequest(heads, dtype, max_memory, tell)
        explanations = [self._explain(item, wanted, way, request) for item in sequences]
        return explanations[0] if single else explanations

    def _explain(
        self, sequence: TokenSequence, wanted: Wanted, method: Attribution, request: PullRequest
    ) -> Explanation:
        sequence, question = read_question(self, sequence, wanted)
        self._refuse_unknown_ids(sequence)
        return Explanation.from_tree(method.explain(Asked(self, sequence, question, request)))

    def traces(self, inputs: Text, *, target: Input | None = None) -> list[LayerTrace]:
        """The trace of every layer of the main stack: the tensors that `decompose` and the `oracle` compute with."""
        sequences, _ = self._read(inputs, target, words=False, truncate=False)
        measure = KeptTraces(below_attention=True)
        (measured,) = Pass(self, self._request([measure], [], None, None, None)).over(sequences)
        return list(measured.main[measure].values())

    def measure(
        self,
        sequences: Sequence[TokenSequence],
        measures: Sequence[Measure[Any, Any]],
        *,
        dtype: torch.dtype | None = None,
        tell: Tell | None = None,
    ) -> list[Measured]:
        """Any measures of all layers of the main stack, for sequences that are ready for the model."""
        return Pass(self, self._request(measures, [], None, None, dtype)).over(sequences, progress=False, tell=tell)

    def analysis_of(
        self, measured: Measured, *, value_bias: ValueBias = "token", method: LayerMethod | None = None
    ) -> Analysis:
        """The analysis that the results of a pass make up."""
        encoder, facts = measured.encoder, {} if method is None else method.facts
        main = self._dataset(measured, value_bias=value_bias).assign_attrs(facts)
        if encoder is None:
            return Analysis(main)
        return Analysis(
            main, Analysis(self._encoder_dataset(measured.sequence, encoder, value_bias).assign_attrs(facts))
        )

    def _dataset(self, measured: Measured, *, value_bias: ValueBias) -> xr.Dataset:
        source, results = measured.sequence, measured.main
        queries, keys = source, {"self": source}
        facts: dict[str, str | int | float] = {**self.facts, "text": source.text, "value_bias": value_bias}
        if source.target is not None:
            queries, keys = source.target, {"target": source.target, "source": source}
            facts |= {"text": source.target.text, "source_text": source.text}
        return schema.build(results.variables(), results.layers, queries, measured.positions, keys, facts)

    def _encoder_dataset(self, sequence: TokenSequence, results: Results, value_bias: ValueBias) -> xr.Dataset:
        facts = {**self.facts, "text": sequence.text, "value_bias": value_bias}
        positions = range(len(sequence))
        return schema.build(results.variables(), results.layers, sequence, positions, {"self": sequence}, facts)

    # ---- what is asked -------------------------------------------------------------------------------------------------

    def _read_sources(self, inputs: Any, *, words: bool, truncate: bool) -> tuple[list[TokenSequence], bool]:
        """The sequences of an input, without targets for a decoder."""
        if self.family.reads == "image":
            return read_images(inputs, self.model, self._loaded.processor)
        if _is_image(inputs):
            raise InputError(f"An image was given, but {self.name} reads text.")
        return read_inputs(inputs, self.tokenizer, self.longest, words=words, truncate=truncate)

    def _read(
        self, inputs: Any, target: Input | None, *, words: bool, truncate: bool
    ) -> tuple[list[TokenSequence], bool]:
        if self.family.encoder is None and target is not None:
            raise InputError(f"A target was given, but {self.name} has no encoder: give it one text only.")
        sequences, single = self._read_sources(inputs, words=words, truncate=truncate)
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

    def _scopes(self, scopes: str | Sequence[str] | None) -> tuple[list[Scope], list[Scope]]:
        """The scopes asked for that the main stack has, and those that the encoder has."""
        encoder = self.encoder_scopes
        available = with_derived(dict.fromkeys([*self.scopes, *encoder]))
        asked = {basis(scope) for scope in resolve_all(scopes, available)}
        # Where only the encoder's scopes are asked for, its decoder still has an analysis to hang on.
        own = [scope for scope in self.scopes if scope in asked] or [ATTENTION_WEIGHTS]
        return own, [scope for scope in encoder if scope in asked]

    def _request(
        self,
        measures: Sequence[Measure[Any, Any]],
        encoder_measures: Sequence[Measure[Any, Any]],
        layers: int | Sequence[int] | None,
        queries: int | Sequence[int] | None,
        dtype: torch.dtype | None,
    ) -> Request:
        encoder_layers = self._encoder_layers(layers)
        encoder = StackRequest(encoder_measures, encoder_layers) if encoder_measures and encoder_layers else None
        return Request(StackRequest(measures, self._layers(layers)), encoder, queries, dtype)

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
