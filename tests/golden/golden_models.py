# SPDX-License-Identifier: Apache-2.0
"""The tiny models of tests/golden: their configurations and their weights.

Between them the ten models have each family with 7 and with 12 layers, grouped-query attention with several group
sizes, tied and separate embeddings, one and many safetensors files, F32, F16 and BF16 checkpoints, both rotary scalings
that are supported (llama3 with an original length of 16, linear), biases everywhere a family can have them, a head_dim
that is odd (OPT), a head_dim other than hidden / heads, norms of each head of q and k (Qwen3), and sizes that are no
multiples of 16.

Five more have two layers and the head sizes that the tensor-core attention kernels are for. Their tokens hold in 16
bits: see make_goldens.py.
"""

import dataclasses

import numpy as np
import torch
from transformers import (
    LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, OPTConfig, OPTForCausalLM, Qwen2Config,
    Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

PROMPT_LENGTHS = (1, 5, 17, 33)
NEW_TOKENS = 64
SHORT_PROMPTS = (1, 5, 70)
LONG_PROMPTS = (1, 5, 70, 515)


@dataclasses.dataclass(frozen=True)
class Golden:
    name: str
    model_class: type
    config_class: type
    options: dict
    dtype: torch.dtype = torch.float32  # of the checkpoint
    shard: str | None = None            # save_pretrained's max_shard_size
    residual: float = 0.3               # standard deviation of an embedding's elements
    score: float = 1.2                  # of q's and k's elements: a score's is about score^2
    logit: float = 3.0                  # of a logit
    prompt_lengths: tuple = PROMPT_LENGTHS
    new_tokens: int = NEW_TOKENS
    holds_in_16_bits: bool = False      # the gaps between logits are wider than what 16-bit arithmetic loses

    def config(self):
        options = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None, attn_implementation="eager")
        return self.config_class(**(options | self.options))

    def empty_model(self, config=None):
        model = self.model_class(config if config is not None else self.config())
        return model.to(torch.float32).eval()


