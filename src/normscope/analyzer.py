"""The analyzer: a model ready to be analysed, and the one way from inputs to results.

Resolves what was asked for against what the model has; `passes` does the work and `Analysis` holds the answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, cast, overload

import torch
import xarray as xr
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from normscope.answering import explain_answer
from normscope.capture import LONG
from normscope.chain.baseline import BiasBaseline, baseline
from normscope.chain.trace import LayerTrace
from normscope.deprecated import renamed_keywords
from normscope.errors import InputError
from normscope.estimate import Clock, Estimate
from normscope.estimate import request as planned
from normscope.estimate.estimate import Length
from normscope.estimate.planning import asked_of, explained_of, lengths_of, plan, refuse_memory
from normscope.explain.parse import checked, read_question
from normscope.explain.pulling import PullRequest
from normscope.explain.question import Wanted
from normscope.explain.task import Asked
from normscope.families.spec import Stack
from normscope.inputs import ImageInput, Input, Target, TokenSequence
from normscope.measures import Decomposition, KeptTraces, Measure
from normscope.measures.request import check_arithmetic
from normscope.methods import LayerMethod, attribution, layer_method, resolve
from normscope.methods.across import AcrossLayers
from normscope.methods.maps import maps_by
from normscope.methods.prediction import Attribution
from normscope.models.loading import load_model, sketched_model
from normscope.models.model import Model
from normscope.models.options import DeviceMap, ModelOptions
from normscope.options import (
    FeedForwardBaseline,
    StackName,
    ValueBias,
    ff_baseline_of,
    stack_name,
    value_bias_of,
    whole_number,
    with_keywords,
)
from normscope.passes import Measured, Pass, Tell
from normscope.request import (
    AnalysisOptions,
    AnalysisRequest,
    AnswerOptions,
    AnswerRequest,
    EstimateOptions,
    EstimateRequest,
    ExplainOptions,
    ExplainRequest,
    MixingOptions,
    MixingRequest,
    Text,
)
from normscope.results import from_pass as results
from normscope.results import schema
from normscope.results import zarr as streaming
from normscope.results.analysis import Analysis
from normscope.results.answer import Answer
from normscope.results.explanation import Explanation


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
) -> Analyzer:
    """Load a model to analyse: a hub name, a local folder, a live model, or (by default) the embedded one.

    Args:
        model: what to load. A live model is used as it is and is left exactly as it was after every analysis.
        tokenizer: the tokenizer, or where to load it from; by default the one beside the model. Optional: token ids
            work without one.
        dtype: dtype to load the weights in (default: that of the checkpoint). `torch.float64` gives an analysis to
            1e-12; bf16 and fp16 weights are analysed in float32 arithmetic.
        device: where to put the model.
        device_map: instead, spread a model that is too large for one device over all there are: `"auto"`, `"balanced"`,
            `"sequential"`, or a dict from the names of modules to devices. Needs the extra `accelerate`.
        revision: the hub revision to load.
        allow_pickle: load a pickle checkpoint (`pytorch_model.bin`). Unpickling can run any code: only if you trust it.
        trust_remote_code: run model code from the repository. Only if you trust it.

    Examples:
        >>> import normscope as ns
        >>> analyzer = ns.load()
        >>> len(analyzer.layers), analyzer.scopes[-1]
        (6, 'AttnResLnFfResLn')
    """
    return Analyzer.of(
        load_model(
            model,
            tokenizer,
            dtype=dtype,
            device=device,
            device_map=device_map,
            revision=revision,
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
    )


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
        return load(
            options.model,
            tokenizer=options.tokenizer,
            dtype=_dtype(options),
            device=options.device,
            device_map=options.device_map,
            revision=options.revision,
            allow_pickle=options.allow_pickle,
            trust_remote_code=options.trust_remote_code,
        )

    @classmethod
    def without_weights(cls, options: ModelOptions) -> Analyzer:
        """The analyzer of the model that options describe, on the meta device: no weight is read, for estimates only.

        Examples:
            >>> from normscope.models.options import ModelOptions
            >>> ns.Analyzer.without_weights(ModelOptions()).model.device
            device(type='meta')
        """
        options.refuse_unusable()
        if options.is_live or not isinstance(options.tokenizer, str | Path | None):
            raise InputError("A live model has its weights: estimate it as it is.")
        return cls.of(
            sketched_model(
                cast("str | Path | None", options.model),
                options.tokenizer,
                dtype=_dtype(options),
                revision=options.revision,
                trust_remote_code=options.trust_remote_code,
            )
        )

    @property
    def model(self) -> PreTrainedModel:
        """The model itself, as transformers has it."""
        return self.module

    def of_stack(self, stack: StackName) -> Analyzer:
        """The model with one of its two stacks as what is analysed. The encoder reads its text alone, without a target.

        Examples:
            >>> from transformers import BartConfig, BartModel
            >>> bart = ns.load(BartModel(BartConfig(vocab_size=40, d_model=16)))
            >>> bart.of_stack("encoder").scopes == bart.encoder_scopes
            True
        """
        if self.family.encoder is None:
            raise InputError(f"{self.name} has no encoder and decoder, but one stack: leave out stack (--stack).")
        return self._of_encoder if stack_name(stack) == "encoder" else self

    @cached_property
    def _of_encoder(self) -> Analyzer:
        return replace(self, family=replace(self.family, stack=cast(Stack, self.family.encoder), encoder=None))

    # ---- analyses ------------------------------------------------------------------------------------------------------

    @overload
    def analyze(self, inputs: Text, **options: Unpack[AnalysisOptions]) -> Analysis: ...
    @overload
    def analyze(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[AnalysisOptions]
    ) -> list[Analysis]: ...
    @overload
    def analyze(
        self, inputs: Input | ImageInput, *, pretokenized: bool = ..., **options: Unpack[AnalysisOptions]
    ) -> Analysis | list[Analysis]: ...

    @renamed_keywords(tell="on_progress", words="pretokenized")
    @with_keywords(AnalysisOptions, AnalysisRequest)
    def analyze(
        self, inputs: Input | ImageInput, *, pretokenized: bool = False, **options: Unpack[AnalysisOptions]
    ) -> Analysis | list[Analysis]:
        """Attribution maps of one input, or of each of a list.

        Args:
            inputs: a text, a pair of texts, a list of these, a `BatchEncoding`, or token ids. One input (also an
                encoding of one sequence) gives an `Analysis`; a list gives a list, batched inside, with exactly what
                each gives alone. For a vision model, an image: a path, a PIL image, an array, or its `pixel_values`.
            pretokenized: the inputs are lists of words.

        Keyword Args:
            target: for an encoder-decoder model, the text (or texts, or token ids) that the decoder gives out; without it
                the model generates one. The decoder reads the start token and all of it, but for an end token that closes
                it. The result is the decoder's analysis, with the encoder's as `.encoder`.
            scopes: the scopes to compute (default all). The chain is followed only as far as they need.
            layers: the layers to compute, from 1 (default all). The forward pass ends after the last of them.
            queries: the positions of the rows to compute, negative from the end (default all).
            heads: also keep the maps of each head (`AttnW`, `Attn`; of projections at every scope).
            method: what the maps measure: `"norms"` of parts, or one of `normscope.available_methods("layer maps")`, by name
                or, with options other than its defaults, as `normscope.methods.method(name, ...)` gives it.
            projections: beside the norms, also the projections, for `Analysis.map(..., quantity="projection")`.
            approximate: compute the maps from the feed-forward on approximately, and measure their error on sampled queries:
                `"slopes"`, `"sketch"`, `"both"`, `"patterns"`, an `Approximation` of your own, or `"fast"`, the cheapest
                with a rank correlation of at least 0.999 in every layer, exact where there is none. The result says what it
                reached.
            products: multiply the parts with the feed-forward's second matrix in `"tf32"` or `"bf16"`, on devices that are
                faster in it. The result says so as for approximate maps, and its parts have to add up less exactly.
            truncate: cut inputs that are longer than the model takes, instead of refusing them.
            value_bias: count the value projection's bias with the `"token"` (as the papers do) or with the `"bias"`.
            ff_baseline: where the integrated gradients of feed-forwards start: at `"zero"` (as in the papers), or at the
                `"bias"`, what enters an activation without any token.
            dtype: arithmetic of the decomposition (default float32, or float64 for a float64 model).
            progress: show a progress bar (default: for long lists in a terminal).
            on_progress: callback, called with the layers done and their number before each layer of each input; may raise,
                to cancel.
            max_memory: bytes that the analysis may take in addition to the model. What would take more, as `estimate`
                counts it, is refused before it starts. With `out` it is not looked at.
            out: a Zarr folder (`"maps.zarr"`, needs the extra `zarr`) that the norm maps of one input are written to layer
                by layer, instead of being kept in memory. It opens as any other result, reading what is looked at.

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
        method, value_bias = layer_method(asked.method), value_bias_of(asked.value_bias)
        sequences, single = resolve.read(self, inputs, asked.target, words=pretokenized, truncate=asked.truncate)
        wanted = resolve.wanted_of(
            asked, projections=asked.projections, value_bias=value_bias, ff_baseline=asked.ff_baseline
        )
        request = resolve.map_request(self, method, wanted, asked)
        facts = {**self.facts, "value_bias": value_bias, "ff_baseline": asked.ff_baseline, **method.facts}
        if asked.out is not None:
            return streaming.analysis(Pass(self, request), sequences, facts, asked.out, asked.on_progress)
        if asked.max_memory is not None:
            refuse_memory(self, request, lengths_of(sequences), asked.max_memory)
        if method.across_layers:
            run = AcrossLayers(self, method, request, asked.ff_baseline)
            layers = resolve.layers_asked(self, asked.layers)
            analyses = run.analyses(sequences, layers, asked.queries, asked.on_progress)
        else:
            measured = Pass(self, request).over(sequences, progress=asked.progress, tell=asked.on_progress)
            analyses = [results.analysis(item, facts) for item in measured]
        return analyses[0] if single else analyses

    def maps_by(
        self,
        sequence: TokenSequence,
        method: LayerMethod,
        scopes: Sequence[str] | None = None,
        dtype: torch.dtype | None = None,
        tell: Tell | None = None,
    ) -> Analysis:
        """The maps of all layers by a method, for a sequence that is ready for the model.

        Examples:
            >>> from normscope.inputs import read_inputs
            >>> sequences, _ = read_inputs("A text.", analyzer.tokenizer, analyzer.longest, words=False, truncate=False)
            >>> analyzer.maps_by(sequences[0], ns.method("alti")).map("AttnResLn").shape  # [layer, query, key]
            (6, 5, 5)
        """
        return maps_by(self, sequence, method, scopes, dtype, tell)

    @overload
    def mixing_ratios(self, inputs: Text, **options: Unpack[MixingOptions]) -> xr.DataArray: ...
    @overload
    def mixing_ratios(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[MixingOptions]
    ) -> list[xr.DataArray]: ...
    @overload
    def mixing_ratios(
        self, inputs: Input | ImageInput, *, pretokenized: bool = ..., **options: Unpack[MixingOptions]
    ) -> xr.DataArray | list[xr.DataArray]: ...

    @renamed_keywords(tell="on_progress", words="pretokenized")
    @with_keywords(MixingOptions, MixingRequest)
    def mixing_ratios(
        self, inputs: Input | ImageInput, *, pretokenized: bool = False, **options: Unpack[MixingOptions]
    ) -> xr.DataArray | list[xr.DataArray]:
        """Mixing ratios `[scope, layer, query]` without any map, for about the price of a few forward passes.

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
        start = baseline(asked.ff_baseline, value_bias)
        request = resolve.request(self, [measure], [], asked.layers, None, asked.dtype, start)
        sequences, single = resolve.read(self, inputs, asked.target, words=pretokenized, truncate=asked.truncate)
        measured = Pass(self, request).over(sequences, progress=asked.progress, tell=asked.on_progress)
        facts = {**self.facts, "value_bias": value_bias, "ff_baseline": asked.ff_baseline}
        ratios = [results.mixing_ratios(item, facts) for item in measured]
        return ratios[0] if single else ratios

    @overload
    def explain(self, inputs: Text, **options: Unpack[ExplainOptions]) -> Explanation: ...
    @overload
    def explain(
        self, inputs: list[str] | list[tuple[str, str]], **options: Unpack[ExplainOptions]
    ) -> list[Explanation]: ...
    @overload
    def explain(
        self, inputs: Input | ImageInput, *, pretokenized: bool = ..., **options: Unpack[ExplainOptions]
    ) -> Explanation | list[Explanation]: ...

    @renamed_keywords(tell="on_progress", words="pretokenized")
    @with_keywords(ExplainOptions, ExplainRequest)
    def explain(
        self, inputs: Input | ImageInput, *, pretokenized: bool = False, **options: Unpack[ExplainOptions]
    ) -> Explanation | list[Explanation]:
        """What made the model say this: the attribution of a logit to the input tokens, exactly, through all layers.

        Args:
            inputs: as in `analyze`; each input of a list is explained by itself.
            pretokenized: the inputs are lists of words.

        Keyword Args:
            target: what to explain. A causal model: the word (or the whole continuation, token by token) that follows; a
                masked model: the word at the mask; a classifier: a label; an encoder-decoder: the text that it gives out,
                each token at its own row. By default what the model itself predicts. A token id or a list of them (just
                these are explained), or the number of a label, work too.
            against: another word or label: the difference of the two logits is explained. Of words of several tokens, the
                first token in which they differ.
            at: the position of the token whose prediction is explained (causal: the next token after it), negative from
                the end. By default the last, the mask, or the only one.
            continue_for: instead of a target, let a causal model continue the text by at most so many tokens, always the
                most probable one whatever its settings of generation say, and explain each.
            direction: instead of a logit, the last state of the token `at` along a vector `[d]` of your own (of torch, numpy
                or plain numbers), or along the `"state"` itself. Needs no head. Of an encoder-decoder, `target` is then the
                text that the decoder reads.
            reply: of an encoder-decoder, the text that its decoder reads, or the token ids, just as they are after the
                start token. The target is then a word, or a token id, that could follow the token `at`, as of causal models.
            objective: the `"logit"`, or the `"centred"` logit: what it is above the mean of all logits of its row, weighted
                by their probabilities, which are constants. What raises all logits alike is left out. With `against`, which
                makes it a `"contrast"`, the two are the same.
            method: how to attribute, by name (`normscope methods` lists them) or with options (`normscope.method`). Only
                the pull-back follows what flows through the layers, adds up exactly, and takes the next two arguments.
            heads: also keep the edges of every head, `[layer, head, query, key]`.
            ff_baseline: as in `analyze`, for the pull-back and DecompX. What belongs to no token is here all that is not
                linear in the states that enter a layer.
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
        """
        asked = ExplainRequest(**options)
        check_arithmetic(asked.dtype)
        method = attribution(asked.method)
        if asked.heads and not method.follows:
            raise InputError(
                f"The method {method.facts['method']!r} does not follow single heads: leave out heads, or use "
                f"'pull-back'."
            )
        if ff_baseline_of(asked.ff_baseline) != "zero" and not method.through_slopes:
            raise InputError(
                f"The method {method.facts['method']!r} has no baseline of feed-forwards: leave out ff_baseline, or use "
                f"'pull-back' or 'decompx'."
            )
        said = (asked.target, asked.against, asked.at, asked.continue_for, asked.direction, asked.reply)
        wanted = checked(*said, asked.objective)
        sequences, single = resolve.read_sources(self, inputs, words=pretokenized, truncate=asked.truncate)
        request = PullRequest(asked.heads, asked.dtype, asked.max_memory, asked.on_progress, asked.ff_baseline)
        explanations = [self._explain(item, wanted, method, request) for item in sequences]
        return explanations[0] if single else explanations

    def _explain(
        self, sequence: TokenSequence, wanted: Wanted, method: Attribution, request: PullRequest
    ) -> Explanation:
        sequence, question = read_question(self, sequence, wanted)
        resolve.refuse_unknown_ids(self, sequence)
        return Explanation.from_tree(method.explain(Asked(self, sequence, question, request)))

    @with_keywords(AnswerOptions, AnswerRequest)
    def explain_answer(self, **options: Unpack[AnswerOptions]) -> Answer:
        """Which sentence, document or turn an answer came from: exactly, for an answer of any length in one pass back.

        The model answers a question about a context, or the last message of a chat; or the answer is given. Its value is the
        sum of the `objective` over its tokens. What every token that the model read puts into it adds up, with the biases,
        to the value, and so do sentences and documents. Attention weights, deviations of norms and slopes of activations are
        those of the pass: how they came about is not part of the explanation.

        Keyword Args:
            context: a document, a list of them, or documents by name.
            question: what is asked about it.
            messages: instead, the turns of a chat, each with a `role` and a `content`. If the last is the assistant's, it is
                the answer that is explained.
            answer: explain this answer (a text, or token ids as they are), instead of what the model answers.
            objective: what is explained of every token: its `"centred"` logit (default), which is above the mean of all
                logits, weighted by their probabilities, or its `"logit"`. With `against` it is a `"contrast"`.
            against: another answer: the first token in which the two differ is explained, by the difference of logits.
            max_new_tokens: the most tokens that the model may answer with.
            seed: generate by the model's own settings of generation, with this seed. By default the most probable token is
                taken at each step.
            stop: a text that ends the answer. By default the end of the line, where there is no chat template.
            layout: how documents and question make up the prompt (or the message to a chat model): a text with `{context}`
                and `{question}` in it.
            chat: use the tokenizer's chat template, or not. By default if it has one.
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

    @renamed_keywords(words="pretokenized")
    @with_keywords(EstimateOptions, EstimateRequest)
    def estimate(
        self,
        inputs: Input | ImageInput | int | Sequence[int],
        *,
        target: Input | int | Sequence[int] | None = None,
        pretokenized: bool = False,
        **options: Unpack[EstimateOptions],
    ) -> Estimate:
        """What `analyze` (or, without `maps`, `mixing_ratios`) would take: operations, memory and time, before it starts.

        Args:
            inputs: texts or images as in `analyze`, or a number of tokens, or a list of such numbers.
            target: for an encoder-decoder model, the texts or numbers of tokens that the decoder reads; without it, as
                many as its source has. What the model would generate is not known in advance.

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
            512 tokens: 21.1 Gflop, 111 MB of memory, 6.3 MB of results
        """
        asked = EstimateRequest(**options)
        if asked.maps:
            request = resolve.map_request(self, layer_method(schema.NORMS), resolve.wanted_of(asked), asked)
        else:
            own, _ = resolve.scopes_asked(self, asked.scopes)
            measure = Decomposition(ratios=tuple(own))
            request = resolve.request(self, [measure], [], asked.layers, asked.queries, asked.dtype)
        lengths = planned.lengths(self, inputs, target, words=pretokenized, truncate=asked.truncate)
        short_run = planned.short_analysis(self, request) if asked.timed else None
        return plan(self, asked_of(self, request), lengths, short_run=short_run, clock=asked.clock)

    @renamed_keywords(words="pretokenized")
    def estimate_explanation(
        self,
        inputs: Input | ImageInput | int | Sequence[int],
        *,
        target: Input | int | Sequence[int] | None = None,
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
            target: of an encoder-decoder model, as in `estimate`.
            values: how many values are explained: the tokens of a continuation, or 1.

        The other arguments are those of `estimate`.

        Examples:
            >>> print(analyzer.estimate_explanation(512, timed=False))
            512 tokens: 35.1 Gflop, 154 MB of memory, 6.29 MB of results
        """
        count = whole_number(values, "The number of values that are explained (values)")
        if count < 1:
            raise InputError(f"At least one value is explained, not {count}.")
        check_arithmetic(dtype)
        stacks = explained_of(self, count, dtype, heads=heads, head=True)
        lengths = planned.lengths(self, inputs, target, words=pretokenized, truncate=truncate)
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
            512 tokens: 35.1 Gflop, 146 MB of memory, 2.05 kB of results
        """
        count = whole_number(values, "The number of values that are explained (values)")
        length = whole_number(tokens, "The number of tokens")
        if count < 1 or length < 1:
            raise InputError(f"At least one value of at least one token is explained, not {count} of {length}.")
        check_arithmetic(dtype)
        streamed = length >= LONG and self.family.encoder is None
        stacks = explained_of(self, count, dtype, heads=False, head=True, edges=False, streamed=streamed)
        sizes = [Length(length)] if self.family.encoder is None else [Length(1, length)]
        short_run = planned.short_explanation(self, self.explain, dtype, heads=False) if timed else None
        return plan(self, stacks, sizes, short_run=short_run, clock=clock)

    def traces(self, inputs: Input | ImageInput, *, target: Target | None = None) -> list[LayerTrace]:
        """The trace of every layer of the main stack for one input: what `decompose` and the `oracle` compute with.

        Examples:
            >>> len(analyzer.traces("A text."))  # one for each layer
            6
        """
        sequences, _ = resolve.read(self, inputs, target, words=False, truncate=False)
        measure = KeptTraces()
        (measured,) = Pass(self, resolve.request(self, [measure], [], None, None, None)).over(sequences)
        return list(measured.main[measure].values())

    def measure(
        self,
        sequences: Sequence[TokenSequence],
        measures: Sequence[Measure[Any, Any]],
        *,
        dtype: torch.dtype | None = None,
        start: BiasBaseline | None = None,
        tell: Tell | None = None,
    ) -> list[Measured]:
        """Any measures of all layers of the main stack, for sequences that are ready for the model.

        Examples:
            >>> from normscope.inputs import read_inputs
            >>> from normscope.measures import Decomposition
            >>> sequences, _ = read_inputs("A text.", analyzer.tokenizer, analyzer.longest, words=False, truncate=False)
            >>> ratios = Decomposition(ratios=(analyzer.scopes[2],))
            >>> (measured,) = analyzer.measure(sequences, [ratios])
            >>> sorted(measured.main[ratios]) == analyzer.layers
            True
        """
        return Pass(self, resolve.request(self, measures, [], None, None, dtype, start)).over(
            sequences, progress=False, tell=tell
        )

    def analysis_of(
        self,
        measured: Measured,
        *,
        value_bias: ValueBias = "token",
        ff_baseline: FeedForwardBaseline = "zero",
        method: LayerMethod | None = None,
    ) -> Analysis:
        """The analysis that the results of a pass make up.

        Examples:
            >>> from normscope.inputs import read_inputs
            >>> from normscope.measures import Decomposition
            >>> sequences, _ = read_inputs("A text.", analyzer.tokenizer, analyzer.longest, words=False, truncate=False)
            >>> (measured,) = analyzer.measure(sequences, [Decomposition(maps=(analyzer.scopes[1],))])
            >>> analyzer.analysis_of(measured).map("Attn").shape  # [layer, query, key]
            (6, 5, 5)
        """
        facts = None if method is None else method.facts
        return results.analysis_of(self, measured, value_bias=value_bias, ff_baseline=ff_baseline, method=facts)


def _dtype(options: ModelOptions) -> torch.dtype | None:
    return getattr(torch, options.dtype) if isinstance(options.dtype, str) else options.dtype
