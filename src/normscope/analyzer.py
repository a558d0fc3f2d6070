"""The analyzer: a model ready to be analysed, and the one way from inputs to results.

Resolves what was requested against what the model has; `passes` does the work and `Analysis` holds the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

import numpy as np
import torch
import xarray as xr
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope.capture import LONG
from normscope.chain.joint_gates import counting
from normscope.chain.measure import KeptTraces, check_arithmetic
from normscope.chain.trace import LayerTrace
from normscope.deprecated import renamed_keywords, warn_renamed
from normscope.errors import InputError, require_extra
from normscope.estimate import Clock, Estimate
from normscope.estimate import request as planned
from normscope.estimate.estimate import Length
from normscope.estimate.planning import asked_of, explained_of, lengths_of, plan, refuse_memory
from normscope.explain.cutting import EdgeCuts
from normscope.explain.parse import read_question
from normscope.explain.pulling import PullRequest
from normscope.explain.question import Wanted
from normscope.explain.streaming import can_stream
from normscope.explain.task import Asked
from normscope.explain.wanted import checked, checked_each
from normscope.families.heads import labels_of
from normscope.families.spec import Stack
from normscope.inputs import AnyInput, DecoderText, Input, Reading, TokenSequence, is_image
from normscope.methods import LayerMethod, attribution, layer_method, resolve
from normscope.methods.across_layers import AcrossLayers
from normscope.methods.answers import explain_answer
from normscope.methods.norms import Decomposition
from normscope.models.loading import load_model, sketched_model
from normscope.models.model import Model
from normscope.models.options import DeviceMap, ModelOptions
from normscope.models.towers import has_two_towers, tower_of
from normscope.options import (
    StackName,
    counted,
    ff_baseline_of,
    stack_name,
    value_bias_of,
    weights_of,
    whole_number,
    with_keywords,
)
from normscope.passes import Pass
from normscope.request import (
    AnalysisOptions,
    AnalysisRequest,
    AnswerOptions,
    AnswerRequest,
    EmbeddingOptions,
    EmbeddingRequest,
    EstimateOptions,
    EstimateRequest,
    ExplainOptions,
    ExplainRequest,
    Messages,
    MixingOptions,
    MixingRequest,
    SimilarityOptions,
    SimilarityRequest,
    Text,
)
from normscope.results import from_pass as results
from normscope.results import schema
from normscope.results.analysis import Analysis
from normscope.results.answer import Answer
from normscope.results.explanation import Explanation
from normscope.results.similarity import Similarity
from normscope.similarity.comparing import Comparison, checked_measure
from normscope.similarity.encoders import Encoders, InputReader
from normscope.similarity.searching import TextOrImage, best_passages
from normscope.similarity.spec import Task


def load(
    model: str | Path | torch.nn.Module | None = None,
    tokenizer: PreTrainedTokenizerBase | str | Path | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    device_map: DeviceMap | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    family: str = "auto",
    stage: int | None = None,
) -> Analyzer:
    """Load a model to analyse: a hub name, a local folder, a live model, or (by default) the embedded one.

    Args:
        model: what to load. A live model is used as it is and is left exactly as it was after every analysis.
        tokenizer: the tokenizer, or where to load it from; by default the one next to the model. Optional: token ids
            work without one.
        dtype: dtype to load the weights in (default: that of the checkpoint). `torch.float64` gives an analysis to
            1e-12; bf16 and fp16 weights are analysed in float32 arithmetic.
        device: where to put the model.
        device_map: instead, spread a model that is too large for one device over all there are: `"auto"`, `"balanced"`,
            `"sequential"`, or a dict from the names of modules to devices. Needs the extra `accelerate`.
        revision: the hub revision to load.
        allow_pickle: load a pickle checkpoint (`pytorch_model.bin`). Unpickling can run any code: only if you trust it.
        trust_remote_code: run model code from the repository. Only if you trust it.
        family: `"auto"` tries to describe a model whose type is not registered by observing it, and warns with the figures
            of the proof; `"registered"` refuses it.
        stage: for a vision model whose tokens are merged from stage to stage (Swin), the stage to analyse, from 1
            (default: the last, whose tokens make the logits).

    Examples:
        >>> import normscope as ns
        >>> analyzer = ns.load()
        >>> len(analyzer.layers), analyzer.scopes[-1]
        (6, 'AttnResLnFfResLn')
    """
    options = ModelOptions(
        cast("PreTrainedModel | str | Path | None", model),
        tokenizer,
        dtype=dtype,
        device=device,
        device_map=device_map,
        revision=revision,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        family=family,
        stage=stage,
    )
    return Analyzer.of(load_model(options))


class Analyzer(Model):
    """A model that can be analysed. Made by `load`.

    Examples:
        >>> import normscope as ns
        >>> analyzer = ns.load()
        >>> analyzer
        Analyzer('all-MiniLM-L6-v2', family='bert', layers=6)
        scopes: AttnW, Attn, AttnRes, AttnResLn, AttnResLnFf, AttnResLnFfRes, AttnResLnFfResLn
        >>> analysis = analyzer.analyze("The opera singer caught a soap bubble.")
        >>> analysis.map("AttnResLnFf").dims
        ('layer', 'query', 'key')
        >>> analyzer.mixing_ratios("A text.").dims
        ('scope', 'layer', 'query')
        >>> explanation = analyzer.explain("A text.", direction="state", at=1)
        >>> explanation.attribution.dims
        ('token',)
    """

    @classmethod
    def of(cls, model: Model) -> Analyzer:
        """The analyzer of a loaded model.

        Examples:
            >>> ns.Analyzer.of(analyzer).name
            'all-MiniLM-L6-v2'
        """
        return cls(**{field.name: getattr(model, field.name) for field in fields(model)})

    @classmethod
    def from_options(cls, options: ModelOptions) -> Analyzer:
        """The analyzer of the model that options describe.

        Examples:
            >>> from normscope.models.options import ModelOptions
            >>> ns.Analyzer.from_options(ModelOptions(dtype="float64")).weight_dtype
            torch.float64
        """
        options.refuse_unusable()
        return cls.of(load_model(options))

    @classmethod
    def without_weights(cls, options: ModelOptions) -> Analyzer:
        """The analyzer of the model that options describe, on the meta device: no weight is read, for estimates only.

        Examples:
            >>> from normscope.models.options import ModelOptions
            >>> ns.Analyzer.without_weights(ModelOptions()).model.device
            device(type='meta')
        """
        options.refuse_unusable()
        return cls.of(sketched_model(options))

    @property
    def model(self) -> PreTrainedModel:
        """The model itself, as transformers has it."""
        return self.module

    def of_stack(self, stack: StackName) -> Analyzer:
        """The model with one of its two stacks, or towers, as what is analysed. An encoder reads its text alone.

        Args:
            stack: `"encoder"` or `"decoder"`; for a model of images and texts, such as CLIP, `"image"` or `"text"`.

        Examples:
            >>> from transformers import BartConfig, BartModel
            >>> bart = ns.load(BartModel(BartConfig(vocab_size=40, d_model=16)))
            >>> bart.of_stack("encoder").scopes == bart.encoder_scopes
            True
        """
        name = stack_name(stack)
        if has_two_towers(self.module):
            if name not in ("image", "text"):
                raise InputError(f"{self.name} has towers for images and texts, and no {name}: say 'image' or 'text'.")
            return tower_of(self, name)
        if self.family.encoder is None:
            raise InputError(f"{self.name} has no encoder and decoder, but one stack: leave out stack (--stack).")
        if name in ("image", "text"):
            raise InputError(f"{self.name} has an encoder and a decoder, and no towers for images and texts.")
        return self._of_encoder if name == "encoder" else self

    @cached_property
    def _of_encoder(self) -> Analyzer:
        return replace(self, family=replace(self.family, stack=cast(Stack, self.family.encoder), encoder=None))

    # ---- analyses ------------------------------------------------------------------------------------------------------

    @overload
    def analyze(self, inputs: Text | Messages, **options: Unpack[AnalysisOptions]) -> Analysis: ...
    @overload
    def analyze(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[AnalysisOptions]
    ) -> list[Analysis]: ...
    @overload
    def analyze(
        self,
        inputs: AnyInput,
        *,
        pretokenized: bool = ...,
        **options: Unpack[AnalysisOptions],
    ) -> Analysis | list[Analysis]: ...

    @renamed_keywords(tell="on_progress", words="pretokenized", target="decoder_text")
    @with_keywords(AnalysisOptions, AnalysisRequest)
    def analyze(
        self,
        inputs: AnyInput,
        *,
        pretokenized: bool = False,
        **options: Unpack[AnalysisOptions],
    ) -> Analysis | list[Analysis]:
        """Attribution maps of one input, or of each of a list.

        Args:
            inputs: a text, a pair of texts, the messages of a chat (a list of dictionaries with a `role` and a `content`,
                laid out by the chat template), a list of these, a `BatchEncoding`, or token ids. One input (also an
                encoding of one sequence) gives an `Analysis`; a list gives a list, batched inside, with exactly what
                each gives alone. For a vision model, an image: a path, a PIL image, an array, or its `pixel_values`. For a
                model of sounds: a path, `(samples, rate)`, or its `input_features` or `input_values`.
            pretokenized: the inputs are lists of words.

        Keyword Args:
            decoder_text: for an encoder-decoder model, the text (or texts, or token ids) that the decoder reads; without it
                the model generates one. The decoder reads the start token and all of it, except for an end token that
                closes it. The result is the decoder's analysis, with the encoder's as `.encoder`.
            scopes: the scopes to compute (default all). The chain is followed only as far as they need.
            layers: the layers to compute, from 1 (default all). The forward pass ends after the last of them.
            queries: the rows to compute, by position, negative from the end, or by token, such as `"opera"` (default all).
            heads: also keep the maps of each head (`AttnW`, `Attn`; of projections at every scope).
            method: what the maps measure: `"norms"` of parts, or one of `normscope.available_methods("layer maps")`, by name
                or, with options other than its defaults, as `normscope.methods.method(name, ...)` gives it.
            projections: in addition to the norms, the projections, for `Analysis.map(..., quantity="projection")`.
            approximate: compute the maps from the feed-forward on approximately, and measure their error on sampled
                queries: `"slopes"`, `"sketch"`, `"both"`, `"patterns"`, an `Approximation` of your own, or `"fast"`, the
                cheapest with a rank correlation of at least 0.999 in every layer, exact where there is none. The result
                records the error that was reached.
            products: multiply the parts with the feed-forward's second matrix in `"tf32"` or `"bf16"`, on devices that are
                faster in it. The result says so as for approximate maps, and its parts have to add up less exactly.
            truncate: cut inputs that are longer than the model takes, instead of refusing them.
            value_bias: count the value projection's bias with the `"token"` (as the papers do) or with the `"bias"`.
            gates: whether gates of attention are constants (`"fixed"`), or share in what they let through, which then counts
                with the query's own token (`"joint"`).
            ff_baseline: where the integrated gradients of feed-forwards start: at `"zero"` (as in the papers), or at the
                `"bias"`, what enters an activation without any token.
            dtype: arithmetic of the decomposition (default float32, or float64 for a float64 model).
            progress: show a progress bar (default: for long lists in a terminal).
            on_progress: callback, called with the layers done and their number before each layer of each input; may raise,
                to cancel.
            max_memory: bytes that the analysis may take in addition to the model. What would take more, as `estimate`
                counts it, is refused before it starts. Ignored with `out`.
            out: a Zarr folder (`"maps.zarr"`, needs the extra `zarr`) that the norm maps of one input are written to layer
                by layer, instead of being kept in memory. It is opened like any other result, and maps are loaded lazily.

        Returns:
            An `Analysis`, or a list of them for a list.

        Raises:
            CompletenessError: if the parts do not add up to the model's own states within the tolerance.

        Examples:
            >>> analyzer.analyze("The opera singer caught a soap bubble.").map("AttnResLnFf").shape  # [layer, query, key]
            (6, 10, 10)
            >>> analyzer.analyze("A text.", scopes="AttnRes", layers=3, queries=-1).map("AttnRes").shape
            (1, 1, 5)
            >>> [len(analysis.tokens) for analysis in analyzer.analyze(["A text.", "Another text of the list."])]
            [5, 8]
        """
        asked = AnalysisRequest(**options)
        method = layer_method(asked.method)
        value_bias_of(asked.value_bias)
        sequences, single = resolve.read(self, inputs, asked.decoder_text, Reading(pretokenized, asked.truncate))
        if asked.out is not None and len(sequences) > 1:
            raise InputError("out= streams the norm maps of one input: leave out other inputs.")
        analyses: list[Analysis] = []
        for some, queries in resolve.by_queries(sequences, asked.queries):
            analyses += self._analyses(some, replace(asked, queries=queries), method)
        return analyses[0] if single else analyses

    def _analyses(self, sequences: list[TokenSequence], asked: AnalysisRequest, method: LayerMethod) -> list[Analysis]:
        """The analyses of sequences that are analysed together, at the same positions."""
        wanted = resolve.wanted_of(asked, asked, projections=asked.projections)
        request = resolve.map_request(self, method, wanted, asked)
        facts = {**self.facts, **self.whole_layers, **counted(asked), **method.facts}
        if asked.out is not None:
            require_extra("zarr", "Streaming results to disk (out=)", "zarr")
            from normscope.results import zarr as streaming  # noqa: PLC0415  (an extra)

            return [streaming.analysis(Pass(self, request), sequences, facts, asked.out, asked.on_progress)]
        if asked.max_memory is not None:
            refuse_memory(self, request, lengths_of(sequences), asked.max_memory)
        if method.across_layers:
            run = AcrossLayers(self, method, request, asked)
            layers = resolve.layers_asked(self, asked.layers)
            return run.analyses(sequences, layers, request.queries, asked.on_progress)
        measured = Pass(self, request).over(sequences, progress=asked.progress, tell=asked.on_progress)
        return [results.analysis(item, facts) for item in measured]

    @overload
    def mixing_ratios(self, inputs: Text | Messages, **options: Unpack[MixingOptions]) -> xr.DataArray: ...
    @overload
    def mixing_ratios(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[MixingOptions]
    ) -> list[xr.DataArray]: ...
    @overload
    def mixing_ratios(
        self,
        inputs: AnyInput,
        *,
        pretokenized: bool = ...,
        **options: Unpack[MixingOptions],
    ) -> xr.DataArray | list[xr.DataArray]: ...

    @renamed_keywords(tell="on_progress", words="pretokenized", target="decoder_text")
    @with_keywords(MixingOptions, MixingRequest)
    def mixing_ratios(
        self,
        inputs: AnyInput,
        *,
        pretokenized: bool = False,
        **options: Unpack[MixingOptions],
    ) -> xr.DataArray | list[xr.DataArray]:
        """Mixing ratios `[scope, layer, query]` without any map, at about the cost of a few forward passes.

        Arguments and return value are as in `analyze`; the completeness error of each layer comes as a coordinate.

        Examples:
            >>> ratios = analyzer.mixing_ratios("A text.", scopes=["AttnW", "AttnRes"])
            >>> ratios.shape, bool(ratios.sel(scope="AttnRes").mean() < ratios.sel(scope="AttnW").mean())
            ((2, 6, 5), True)
        """
        asked = MixingRequest(**options)
        own, _ = resolve.scopes_asked(self, asked.scopes)
        value_bias = value_bias_of(asked.value_bias)
        measure = Decomposition(ratios=tuple(own), value_bias=value_bias)
        start = counting(asked, value_bias)
        request = resolve.request(self, [measure], [], asked.layers, None, asked.dtype, start)
        sequences, single = resolve.read(self, inputs, asked.decoder_text, Reading(pretokenized, asked.truncate))
        measured = Pass(self, request).over(sequences, progress=asked.progress, tell=asked.on_progress)
        facts = {**self.facts, **counted(asked)}
        ratios = [results.mixing_ratios(item, facts) for item in measured]
        return ratios[0] if single else ratios

    @overload
    def explain(self, inputs: Text | Messages, **options: Unpack[ExplainOptions]) -> Explanation: ...
    @overload
    def explain(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[ExplainOptions]
    ) -> list[Explanation]: ...
    @overload
    def explain(
        self,
        inputs: AnyInput,
        *,
        pretokenized: bool = ...,
        **options: Unpack[ExplainOptions],
    ) -> Explanation | list[Explanation]: ...

    @renamed_keywords(tell="on_progress", words="pretokenized", reply="decoder_text")
    @with_keywords(ExplainOptions, ExplainRequest)
    def explain(
        self,
        inputs: AnyInput,
        *,
        pretokenized: bool = False,
        **options: Unpack[ExplainOptions],
    ) -> Explanation | list[Explanation]:
        """Why the model makes a prediction: the attribution of a logit to the input tokens, exactly, through all layers.

        Args:
            inputs: as in `analyze`; each input of a list is explained by itself, short ones computed together.
            pretokenized: the inputs are lists of words.

        For a list of inputs, `target`, `against`, `at` and `decoder_text` apply to all, or are lists with one for each
        input.

        Keyword Args:
            target: what to explain. A causal model: the word (or the whole continuation, token by token) that follows; a
                masked model: the word at the mask; a classifier: a label; an encoder-decoder: the text that it outputs,
                each token at its own row. By default what the model itself predicts. A token id or a list of them (just
                these are explained), or the number of a label, work too.
            against: another word or label: the difference of the two logits is explained. For words of several tokens, the
                first token in which they differ.
            at: the token whose prediction is explained (causal: the next token after it), by its position, negative from
                the end, or by its name. By default the last, the mask, or the only one.
            continue_for: instead of a target, let a causal model continue the text by at most this many tokens, always the
                most probable one, whatever its generation settings, and explain each.
            direction: instead of a logit, the last state of the token `at` along a vector `[d]` of your own (of torch, numpy
                or plain numbers), or along the `"state"` itself. Needs no head. An encoder-decoder also needs its
                `decoder_text`.
            decoder_text: for an encoder-decoder, the text that its decoder reads, as in `analyze`, or token ids, exactly as
                they are after the start token. The target is then a word, or a token id, that could follow the token
                `at`, as in causal models.
            objective: what the target's logit is compared with, so that what raises all logits alike is left out. By default
                with its `"alternatives"`: the mean of all other logits of its row, weighted by their probabilities, which
                are constants. Or with one of them, as a `"contrast"`: that of `against`, or else the next most probable one.
                Or with the mean of all and itself (`"centred"`: the same shares, times the probability of the alternatives).
                Or with nothing: the `"logit"`, the default where labels do not exclude each other.
            method: how to attribute, by name (`normscope methods` lists them) or with options (`normscope.method`). Only
                the pull-back follows what flows through the layers, adds up exactly, and takes the next two arguments.
            heads: also keep the edges of every head, `[layer, head, query, key]`.
            edges: keep what flows from every token to every other in each layer, for `edges` and `flow` of the result. By
                default for inputs of fewer than 1,024 tokens, since their memory grows with the square of the length.
            ff_baseline: as in `analyze`, for the pull-back and DecompX. Here, everything that is not linear in the states
                that enter a layer belongs to no token.
            truncate: cut inputs that are longer than the model takes, instead of refusing them.
            dtype: arithmetic of the pull-back (default float32, or float64 for a float64 model).
            max_memory: bytes that the traces of the layers may take. Layers that do not fit are captured again.
            on_progress: callback, called with the layers done and their number; may raise, to cancel.

        Raises:
            CompletenessError: if relevance and biases do not add up to the model's own value at every layer, or if a
                component of the model does not do what its description says.

        Examples:
            >>> explanation = analyzer.explain("The opera singer sang.", direction="state", at=3)
            >>> explanation.attribution.shape, explanation.edges(3).shape  # [token], [query, key]
            ((7,), (7, 7))
            >>> analyzer.explain("The opera singer sang.", direction="state", at=3, method="gradient-x-input").adds_up
            False
            >>> both = analyzer.explain(["The opera singer sang.", "It rained."], direction="state", at=["singer", -1])
            >>> [each.top(1)["token"].item() for each in both]
            ['singer', 'rained']
        """
        asked = ExplainRequest(**options)
        check_arithmetic(asked.dtype)
        method = attribution(asked.method)
        if (asked.heads or asked.edges) and not method.follows:
            raise InputError(
                f"The method {method.facts['method']!r} follows nothing through the layers: leave out heads and edges, or "
                f"use 'pull-back'."
            )
        if ff_baseline_of(asked.ff_baseline) != "zero" and not method.through_slopes:
            raise InputError(
                f"The method {method.facts['method']!r} has no baseline of feed-forwards: leave out ff_baseline, or use "
                f"'pull-back' or 'decompx'."
            )
        target, decoder_text = self._target_and_text(asked)
        said: dict[str, object] = {
            "target": target,
            "against": asked.against,
            "at": asked.at,
            "continue_for": asked.continue_for,
            "direction": asked.direction,
            "decoder_text": decoder_text,
        }
        sequences, single = resolve.read_sources(self, inputs, Reading(pretokenized, asked.truncate))
        if single:
            wanted = [checked(**said, objective=asked.objective)]
        else:
            tokens = asked.direction is None and labels_of(self.module) is None
            wanted = checked_each(len(sequences), tokens=tokens, objective=asked.objective, said=said)
        how = (asked.heads, asked.dtype, asked.max_memory, asked.on_progress, asked.ff_baseline, asked.edges)
        request = PullRequest(*how, weights=weights_of(asked.weights))
        all_asked = [self._asked(*each, request) for each in zip(sequences, wanted, strict=True)]
        trees = method.explain_all(all_asked)
        made = [Explanation.from_tree(tree) for tree in trees]
        for explanation, each in zip(made, all_asked, strict=True):
            explanation.cuts = EdgeCuts(each)
        return made[0] if single else made

    def _target_and_text(self, asked: ExplainRequest) -> tuple[Any, Any]:
        """What is explained and what a decoder reads. In version 0.2, `target` was the latter where a direction is given."""
        given = asked.target is not None and asked.decoder_text is None
        if asked.direction is None or self.family.encoder is None or not given:
            return asked.target, asked.decoder_text
        warn_renamed("The keyword 'target' of explain with a direction", "'decoder_text'", frames=4)
        return None, asked.target

    def _asked(self, sequence: TokenSequence, wanted: Wanted, request: PullRequest) -> Asked:
        sequence, question = read_question(self, sequence, wanted)
        resolve.refuse_unknown_ids(self, sequence)
        return Asked(self, sequence, question, request)

    @with_keywords(AnswerOptions, AnswerRequest)
    def explain_answer(self, **options: Unpack[AnswerOptions]) -> Answer:
        """Which sentence, document or turn an answer came from: exactly, for an answer of any length in one pass back.

        The model answers a question about a context, or the last message of a chat; or the answer is given. Its value is
        the sum of the `objective` over its tokens. The shares of the tokens that the model read add up to the value, with
        the biases, and so do those of sentences and documents. Attention weights, deviations of norms and slopes of
        activations are those of the pass; they are not explained themselves.

        Keyword Args:
            context: a document, a list of them, or documents by name.
            question: the question about it.
            messages: instead of both, the turns of a chat, each with a `role` and a `content`. If the last is the
                assistant's, it is the answer that is explained.
            answer: explain this answer (a text, or token ids as they are), instead of what the model answers.
            objective: what every token's logit is compared with: by default the mean of all others at its position, by their
                probabilities (`"alternatives"`); or the mean of all (`"centred"`), or the most probable other token
                (`"contrast"`, the default with `against`); or nothing (`"logit"`).
            against: another answer: the first token in which the two differ is explained, by the difference of logits.
            max_new_tokens: the most tokens that the model may answer with.
            seed: generate by the model's own generation settings, with this seed. By default the most probable token is
                taken at each step.
            stop: a text that ends the answer. By default the end of the line, if there is no chat template.
            layout: how documents and question make up the prompt (or the message to a chat model): a text with `{context}`
                and `{question}` in it.
            chat: use the tokenizer's chat template, or not. By default, it is used if there is one.
            table: also explain every token of the answer by itself at once; otherwise when the table is first looked at.
            ff_baseline: as in `analyze`.
            dtype: arithmetic of the pull-back (default float32, or float64 for a float64 model).
            max_memory: bytes that the traces of the layers may take. Layers that do not fit are captured again.
            on_progress: callback, called with the layers done and their number; may raise, to cancel.
            on_text: callback, called with the text generated so far; may raise, to cancel.

        Raises:
            CompletenessError: if shares and biases do not add up to the model's own value at every layer.
            ModelError: if the model puts out no text.

        Examples:
            >>> from transformers import GPT2Config, GPT2LMHeadModel
            >>> config = GPT2Config(n_layer=2, n_embd=12, n_head=2, vocab_size=30522)
            >>> model = ns.load(GPT2LMHeadModel(config), analyzer.tokenizer)  # a random one; load one that can answer
            >>> answer = model.explain_answer(context="Marta lives in Lisbon.", question="Where?", max_new_tokens=3)
            >>> answer.spans()[0].text
            'Marta lives in Lisbon.'
        """
        return explain_answer(self, AnswerRequest(**options))

    @overload
    def embed(self, texts: str, **options: Unpack[EmbeddingOptions]) -> np.ndarray: ...
    @overload
    def embed(self, texts: list[str], **options: Unpack[EmbeddingOptions]) -> np.ndarray | list[np.ndarray]: ...

    @with_keywords(EmbeddingOptions, EmbeddingRequest)
    def embed(self, texts: str | Sequence[str], **options: Unpack[EmbeddingOptions]) -> np.ndarray | list[np.ndarray]:
        """The embeddings of texts, as sentence-transformers computes them for the same model.

        Args:
            texts: a text, or a list of texts, which is batched inside.

        Keyword Args:
            pooling: how the last states become an embedding: `"mean"`, `"first"`, `"last"`, `"weighted-mean"`, `"max"`,
                `"mean-sqrt-len"`, or several joined by a plus. `"late-interaction"` keeps one vector of unit length for each
                token. By default what `modules.json` next to the model says: pooling, dense layers, norms.
            task: whether texts are a `"query"` or a `"document"`, which may have prompts and lengths of their own.
            prompt: an instruction before every text, instead of the model's own.
            truncate: cut texts that are longer than the model takes, instead of refusing them.
            on_progress: callback, called with the number of texts that are done and of all; may raise, to cancel.

        Returns:
            An array `[dimension]` of a text, `[text, dimension]` of a list. With late interaction `[token, dimension]`, and
            a list of these.

        Examples:
            >>> analyzer.embed(["A text.", "Another text of the list."]).shape
            (2, 384)
        """
        asked = EmbeddingRequest(**options)
        encoders = Encoders.of(self, asked.pooling)
        reader = encoders.reader(Reading(truncate=asked.truncate))
        items, single = _items(texts)
        read = [reader.read(item, asked.task, asked.prompt) for item in items]
        rows = [each.cpu().numpy() for each in encoders.embeddings(read, asked.on_progress)]
        if encoders.main.spec.is_late:
            return rows[0] if single else rows
        return rows[0][0] if single else np.concatenate(rows)

    @overload
    def similarity(
        self, first: TextOrImage, second: TextOrImage, **options: Unpack[SimilarityOptions]
    ) -> Similarity: ...
    @overload
    def similarity(
        self, first: TextOrImage, second: list[TextOrImage] | list[str], **options: Unpack[SimilarityOptions]
    ) -> list[Similarity]: ...

    @with_keywords(SimilarityOptions, SimilarityRequest)
    def similarity(
        self, first: TextOrImage, second: TextOrImage | Sequence[TextOrImage], **options: Unpack[SimilarityOptions]
    ) -> Similarity | list[Similarity]:
        """Why two texts are similar: a table of pairs of tokens that adds up, exactly, to the similarity of the model.

        Args:
            first: a text, such as a query. For a model of images and texts (CLIP, SigLIP), also an image: a path, a PIL
                image, an array, or its `pixel_values`; its tokens are its patches.
            second: another, or a list, such as passages; what belongs to the first is computed once.

        Keyword Args:
            pooling: as in `embed`.
            measure: `"cosine"` or `"dot"`; by default what the files next to the model say, and otherwise the cosine.
            retrieval: the first text is a query and the second a document: each gets the prompt and the length that the
                model has for it. Late interaction is always a retrieval.
            first_prompt: an instruction before the first text, instead of the model's own. Its tokens are marked.
            second_prompt: the same for the second text.
            table: whether to compute the table. Without it, only the shares of the tokens of both texts (`first`, `second`)
                are known, at the cost of about four forward passes.
            truncate: cut texts that are longer than the model takes, instead of refusing them.
            dtype: arithmetic of the decomposition (default float32, or float64 for a float64 model).
            on_progress: callback, called with the number of texts that are done and of all; may raise, to cancel.

        Returns:
            A `Similarity`, or a list of them for a list.

        Raises:
            CompletenessError: if table, margins and constant do not add up to the model's own similarity, or if a component
                of the model does not do what its description says.

        Examples:
            >>> similarity = analyzer.similarity("A man plays a guitar.", "Someone makes music with a guitar.")
            >>> similarity.table.shape  # [first, second]
            (8, 9)
            >>> [f"{each.value:.2f}" for each in analyzer.similarity("Who sang?", ["A singer sang.", "It rains."])]
            ['0.75', '0.19']
        """
        asked = SimilarityRequest(**options)
        comparison, reader, (role, other_role) = self._comparison(asked)
        texts, single = _items(second)
        query = reader.read(first, role, asked.first_prompt)
        others = [reader.read(text, other_role, asked.second_prompt) for text in texts]
        found = [Similarity(each) for each in comparison.datasets(query, others, asked.on_progress)]
        return found[0] if single else found

    @with_keywords(SimilarityOptions, SimilarityRequest)
    def search(
        self, query: TextOrImage, passages: Iterable[TextOrImage], *, top: int = 5, **options: Unpack[SimilarityOptions]
    ) -> list[Similarity]:
        """The passages that the model finds most similar to a query, best first, and why.

        Args:
            query: a text or an image.
            passages: texts or images, also from a generator: they are embedded in batches, and only the best are kept.
            top: how many are explained.

        The options are those of `similarity`. The attribute `passage` of a result is its index among the passages, from 0.

        Examples:
            >>> passages = ["It rains in Bergen.", "The orchestra tunes its violins.", "Stocks fell on Monday."]
            >>> (best,) = analyzer.search("music", passages, top=1)
            >>> best.texts[1], best.attrs["passage"]
            ('The orchestra tunes its violins.', 1)
        """
        count = whole_number(top, "The number of passages (top)")
        if count < 1:
            raise InputError(f"At least one passage is looked for, not {count} (top).")
        asked = SimilarityRequest(**options)
        comparison, reader, (role, _) = self._comparison(asked)
        read = reader.read(query, role, asked.first_prompt)
        found = best_passages(comparison, reader, read, passages, count, asked.second_prompt, asked.on_progress)
        datasets = comparison.datasets(read, [hit.text for hit in found])
        return [
            Similarity(dataset.assign_attrs(rank=rank, passage=hit.place))
            for rank, (hit, dataset) in enumerate(zip(found, datasets, strict=True), 1)
        ]

    def _comparison(self, asked: SimilarityRequest) -> tuple[Comparison, InputReader, tuple[Task | None, Task | None]]:
        """How texts are compared and read, and what the first and the second are."""
        check_arithmetic(asked.dtype)
        encoders = Encoders.of(self, asked.pooling)
        spec = encoders.main.spec
        measure = checked_measure(spec, asked.measure, self.name)
        roles: tuple[Task | None, Task | None] = (None, None)
        if asked.retrieval or spec.is_late:
            roles = ("query", "document")
        comparison = Comparison(self, encoders, measure, asked.table, asked.dtype)
        return comparison, encoders.reader(Reading(truncate=asked.truncate)), roles

    @renamed_keywords(words="pretokenized", target="decoder_text")
    @with_keywords(EstimateOptions, EstimateRequest)
    def estimate(
        self,
        inputs: AnyInput | int | Sequence[int],
        *,
        decoder_text: Input | int | Sequence[int] | None = None,
        pretokenized: bool = False,
        **options: Unpack[EstimateOptions],
    ) -> Estimate:
        """What `analyze` (or, without `maps`, `mixing_ratios`) would take: operations, memory and time, before it starts.

        Args:
            inputs: texts or images as in `analyze`, or a number of tokens, or a list of such numbers.
            decoder_text: for an encoder-decoder model, the texts or numbers of tokens that the decoder reads; without
                it, as many as its source has. What the model would generate is not known in advance.

        Keyword Args:
            maps: whether to estimate `analyze`, or else `mixing_ratios`.
            approximate: as in `analyze`. With `"fast"` the estimate is the most that its search takes.
            products: as in `analyze`. They change the time that is measured, not the operations that are counted.
            timed: measure this machine for about a second, to know the time. A model on the meta device has none.
            clock: returns the time in seconds, such as `time.process_time` on a busy machine.

        The other arguments are those of `analyze`.

        Examples:
            >>> estimate = analyzer.estimate(512, scopes="AttnResLn", timed=False)
            >>> print(estimate)
            512 tokens: 19.6 Gflop, 111 MB of memory, 6.3 MB of results
        """
        asked = EstimateRequest(**options)
        rows = planned.counted_queries(asked.queries)
        asked = replace(asked, queries=rows)
        if asked.maps:
            request = resolve.map_request(self, layer_method(schema.NORMS), resolve.wanted_of(asked), asked)
        else:
            own, _ = resolve.scopes_asked(self, asked.scopes)
            measure = Decomposition(ratios=tuple(own))
            request = resolve.request(self, [measure], [], asked.layers, rows, asked.dtype)
        lengths = planned.lengths(self, inputs, decoder_text, Reading(pretokenized, asked.truncate))
        short_run = planned.short_analysis(self, request) if asked.timed else None
        return plan(self, asked_of(self, request), lengths, short_run=short_run, clock=asked.clock)

    @renamed_keywords(words="pretokenized", target="decoder_text")
    def estimate_explanation(
        self,
        inputs: AnyInput | int | Sequence[int],
        *,
        decoder_text: Input | int | Sequence[int] | None = None,
        values: int = 1,
        heads: bool = False,
        pretokenized: bool = False,
        truncate: bool = False,
        dtype: torch.dtype | None = None,
        timed: bool = True,
        clock: Clock = time.perf_counter,
    ) -> Estimate:
        """What `explain` by its pull-back would take: operations, memory and time, before it starts.

        Args:
            inputs: as in `estimate`.
            decoder_text: for an encoder-decoder model, as in `estimate`.
            values: how many values are explained: the tokens of a continuation, or 1.

        The other arguments are those of `estimate`.

        Examples:
            >>> print(analyzer.estimate_explanation(512, timed=False))
            512 tokens: 26.7 Gflop, 154 MB of memory, 6.29 MB of results
        """
        count = whole_number(values, "The number of values that are explained (values)")
        if count < 1:
            raise InputError(f"At least one value is explained, not {count}.")
        check_arithmetic(dtype)
        lengths = planned.lengths(self, inputs, decoder_text, Reading(pretokenized, truncate))
        long = not heads and min(max(each) for each in lengths) >= LONG
        streamed = long and can_stream(self)
        stacks = explained_of(self, count, dtype, heads=heads, head=True, edges=not long, streamed=streamed)
        short_run = planned.short_explanation(self, self.explain, dtype, heads=heads) if timed else None
        return plan(self, stacks, lengths, short_run=short_run, clock=clock)

    def estimate_answer(
        self,
        tokens: int,
        *,
        values: int = 1,
        dtype: torch.dtype | None = None,
        timed: bool = True,
        clock: Clock = time.perf_counter,
    ) -> Estimate:
        """What `explain_answer` would take for a prompt and an answer of this many tokens together, after it was generated.

        Args:
            tokens: how many tokens the model reads.
            values: 1 for the answer as a whole or a part of it, or the number of its tokens for the table.

        The other arguments are those of `estimate`.

        Examples:
            >>> print(analyzer.estimate_answer(512, timed=False))
            512 tokens: 26.7 Gflop, 146 MB of memory, 2.05 kB of results
        """
        count = whole_number(values, "The number of values that are explained (values)")
        length = whole_number(tokens, "The number of tokens")
        if count < 1 or length < 1:
            raise InputError(f"At least one value of at least one token is explained, not {count} of {length}.")
        check_arithmetic(dtype)
        streamed = length >= LONG and can_stream(self)
        stacks = explained_of(self, count, dtype, heads=False, head=True, edges=False, streamed=streamed)
        sizes = [Length(length)] if self.family.encoder is None else [Length(1, length)]
        short_run = planned.short_explanation(self, self.explain, dtype, heads=False) if timed else None
        return plan(self, stacks, sizes, short_run=short_run, clock=clock)

    @renamed_keywords(target="decoder_text")
    def traces(
        self,
        inputs: AnyInput,
        *,
        decoder_text: DecoderText | None = None,
    ) -> list[LayerTrace]:
        """The trace of every layer of the main stack for one input: what `decompose` and the `oracle` compute with.

        Examples:
            >>> len(analyzer.traces("A text."))  # one for each layer
            6
        """
        sequences, _ = resolve.read(self, inputs, decoder_text)
        measure = KeptTraces()
        (measured,) = Pass(self, resolve.request(self, [measure], [], None, None, None)).over(sequences)
        return list(measured.main[measure].values())

    if not TYPE_CHECKING:  # a type checker should not take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """The methods of version 0.2 that are functions now."""
            if name not in _MOVED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            module, function = _MOVED[name]
            warn_renamed(f"Analyzer.{name}", f"normscope.{module}.{function}")
            return partial(getattr(import_module(f"normscope.{module}"), function), self)


_MOVED = {
    "analysis_of": ("results.from_pass", "analysis_of"),
    "maps_by": ("methods.across_layers", "maps_by"),
    "measure": ("methods.resolve", "measure_layers"),
}
"""What only experiments use, by its old name: the module and the function, which takes the model first."""


def _items(given: object) -> tuple[list[object], bool]:
    """The texts and images of a list, which is not empty, or the only one, and whether it is a single one."""
    if isinstance(given, str) or is_image(given):
        return [given], True
    if not isinstance(given, Sequence):
        raise InputError(f"Expected a text or a list of texts, not a {type(given).__name__} ({given!r:.60}).")
    if not given:
        raise InputError("The list of texts is empty. Give at least one.")
    return list(cast("Sequence[Any]", given)), False
