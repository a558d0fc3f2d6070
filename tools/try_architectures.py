"""Try every architecture that transformers ships, with a tiny random model, against every family normscope knows.

    python tools/try_architectures.py [MODEL_TYPE ...]

Prints, for each model type that some family describes, the completeness error and the difference between the captured and
the plain forward pass. A model type that a family fits but that is not registered is one line to add to that family.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.utils import logging

from normscope.capture import Side, blocks_of, capture_sides
from normscope.chain.trace import LayerTrace
from normscope.decompose import decompose
from normscope.errors import NormscopeError
from normscope.families import Family, supported_models
from normscope.scopes import scopes_of

TINY: dict[str, Any] = {
    **dict(vocab_size=64, hidden_size=32, d_model=32, n_embd=32, dim=32, word_embed_proj_dim=32, embedding_size=32),
    **dict(num_hidden_layers=2, n_layer=2, num_layers=2, n_layers=2, encoder_layers=2, decoder_layers=2),
    **dict(num_decoder_layers=2, num_attention_heads=4, n_head=4, num_heads=4, n_heads=4, num_key_value_heads=2),
    **dict(encoder_attention_heads=4, decoder_attention_heads=4, head_dim=8, d_kv=8, kv_channels=8),
    **dict(
        intermediate_size=48, d_ff=48, ffn_dim=48, n_inner=48, hidden_dim=48, encoder_ffn_dim=48, decoder_ffn_dim=48
    ),
    **dict(max_position_embeddings=64, n_positions=64, max_sequence_length=64, pad_token_id=1, bos_token_id=0),
    **dict(eos_token_id=2, decoder_start_token_id=1, num_local_experts=4, num_experts=4, num_experts_per_tok=2),
    **dict(moe_intermediate_size=48, rotary_dim=4, sliding_window=4, layer_types=None, is_decoder=False),
}
PARAMETER_LIMIT = 2_000_000


def tiny_model(model_type: str) -> PreTrainedModel:
    """A tiny random model of a type; raises when none can be made."""
    known = AutoConfig.for_model(model_type)
    config = AutoConfig.for_model(model_type, **{key: value for key, value in TINY.items() if hasattr(known, key)})
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in AutoModel.from_config(config).parameters())
    if size > PARAMETER_LIMIT:
        raise ValueError(f"not tiny: {size} parameters")
    torch.manual_seed(0)
    model = AutoModel.from_config(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    return model


def tiny_inputs(family: Family) -> dict[str, Any]:
    torch.manual_seed(0)
    inputs: dict[str, Any] = {"input_ids": torch.randint(3, 64, (1, 9)), "attention_mask": torch.ones(1, 9).long()}
    if family.encoder is not None:
        inputs |= {"decoder_input_ids": torch.randint(3, 64, (1, 7)), "use_cache": False}
    elif family.stack.causal:
        inputs["use_cache"] = False
    return inputs


def errors(model: PreTrainedModel, family: Family) -> tuple[float, float]:
    """The worst completeness error, and how far the captured pass is from the plain one."""
    inputs, worst, outputs = tiny_inputs(family), [0.0], {}

    def consume(layer: int, _: int, trace: LayerTrace) -> None:
        result = decompose(trace, scopes_of(trace.components))
        worst.extend(float(each.amax()) for each in result.errors.values())
        outputs[layer] = trace.states[-1]

    blocks = blocks_of(model, family.stack)
    layers = range(1, 1 + family.stack.depth(model.config))
    lengths, sources = ([7], [9]) if family.encoder is not None else ([9], None)
    plain: list[torch.Tensor] = []
    hook = blocks[-1].register_forward_hook(
        lambda _module, _given, output: plain.append(output if isinstance(output, torch.Tensor) else output[0])
    )
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    side = Side(family.stack, lengths, layers, consume, sources)
    capture_sides(model, inputs, [side], dtype=torch.float32, below_attention=True)
    difference = float((outputs[max(outputs)] - plain[-1][0]).norm() / plain[-1].norm())
    return max(worst), difference


def main() -> None:
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    registered = supported_models()
    candidates = [family for family in dict.fromkeys(registered.values()) if family.reads == "text"]
    for model_type in sys.argv[1:] or sorted(CONFIG_MAPPING_NAMES):
        try:
            model = tiny_model(model_type)
        except Exception as error:  # whatever an unknown configuration may throw
            print(f"-          {model_type:28} no tiny model: {type(error).__name__}: {str(error)[:60]!r}", flush=True)
            continue
        for family in candidates:
            try:
                completeness, difference = errors(model, family)
            except (NormscopeError, AttributeError):
                continue
            except Exception as error:
                print(
                    f"error      {model_type:28} {family.name:16} {type(error).__name__}: {str(error)[:80]}", flush=True
                )
                continue
            fits = completeness < 1e-5 and difference < 1e-5
            state = "registered" if registered.get(model_type) == family else "fits" if fits else "no"
            print(f"{state:10} {model_type:28} {family.name:16} {completeness:.1e} {difference:.1e}", flush=True)


if __name__ == "__main__":
    main()
