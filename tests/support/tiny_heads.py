"""Tiny random models with every task head that transformers has for a registered family. Nothing here is a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from normscope.families import family_of, supported_models
from normscope.families.multimodal import ENCODER_TOWER, TEXT_TOWER
from normscope.testing.tiny import shrunk
from support.tiny_architectures import SIZE, TOWERS_OF_TEXT, VARIANTS
from support.tiny_models import SIZES

MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES",
    "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
)
"""Where transformers lists the classes that have a task head."""

NOT_DESCRIBED = {
    "T5GemmaForSequenceClassification": "its classifier reads the token that padding leaves last in the other stack",
    "T5GemmaForTokenClassification": "as above, for every token",
    **dict.fromkeys(
        (
            *("ModernVBertForSequenceClassification", "ModernVBertForTokenClassification"),
            *("UltraVBertForSequenceClassification", "UltraVBertForTokenClassification"),
            "Qwen3ASRForTokenClassification",
        ),
        "heads of a tower inside a model of several towers are described for the vocabulary alone",
    ),
    **dict.fromkeys(
        ("LongformerForSequenceClassification", "LongformerForQuestionAnswering", "LongformerForMultipleChoice"),
        "these heads make some tokens attend globally, by other projections than the rest",
    ),
    **dict.fromkeys(
        ("UniSpeechForPreTraining", "UniSpeechSatForPreTraining", "Wav2Vec2ForPreTraining"),
        "compares frames with quantised ones, and has no logits of labels",
    ),
    "HieraForPreTraining": "reconstructs the tokens that it leaves out, and has no logits of labels",
    "BigBirdForQuestionAnswering": "its head has a feed-forward with a residual branch, and masks logits of the question",
}
"""Classes of described architectures whose heads are refused, and why."""

QUESTION_ID = 7
LABELS = 3

CHANGES: dict[str, list[dict[str, Any]]] = {
    "DebertaForMaskedLM": [{"legacy": False}],
    "DebertaV2ForMaskedLM": [{"legacy": False}],
    "DebertaForSequenceClassification": [{"pooler_hidden_act": "tanh"}],
    "ElectraForMultipleChoice": [
        {"summary_use_proj": False, "summary_activation": ""},
        {"summary_use_proj": False, "summary_activation": "tanh"},
    ],
    "EuroBertForSequenceClassification": [{"classifier_pooling": name} for name in ("bos", "mean", "late")],
    "Gemma2ForCausalLM": [{"final_logit_softcapping": 0.7}, {"final_logit_softcapping": None}],
    "Gemma3ForCausalLM": [{"final_logit_softcapping": 0.7}],
    "GraniteForCausalLM": [{"logits_scaling": 3.0}],
    "GraniteMoeForCausalLM": [{"logits_scaling": 0.5}],
    "ModernBertForMultipleChoice": [{"classifier_pooling": "mean"}],
    "ModernBertForSequenceClassification": [{"classifier_pooling": "mean"}],
    "OPTForCausalLM": [{"do_layer_norm_before": False, "word_embed_proj_dim": 10}],
    "OPTForQuestionAnswering": [{"word_embed_proj_dim": 10}],
    "T5ForConditionalGeneration": [{"tie_word_embeddings": False}, {"feed_forward_proj": "gated-gelu"}],
    "UltrabertForSequenceClassification": [{"classifier_pooling": "mean"}],
    "UMT5ForConditionalGeneration": [{"tie_word_embeddings": False}, {"tie_word_embeddings": True}],
}
"""Configurations next to the default one in which a head is another."""


def head_classes(model_type: str) -> list[str]:
    """Every class with a task head that transformers has for a model type."""
    names: dict[str, None] = {}
    for mapping in MAPPINGS:
        listed = getattr(modeling_auto, mapping).get(model_type, ())
        names |= dict.fromkeys([listed] if isinstance(listed, str) else listed)
    return list(names)


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Model type, class and changes of the configuration, for every head of every registered architecture."""
    for model_type in supported_models():
        if model_type in (*TEXT_TOWER.model_types, *ENCODER_TOWER.model_types, "llama4"):  # the heads of their towers
            continue
        for name in filter(lambda name: name not in NOT_DESCRIBED, head_classes(model_type)):
            yield from ((model_type, name, changes) for changes in [{}, *CHANGES.get(name, [])])


def tiny_head(
    model_type: str, class_name: str, dtype: torch.dtype = torch.float32, spread: float = 0.3, **changes: Any
) -> PreTrainedModel:
    """A tiny model with a head, every parameter (and the bias that some keep as a buffer) drawn from `normal(0, 0.3)`."""
    config = _config(model_type, class_name, changes)
    if "CausalLM" in class_name or "LMHead" in class_name or class_name == "BertGenerationDecoder":
        config.is_decoder = True
    # The grouped product of experts, the default, knows no float64.
    options = {"experts_implementation": "eager"} if dtype == torch.float64 else {}
    torch.manual_seed(0)
    model = getattr(transformers, class_name)._from_config(config, **options)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if isinstance(tensor, nn.Parameter) or name == "final_logits_bias":
            tensor.data.normal_(0, spread)
    return model.to(dtype).eval()


def _config(model_type: str, class_name: str, changes: dict[str, Any]) -> PreTrainedConfig:
    if family_of(model_type).pyramid or model_type in TOWERS_OF_TEXT:
        return shrunk(model_type, num_labels=LABELS, **changes)
    return AutoConfig.for_model(model_type, **_settings(model_type, class_name, changes))


def _settings(model_type: str, class_name: str, changes: dict[str, Any]) -> dict[str, Any]:
    if model_type in SIZES:
        size = SIZES[model_type]
    else:
        known = AutoConfig.for_model(model_type)
        size = {key: value for key, value in SIZE.items() if hasattr(known, key)}
        size |= next(overrides for name, overrides in VARIANTS if name == model_type)
    question = {"question_token_id": QUESTION_ID} if model_type == "splinter" else {}
    labels = 2 if "QuestionAnswering" in class_name else LABELS
    return {**size, **question, "num_labels": labels, **changes}


def inputs_of(model: PreTrainedModel) -> tuple[dict[str, Tensor], list[int]] | tuple[None, None]:
    """Inputs and lengths, for the models that need special ones."""
    if not type(model).__name__.startswith("Splinter"):
        return None, None
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(QUESTION_ID + 1, model.config.vocab_size, (2, 9), generator=random)
    ids[:, 3] = QUESTION_ID
    if type(model).__name__.endswith("PreTraining"):
        ids[:, 5] = QUESTION_ID
    return {"input_ids": ids}, [9, 9]
