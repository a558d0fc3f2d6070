"""What the descriptions of heads have in common: a table of heads, and the parts that several of them share."""

from __future__ import annotations

from collections.abc import Callable

from normscope.families.heads.spec import (
    ActivationPart,
    DescribedHead,
    Head,
    HeadPart,
    LastPosition,
    LastToken,
    LinearPart,
    LinearRows,
    NamedActivationPart,
    ScalePart,
    SoftCapPart,
    Task,
    TokenAt,
)
from normscope.families.llama import OLMO_EPSILON
from normscope.families.spec import (
    Config,
    FixedLayerNormPart,
    LayerNormPart,
    RmsNormPart,
    UnitLayerNormPart,
    UnitRmsNormPart,
)

Parts = tuple[HeadPart, ...]
Table = dict[str, DescribedHead]

FIRST: Parts = (TokenAt(),)
LM_HEAD = LinearPart("lm_head")
CLASSIFIER = LinearPart("classifier")
RMS: Parts = (RmsNormPart("base_model.norm"),)
MODERN: Parts = (LayerNormPart("base_model.final_norm"),)


def activated(linear: str, activation: str) -> Parts:
    """A linear layer and the activation that the model holds."""
    return (LinearPart(linear), ActivationPart(linear, activation))


def named(linear: str, name: str) -> Parts:
    """A linear layer and an activation that the model calls by name."""
    return (LinearPart(linear), NamedActivationPart(linear, name))


def answers(*parts: HeadPart) -> Head:
    return Head("question-answering", parts, ("start_logits", "end_logits"), ("start", "end"))


def choices(*parts: HeadPart) -> Head:
    return Head("multiple-choice", parts, labels=("choice",))


def for_each(prefixes: str, *tables: Table) -> Table:
    """The heads of several classes: every prefix with every task."""
    return {f"{prefix}{task}": head for prefix in prefixes.split() for table in tables for task, head in table.items()}


def modern_head(name: str) -> Parts:
    """ModernBERT's dense layer, activation and norm."""
    return (*activated(f"{name}.dense", f"{name}.act"), LayerNormPart(f"{name}.norm"))


# ---- The task heads of causal decoders, by the names of their classes in transformers.
#
# | trap | where | |---|---| | the token that is classified is found by the padding id, not by the mask | all
# classifiers | | the logits are scaled: multiplied; divided | Cohere; Granite | | the logits are capped by a
# hyperbolic tangent | Gemma 2; Gemma 3, but not inside its multimodal model | | the last norm has neither weight nor
# bias, and does not tell its epsilon | OLMo | | the last norm and a projection after it depend on the configuration |
# OPT |


def _lm(*parts: HeadPart) -> Table:
    return {"ForCausalLM": Head("causal-lm", parts)}


def _decoder_tasks(last: Parts, *, tokens: str = "score") -> Table:
    """Classifiers and question answering on top of a causal decoder that ends in `last`."""
    return {
        "ForSequenceClassification": Head("sequence-classification", (*last, LinearPart("score"), LastToken())),
        "ForTokenClassification": Head("token-classification", (*last, LinearPart(tokens))),
        "ForQuestionAnswering": answers(*last, LinearPart("qa_outputs")),
    }


_UNIT_RMS: Parts = (UnitRmsNormPart("base_model.norm"),)
_UNIT_NORM: Parts = (UnitLayerNormPart("base_model.norm"),)
_NORM_F: Parts = (LayerNormPart("base_model.norm_f"),)
_CTRL: Parts = (LayerNormPart("base_model.layernorm"),)
_NORM: Parts = (LayerNormPart("base_model.norm"),)
_LN_F: Parts = (LayerNormPart("base_model.ln_f"),)
_NEOX: Parts = (LayerNormPart("base_model.final_layer_norm"),)
_PHI: Parts = (LayerNormPart("base_model.final_layernorm"),)
_LAYER_NORM: Parts = (LayerNormPart("base_model.layer_norm"),)
_OLMO: Parts = (FixedLayerNormPart("base_model.norm", OLMO_EPSILON),)
_INSIDE: Parts = (UnitRmsNormPart("base_model.language_model.norm"),)


def _shieldgemma2(config: Config) -> Head:
    rows = getattr(config, "yes_token_index", 10_784), getattr(config, "no_token_index", 3771)
    norm = UnitRmsNormPart("base_model.model.language_model.norm")
    parts = (norm, LastPosition(), LinearRows("base_model.lm_head", rows))
    return Head("sequence-classification", parts, labels=("Yes", "No"))


def _capped(config: Config) -> Head:
    cap = config.final_logit_softcapping
    return Head("causal-lm", (*_UNIT_RMS, LM_HEAD, *(() if cap is None else (SoftCapPart("lm_head", cap),))))


