# SPDX-License-Identifier: Apache-2.0
"""What transformers computes for a golden model: greedy tokens, logits, attention, and the same with a fault put in."""

import contextlib
import copy
import sys

import torch
from transformers import DynamicCache

from golden_models import is_norm, kind


class Rejected(Exception):
    """These weights and prompts fail a check: the next seed is tried."""


@torch.no_grad()
def generate(model, prompt, new_tokens, smallest_gap=None):
    """Greedy decoding of one prompt alone, without padding, with a KV cache, never stopping at an end token.

    Returns new_tokens tokens and the logits [new_tokens, vocab] that chose them. With `smallest_gap`, rejects as soon
    as the two best logits of a step lie closer than that.
    """
    cache = DynamicCache(config=model.config)
    tokens, rows = [], []
    step = torch.tensor([prompt])
    for _ in range(new_tokens):
        row = model(input_ids=step, past_key_values=cache, use_cache=True).logits[0, -1].float()
        best = torch.topk(row, 2).values
        if smallest_gap is not None and not best[0] - best[1] > smallest_gap:
            raise Rejected(f"a gap of {best[0] - best[1]:.2g} after {len(tokens)} tokens")
        rows.append(row)
        tokens.append(int(row.argmax()))
        step = torch.tensor([tokens[-1:]])
    return tokens, torch.stack(rows)


@torch.no_grad()
def forced(model, prompt, tokens, positions=None):
    """The logits [len(tokens), vocab] of one pass over prompt and tokens without a cache (teacher forcing).

    The attention mask is given: without it transformers would read a jump in `positions` as the start of another
    sequence.
    """
    ids = torch.tensor([prompt + tokens[:-1]])
    if positions is not None:
        positions = torch.tensor([positions])
    out = model(input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False)
    return out.logits[0, len(prompt) - 1:].float()


@torch.no_grad()
def attention_concentration(model, prompt, tokens):
    """Per layer, the mean over heads and rows of (largest probability x context): 1 where attention is uniform.

    Rows with a context under 8 are left out: there the figure cannot be large. Nothing where there are no others.
    """
    if len(prompt) + len(tokens) - 1 < 8:
        return []
    out = model(input_ids=torch.tensor([prompt + tokens[:-1]]), use_cache=False, output_attentions=True)
    result = []
    for layer in out.attentions:
        largest = layer[0].max(dim=-1).values  # [heads, rows]
        context = torch.arange(1, largest.shape[-1] + 1)
        result.append(float((largest * context)[:, 7:].mean()))
    return result


def largest_difference(model, reference, positions=None):
    """max |logit - reference logit| over all prompts, steps and ids; `positions` maps a prompt's length to positions."""
    worst = 0.0
    for prompt, tokens, logits in reference:
        where = positions(len(prompt)) if positions else None
        worst = max(worst, float((forced(model, prompt, tokens, where) - logits).abs().max()))
    return worst


@contextlib.contextmanager
def zeroed(model, names, value=0.0):
    """The named parameters filled with `value`, and put back afterwards."""
    parameters = dict(model.named_parameters())
    saved = {n: parameters[n].detach().clone() for n in names}
    with torch.no_grad():
        for n in names:
            parameters[n].fill_(value)
    try:
        yield model
    finally:
        with torch.no_grad():
            for n in names:
                parameters[n].copy_(saved[n])


@contextlib.contextmanager
def wrong_kv_mapping(model):
    """Query head h reads key/value head h % kvHeads instead of h / (heads / kvHeads)."""
    module = sys.modules[type(model).__module__]
    right = module.repeat_kv
    module.repeat_kv = lambda x, groups: x.repeat(1, groups, 1, 1)
    try:
        yield model
    finally:
        module.repeat_kv = right