# OPT's eps is not in its config: LayerNorm's own 1e-5. A small residual stream makes it count.
GOLDENS = (
    Golden("opt-7-tied-f32", OPTForCausalLM, OPTConfig, dict(
        vocab_size=131, hidden_size=39, word_embed_proj_dim=39, num_hidden_layers=7, num_attention_heads=3, ffn_dim=75,
        max_position_embeddings=101, activation_function="relu", tie_word_embeddings=True), residual=0.03),
    Golden("opt-12-gelu-f16", OPTForCausalLM, OPTConfig, dict(
        vocab_size=127, hidden_size=42, word_embed_proj_dim=42, num_hidden_layers=12, num_attention_heads=3, ffn_dim=70,
        max_position_embeddings=107, activation_function="gelu", tie_word_embeddings=False),
        dtype=torch.float16, residual=0.03),
    Golden("llama-7-gqa-llama3-f32", LlamaForCausalLM, LlamaConfig, dict(
        vocab_size=123, hidden_size=44, intermediate_size=75, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=128, rms_norm_eps=1e-3, tie_word_embeddings=False,
        rope_parameters=dict(
            rope_type="llama3", rope_theta=150.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=2.0,
            original_max_position_embeddings=16))),
    Golden("llama-12-tied-bias-bf16-sharded", LlamaForCausalLM, LlamaConfig, dict(
        vocab_size=139, hidden_size=36, intermediate_size=84, num_hidden_layers=12, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=120, rms_norm_eps=1e-3, tie_word_embeddings=True,
        attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        dtype=torch.bfloat16, shard="120KB"),
    Golden("qwen2-7-tied-f32", Qwen2ForCausalLM, Qwen2Config, dict(
        vocab_size=133, hidden_size=50, intermediate_size=58, num_hidden_layers=7, num_attention_heads=5,
        num_key_value_heads=5, max_position_embeddings=128, rms_norm_eps=1e-3, tie_word_embeddings=True,
        use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    Golden("qwen2-12-gqa-bf16", Qwen2ForCausalLM, Qwen2Config, dict(
        vocab_size=115, hidden_size=40, intermediate_size=83, num_hidden_layers=12, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-3, tie_word_embeddings=False,
        use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=10000.0)), dtype=torch.bfloat16),
    Golden("mistral-7-gqa-f16", MistralForCausalLM, MistralConfig, dict(
        vocab_size=137, hidden_size=60, intermediate_size=107, num_hidden_layers=7, num_attention_heads=6,
        num_key_value_heads=3, head_dim=10, max_position_embeddings=128, rms_norm_eps=1e-3, sliding_window=None,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)), dtype=torch.float16),
    Golden("mistral-12-head-dim-f32", MistralForCausalLM, MistralConfig, dict(
        vocab_size=119, hidden_size=36, intermediate_size=50, num_hidden_layers=12, num_attention_heads=6,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, rms_norm_eps=1e-3, sliding_window=4096,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    # The norms of q and k undo what their projections scale: their own weights carry the score.
    Golden("qwen3-7-gqa-f32", Qwen3ForCausalLM, Qwen3Config, dict(
        vocab_size=129, hidden_size=46, intermediate_size=61, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=18, max_position_embeddings=128, rms_norm_eps=1e-2, tie_word_embeddings=False,
        use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), score=1.5),
    Golden("qwen3-12-tied-bias-bf16", Qwen3ForCausalLM, Qwen3Config, dict(
        vocab_size=121, hidden_size=40, intermediate_size=77, num_hidden_layers=12, num_attention_heads=6,
        num_key_value_heads=3, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-2, tie_word_embeddings=True,
        attention_bias=True, use_sliding_window=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)), dtype=torch.bfloat16, score=1.5),
    # Head sizes of the tensor-core kernels. Keys and queries of several tiles in the prompt of 70; of more than one split
    # of 512 tokens in those of 515, which a decode step has to join.
    Golden("llama-2-heads-64-f16", LlamaForCausalLM, LlamaConfig, dict(
        vocab_size=101, hidden_size=48, intermediate_size=75, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=600, rms_norm_eps=1e-3, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        dtype=torch.float16, prompt_lengths=LONG_PROMPTS, new_tokens=16, holds_in_16_bits=True),
    Golden("qwen2-2-heads-64-bf16", Qwen2ForCausalLM, Qwen2Config, dict(
        vocab_size=91, hidden_size=48, intermediate_size=75, num_hidden_layers=2, num_attention_heads=16,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=600, rms_norm_eps=1e-3, tie_word_embeddings=False,
        use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        dtype=torch.bfloat16, prompt_lengths=LONG_PROMPTS, new_tokens=8, holds_in_16_bits=True),
    Golden("opt-2-heads-80-f16", OPTForCausalLM, OPTConfig, dict(
        vocab_size=101, hidden_size=160, word_embed_proj_dim=160, num_hidden_layers=2, num_attention_heads=2, ffn_dim=75,
        max_position_embeddings=107, activation_function="relu", tie_word_embeddings=True),
        dtype=torch.float16, residual=0.03, prompt_lengths=SHORT_PROMPTS, new_tokens=16, holds_in_16_bits=True),
    Golden("llama-2-heads-96-f16", LlamaForCausalLM, LlamaConfig, dict(
        vocab_size=101, hidden_size=66, intermediate_size=75, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=96, max_position_embeddings=600, rms_norm_eps=1e-3, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        dtype=torch.float16, prompt_lengths=LONG_PROMPTS, new_tokens=16, holds_in_16_bits=True),
    Golden("llama-2-heads-128-bf16", LlamaForCausalLM, LlamaConfig, dict(
        vocab_size=91, hidden_size=56, intermediate_size=75, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=2, head_dim=128, max_position_embeddings=600, rms_norm_eps=1e-3, tie_word_embeddings=False,
        rope_parameters=dict(
            rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)),
        dtype=torch.bfloat16, prompt_lengths=LONG_PROMPTS, new_tokens=6, holds_in_16_bits=True),
)


def kind(name):
    """The module a tensor belongs to: 'q_proj', 'fc1', 'input_layernorm', 'norm', ..."""
    return name.split(".")[-2]


def is_norm(name):
    return "norm" in kind(name)


def random_weights(golden, model, seed):
    """Fills `model` with weights drawn from `seed`, rounded to the checkpoint's element type.

    Every element is normal. Standard deviations are chosen so that each layer adds about half of what an embedding
    brings, attention scores have a standard deviation of about score^2, and logits of about `logit`. Norm weights are
    spread around 1; where the head is tied, the last norm's have random signs, without which the model would repeat its
    last token for ever.
    """
    state = model.state_dict()
    tied = golden.config().tie_word_embeddings
    rng = np.random.Generator(np.random.PCG64(seed))
    for name in sorted(state):
        if tied and name == "lm_head.weight":
            continue
        shape = tuple(state[name].shape)
        x = rng.standard_normal(shape)
        inputs = shape[-1]
        r = golden.residual
        what = kind(name)
        if is_norm(name):
            head = 1.0
            if ".layers." not in name and tied:
                hidden = shape[0]
                head = golden.logit / (r * np.sqrt(hidden))
            if what in ("q_norm", "k_norm"):
                head = golden.score
            if name.endswith(".weight"):
                x = head * (1 + 0.3 * x)
                if ".layers." not in name and tied:
                    x = x * np.where(rng.random(shape) < 0.5, -1.0, 1.0)
            else:
                x = head * 0.2 * x
        elif name.endswith(".bias"):
            x = x * {"q_proj": 0.7, "k_proj": 0.7, "v_proj": 0.5, "o_proj": 0.2 * r, "out_proj": 0.2 * r,
                     "fc1": 0.5, "gate_proj": 0.5, "up_proj": 0.5, "fc2": 0.2 * r, "down_proj": 0.2 * r}[what]
        elif what in ("embed_tokens", "embed_positions"):
            x = x * r
        elif what == "lm_head":
            x = x * golden.logit / np.sqrt(inputs)
        else:
            gain = {"q_proj": golden.score, "k_proj": golden.score, "v_proj": 1.0, "o_proj": 0.8 * r, "out_proj": 0.8 * r,
                    "fc1": 1.0, "gate_proj": 1.0, "up_proj": 1.0, "fc2": 0.7 * r, "down_proj": 1.0 * r}[what]
            x = x * gain / np.sqrt(inputs)
        state[name].copy_(torch.from_numpy(x.astype(np.float32)).to(golden.dtype).to(torch.float32))
    return model


def random_prompts(golden, seed):
    rng = np.random.Generator(np.random.PCG64([seed, 1]))
    vocab = golden.options["vocab_size"]
    return [[int(t) for t in rng.integers(0, vocab, n)] for n in golden.prompt_lengths]