def _cohere(config: Config) -> Head:
    return Head("causal-lm", (*_NORM, LM_HEAD, ScalePart(config.logit_scale)))


def _nanochat(config: Config) -> Head:
    cap = config.final_logit_softcapping
    return Head("causal-lm", (*RMS, LM_HEAD, *(() if cap is None else (SoftCapPart("lm_head", cap),))))


def _gemma4(config: Config) -> Head:
    cap = config.get_text_config().final_logit_softcapping
    last = RmsNormPart("base_model.language_model.norm")
    return Head("causal-lm", (last, LM_HEAD, *(() if cap is None else (SoftCapPart("lm_head", cap),))))


def _recurrent_gemma(config: Config) -> Head:
    last = UnitRmsNormPart("base_model.final_norm")
    return Head("causal-lm", (last, LM_HEAD, SoftCapPart("lm_head", config.logits_soft_cap)))


def _hyperclovax(config: Config) -> Head:
    return Head("causal-lm", (*RMS, LM_HEAD, ScalePart(config.logits_scaling)))


def _minicpm3(config: Config) -> Head:
    return Head("causal-lm", (*RMS, ScalePart(1 / config.logits_scaling), LM_HEAD))


def _falcon_h1(config: Config) -> Head:
    last = RmsNormPart("base_model.final_layernorm")
    return Head("causal-lm", (last, LM_HEAD, ScalePart(config.lm_head_multiplier)))


def _granite(config: Config) -> Head:
    return Head("causal-lm", (*RMS, LM_HEAD, ScalePart(1 / config.logits_scaling)))


def _opt(task: Task, *parts: HeadPart) -> Callable[[Config], Head]:
    def described(config: Config) -> Head:
        last: list[HeadPart] = []
        if config.do_layer_norm_before and not config._remove_final_layer_norm:
            last.append(LayerNormPart("base_model.decoder.final_layer_norm"))
        if config.word_embed_proj_dim != config.hidden_size:
            last.append(LinearPart("base_model.decoder.project_out"))
        if task == "question-answering":
            return answers(*last, *parts)
        return Head(task, (*last, *parts))

    return described