@contextlib.contextmanager
def eps_times_ten(model):
    norms = [m for m in model.modules() if hasattr(m, "variance_epsilon") or isinstance(m, torch.nn.LayerNorm)]
    attributes = ["variance_epsilon" if hasattr(m, "variance_epsilon") else "eps" for m in norms]
    for m, a in zip(norms, attributes):
        setattr(m, a, getattr(m, a) * 10)
    try:
        yield model
    finally:
        for m, a in zip(norms, attributes):
            setattr(m, a, getattr(m, a) / 10)


@contextlib.contextmanager
def without_head_norms(model):
    """q and k are rotated as their projections leave them."""
    norms = [m for n, m in model.named_modules() if n.endswith(("q_norm", "k_norm"))]
    for m in norms:
        m.forward = lambda x: x
    try:
        yield model
    finally:
        for m in norms:
            del m.forward


def without_rope_scaling(golden, model):
    config = golden.config()
    config.rope_parameters = dict(rope_type="default", rope_theta=config.rope_parameters["rope_theta"])
    plain = golden.empty_model(config)
    plain.load_state_dict(model.state_dict())
    return plain


def mutations(golden, model, reference):
    """Largest logit difference that each fault concerning this model makes, by the fault's name.

    A fault that cannot show is not listed: rotary positions all shifted by the same amount (scores depend on
    differences only; hence the positions of generated tokens alone are shifted), and a missing K bias where there is no
    rotation (it adds the same to all scores of a row). OPT's learned positions are also shifted all together.
    """
    config = golden.config()
    rotary = hasattr(config, "rope_parameters")
    found = {}
    with eps_times_ten(model):
        found["eps_x10"] = largest_difference(model, reference)
    if rotary and config.rope_parameters["rope_type"] != "default":
        found["rope_scaling_removed"] = largest_difference(without_rope_scaling(golden, model), reference)
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if 1 < kv_heads < heads:
        with wrong_kv_mapping(model):
            found["gqa_mapping"] = largest_difference(model, reference)
    head_norms = [n for n, _ in model.named_parameters() if kind(n) in ("q_norm", "k_norm")]
    if head_norms:
        with without_head_norms(model):
            found["head_norms_removed"] = largest_difference(model, reference)
    for what in sorted({kind(n) for n in head_norms}):
        with zeroed(model, [n for n in head_norms if kind(n) == what], 1.0):
            found[f"norm_weight_dropped.{what}"] = largest_difference(model, reference)
    found["decode_positions_plus_1"] = largest_difference(
        model, reference, lambda n: list(range(n)) + list(range(n + 1, n + golden.new_tokens)))
    if not rotary:
        found["all_positions_plus_1"] = largest_difference(
            model, reference, lambda n: list(range(1, n + golden.new_tokens)))
    biases = [n for n, _ in model.named_parameters() if n.endswith(".bias")]
    if not rotary:
        biases = [n for n in biases if kind(n) != "k_proj"]
    for what in sorted({kind(n) for n in biases}):
        with zeroed(model, [n for n in biases if kind(n) == what]):
            found[f"bias_dropped.{what}"] = largest_difference(model, reference)
    return found


def single_tensors(golden, model, reference):
    """The bias and the norm weight that show least when that one alone is dropped (set to 0, to 1)."""
    rotary = hasattr(golden.config(), "rope_parameters")
    least = {}
    for name, _ in model.named_parameters():
        if name.endswith(".bias") and (rotary or kind(name) != "k_proj"):
            what, value = "bias", 0.0
        elif name.endswith(".weight") and is_norm(name):
            what, value = "norm_weight", 1.0
        else:
            continue
        with zeroed(model, [name], value):
            difference = largest_difference(model, reference)
        if what not in least or difference < least[what]["difference"]:
            least[what] = dict(tensor=name, difference=difference)
    return least


def noise(model, reference):
    """How far the reference itself may lie from exact arithmetic: against one pass without a cache in F32, and against
    one in F64 (where transformers keeps norms of the Llama kind, softmax and rotary angles in F32)."""
    double = copy.deepcopy(model).to(torch.float64)
    return dict(one_pass_f32=largest_difference(model, reference), one_pass_f64=largest_difference(double, reference))