DECODERS: Table = {
    **for_each(
        "Llama Mistral Qwen2 Qwen3 SmolLM3 Ministral Ministral3 Helium Cwm Ernie4_5 SeedOss HunYuanDenseV1 Phi3 Glm "
        "Glm4 Olmo2 Olmo3 Exaone4 Mixtral Olmoe Qwen2Moe Qwen3Moe MiniMaxM2 GptOss DeepseekV2 DeepseekV3 Mistral4 Dots1 "
        "Ernie4_5_Moe ExaoneMoe FlexOlmo Flint Glm4Moe Glm4MoeLite HunYuanMoEV1 HYV3 Mellum SolarOpen Youtu "
        "Phi4Multimodal Arcee Apertus MiMoV2Flash Laguna DeepseekV32 GlmMoeDsa Kolibri1 AriaText Emu3 "
        "BailingHybrid OlmoHybrid MiniMax Doge BitNet AXK1 DiffLlama",
        _lm(*RMS, LM_HEAD),
        _decoder_tasks(RMS),
    ),
    **for_each("Gemma", _lm(*_UNIT_RMS, LM_HEAD)),
    **for_each("Qwen3Next Qwen3_5 Qwen3_5Moe", _lm(*_UNIT_RMS, LM_HEAD)),
    **for_each("Qwen3Next", _decoder_tasks(_UNIT_RMS)),
    "Qwen3_5TextForSequenceClassification": _decoder_tasks(_UNIT_RMS)["ForSequenceClassification"],
    "Qwen3_5ForSequenceClassification": _decoder_tasks(_INSIDE)["ForSequenceClassification"],
    "Qwen3_5ForTokenClassification": _decoder_tasks(_INSIDE)["ForTokenClassification"],
    **for_each("Afmoe KimiLinear", _lm(*RMS, LM_HEAD)),
    "FalconH1ForCausalLM": _falcon_h1,
    **for_each("Bamba Jamba", _lm(RmsNormPart("base_model.final_layernorm"), LM_HEAD)),
    "JambaForSequenceClassification": _decoder_tasks((RmsNormPart("base_model.final_layernorm"),))[
        "ForSequenceClassification"
    ],
    **for_each("Lfm2 Lfm2Moe", _lm(RmsNormPart("base_model.embedding_norm"), LM_HEAD)),
    **for_each("Mamba Mamba2 FalconMamba NemotronH", _lm(RmsNormPart("base_model.norm_f"), LM_HEAD)),
    **for_each("Gemma2 Gemma3 VaultGemma", {"ForCausalLM": _capped}),
    **for_each("Gemma4 Gemma4Unified", {"ForCausalLM": _nanochat, "ForConditionalGeneration": _gemma4}),
    **for_each("Gemma Gemma2 Gemma3Text", _decoder_tasks(_UNIT_RMS)),
    "Gemma3ForConditionalGeneration": Head("causal-lm", (*_INSIDE, LM_HEAD)),
    "ShieldGemma2ForImageClassification": _shieldgemma2,
    "Gemma3ForSequenceClassification": _decoder_tasks(_INSIDE)["ForSequenceClassification"],
    **for_each(
        "Granite GraniteMoe GraniteSWA GraniteMoeSWA GraniteMoeShared GraniteMoeHybrid", {"ForCausalLM": _granite}
    ),
    **for_each("Olmo", _lm(*_OLMO, LM_HEAD), _decoder_tasks(_OLMO)),
    **for_each("StableLm Starcoder2 Phimoe Jais2", _lm(*_NORM, LM_HEAD), _decoder_tasks(_NORM)),
    **for_each("Cohere Cohere2 Cohere2Moe", {"ForCausalLM": _cohere}),
    **for_each("Nemotron", _lm(*_UNIT_NORM, LM_HEAD), _decoder_tasks(_UNIT_NORM)),
    "NanoChatForCausalLM": _nanochat,
    "RecurrentGemmaForCausalLM": _recurrent_gemma,
    "Llama4ForCausalLM": Head("causal-lm", (RmsNormPart("model.norm"), LM_HEAD)),
    "Llama4ForConditionalGeneration": Head(
        "causal-lm", (RmsNormPart("language_model.model.norm"), LinearPart("language_model.lm_head"))
    ),
    "GitForCausalLM": Head("causal-lm", (LinearPart("output"),)),
    "TrOCRForCausalLM": Head("causal-lm", (LinearPart("output_projection"),)),
    "HyperCLOVAXForCausalLM": _hyperclovax,
    "HyperCLOVAXForSequenceClassification": _decoder_tasks(RMS)["ForSequenceClassification"],
    "MiniCPM3ForCausalLM": _minicpm3,
    "MiniCPM3ForSequenceClassification": _decoder_tasks(RMS)["ForSequenceClassification"],
    "DbrxForCausalLM": Head("causal-lm", (*_NORM_F, LM_HEAD)),
    **for_each("Mpt", _lm(*_NORM_F, LM_HEAD), _decoder_tasks(_NORM_F, tokens="classifier")),
    **for_each("CodeGen", _lm(*_LN_F, LM_HEAD)),
    **for_each("Persimmon", _lm(*_PHI, LM_HEAD), _decoder_tasks(_PHI)),
    **for_each("GPTNeoXJapanese", _lm(*_NEOX, LinearPart("embed_out"))),
    "OpenAIGPTLMHeadModel": Head("causal-lm", (LM_HEAD,)),
    "OpenAIGPTForSequenceClassification": Head("sequence-classification", (LinearPart("score"), LastToken())),
    "CTRLLMHeadModel": Head("causal-lm", (*_CTRL, LM_HEAD)),
    "CTRLForSequenceClassification": Head("sequence-classification", (*_CTRL, LinearPart("classifier"), LastToken())),
    **for_each("GPTJ", _lm(*_LN_F, LM_HEAD), _decoder_tasks(_LN_F)),
    **for_each("GPT2 GPTBigCode GPTNeo Bloom Falcon", _lm(*_LN_F, LM_HEAD), _decoder_tasks(_LN_F, tokens="classifier")),
    "GPT2LMHeadModel": Head("causal-lm", (*_LN_F, LM_HEAD)),
    **for_each("GPTNeoX", _lm(*_NEOX, LM_HEAD), _decoder_tasks(_NEOX, tokens="classifier")),
    **for_each("Phi", _lm(*_PHI, LM_HEAD), _decoder_tasks(_PHI)),
    **for_each(
        "BioGpt", _lm(*_LAYER_NORM, LinearPart("output_projection")), _decoder_tasks(_LAYER_NORM, tokens="classifier")
    ),
    **for_each("XGLM", _lm(*_LAYER_NORM, LM_HEAD)),
    "OPTForCausalLM": _opt("causal-lm", LM_HEAD),
    "OPTForSequenceClassification": _opt("sequence-classification", LinearPart("score"), LastToken()),
    "OPTForQuestionAnswering": _opt("question-answering", LinearPart("qa_outputs")),
    "ModernBertDecoderForCausalLM": Head("causal-lm", (*MODERN, *modern_head("lm_head"), LinearPart("decoder"))),
    "ModernBertDecoderForSequenceClassification": Head(
        "sequence-classification", (*MODERN, *modern_head("head"), LinearPart("classifier"), LastToken())
    ),
    "BertGenerationDecoder": Head("causal-lm", (LinearPart("lm_head.decoder"),)),
}
