# SPDX-License-Identifier: Apache-2.0
"""Makes the golden models and their references with Hugging Face transformers; README.md says what they are for.

    python make_goldens.py                 makes every model anew; the same versions on the same
                                           kind of CPU give the same bytes
    python make_goldens.py NAME...         only these
    python make_goldens.py --check         reads the committed folders back through from_pretrained, computes tokens and
                                           logits again, and compares; writes nothing

Each model tries seeds 0, 1, ... until its weights and prompts pass all checks (the constants below):
  - at every generated step of every prompt the two best logits differ by more than SMALLEST_GAP;
  - each prompt's 64 tokens have at least DISTINCT_TOKENS different ones, of fewer tokens a third (no loop over one
    token);
  - attention is far from uniform in every layer: mean of (largest probability x context) > CONCENTRATION;
  - the reference's own rounding stays under LARGEST_NOISE;
  - every fault of golden_reference.mutations that concerns the model, and every single bias or norm weight left out,
    moves some logit by more than SMALLEST_FAULT: a test against this golden turns red;
  - where tokens are to hold in 16 bits, the two best logits differ everywhere by more than twice what any logit of
    transformers in the checkpoint's own type is off: whoever computes as well as that gets the same tokens; and every
    fault of golden_reference.mutations moves some logit by more than OWN_TYPE_FAULT times that.
"""

import argparse
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

from golden_models import GOLDENS, random_prompts, random_weights
from golden_reference import (
    Rejected, attention_concentration, forced, generate, largest_difference, mutations, noise, single_tensors)

TOLERANCE = 1e-4                    # of a logit, F32 compute
SMALLEST_GAP = 100 * TOLERANCE
SMALLEST_FAULT = 10 * TOLERANCE
LARGEST_NOISE = 0.15 * TOLERANCE
CONCENTRATION = 3.0
DISTINCT_TOKENS = 10
OWN_TYPE_FAULT = 1.5
# Of two layers in BF16 no seed is off by less than half of this: the others are not worth a second model.
SMALLEST_BF16_GAP = 0.14
MOST_SEEDS = 20000

HERE = pathlib.Path(__file__).resolve().parent
DTYPE_NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def require(condition, why):
    if not condition:
        raise Rejected(why)


def attempt(golden, model, seed):
    """One seed: fills `model` and returns the reference with everything measured on it, or raises Rejected."""
    random_weights(golden, model, seed)
    prompts = random_prompts(golden, seed)
    reference = []
    own = 0.0  # how far transformers is off in the checkpoint's own type
    least = SMALLEST_BF16_GAP if golden.holds_in_16_bits and golden.dtype == torch.bfloat16 else SMALLEST_GAP
    for prompt in prompts:
        tokens, logits = generate(model, prompt, golden.new_tokens, least)
        distinct = min(DISTINCT_TOKENS, golden.new_tokens // 3)
        require(len(set(tokens)) >= distinct, f"{len(set(tokens))} distinct tokens")
        reference.append((prompt, tokens, logits))
        if golden.holds_in_16_bits:
            own = max(own, bound(narrow_logits(golden, model, reference[-1:], golden.dtype), reference[-1:]))
            require(smallest_gap(reference) > 2 * own, f"a gap of {smallest_gap(reference):.2g}, off by {own:.2g}")
    gap = smallest_gap(reference)
    of_prompts = [attention_concentration(model, prompt, tokens) for prompt, tokens, _ in reference]
    layers = zip(*[layers for layers in of_prompts if layers])
    concentration = [sum(layer) / len(layer) for layer in layers]
    require(min(concentration) > CONCENTRATION, f"attention concentration {min(concentration):.2f}")
    rounding = noise(model, reference)
    require(max(rounding.values()) < LARGEST_NOISE, f"rounding {rounding}")
    faults = mutations(golden, model, reference)
    for name, difference in faults.items():
        require(difference > max(SMALLEST_FAULT, OWN_TYPE_FAULT * own), f"{name} moves logits by {difference:.2g} only")
    singles = single_tensors(golden, model, reference)
    for what in singles.values():
        require(what["difference"] > SMALLEST_FAULT, f"{what['tensor']} moves logits by {what['difference']:.2g} only")
    facts = dict(
        seed=seed, prompts=prompts, tokens=[tokens for _, tokens, _ in reference], tolerance=TOLERANCE,
        smallest_gap=gap, largest_logit=max(float(l.abs().max()) for _, _, l in reference),
        attention_concentration=concentration, reference_noise=rounding, mutations=faults, least_single_tensor=singles)
    if golden.holds_in_16_bits:
        facts["own_type_bound"] = own
    return reference, facts


def narrow_logits(golden, model, reference, dtype):
    """Teacher-forced logits of transformers in a 16-bit type on the same checkpoint."""
    low = golden.empty_model()
    low.load_state_dict(model.state_dict())
    low.to(dtype)
    return [forced(low, prompt, tokens) for prompt, tokens, _ in reference]


def bound(narrow, reference):
    return max(float((n - logits).abs().max()) for n, (_, _, logits) in zip(narrow, reference))


def smallest_gap(reference):
    """Least difference of the two best logits of a step."""
    return min(float((b := logits.topk(2).values)[:, 0].sub(b[:, 1]).min()) for _, _, logits in reference)


def save(golden, model, reference, facts):
    folder = HERE / golden.name
    shutil.rmtree(folder, ignore_errors=True)
    stored = golden.empty_model()
    stored.load_state_dict(model.state_dict())
    stored.to(golden.dtype)
    stored.config.dtype = golden.dtype
    stored.save_pretrained(folder, **(dict(max_shard_size=golden.shard) if golden.shard else {}))
    tensors = {f"logits.{p}": logits.contiguous() for p, (_, _, logits) in enumerate(reference)}
    facts["checkpoint_dtype"] = DTYPE_NAMES[golden.dtype]
    if golden.dtype != torch.float32:
        low = narrow_logits(golden, model, reference, torch.bfloat16)
        facts["bf16_bound"] = bound(low, reference)
        tensors |= {f"bf16_logits.{p}": b.to(torch.bfloat16).contiguous() for p, b in enumerate(low)}
    save_file(tensors, folder / "reference.safetensors")
    facts["versions"] = dict(torch=torch.__version__, transformers=transformers.__version__)
    (folder / "reference.json").write_text(compact(facts) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


def compact(facts):
    """JSON with one line a key, so that a diff is readable."""
    def rounded(x):
        if isinstance(x, float):
            return float(f"{x:.4g}")
        if isinstance(x, dict):
            return {k: rounded(v) for k, v in x.items()}
        if isinstance(x, list):
            return [rounded(v) for v in x]
        return x
    return "{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(rounded(v))}" for k, v in facts.items()) + "\n}"


def make(golden):
    model = golden.empty_model()
    for seed in range(MOST_SEEDS):
        try:
            reference, facts = attempt(golden, model, seed)
        except Rejected as why:
            print(f"{golden.name}: seed {seed}: {why}", flush=True)
            continue
        save(golden, model, reference, facts)
        check(golden)
        return
    sys.exit(f"{golden.name}: no seed below {MOST_SEEDS} passes")


def check(golden):
    """The folder, read back as a user of transformers would, gives the recorded tokens and logits."""
    folder = HERE / golden.name
    facts = json.loads((folder / "reference.json").read_text())
    logits = load_file(folder / "reference.safetensors")
    model = golden.model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    reference = []
    for p, prompt in enumerate(facts["prompts"]):
        tokens, rows = generate(model, prompt, golden.new_tokens, SMALLEST_GAP)
        if tokens != facts["tokens"][p] or len(tokens) != golden.new_tokens:
            sys.exit(f"{golden.name}: prompt {p}: tokens differ from reference.json")
        difference = float((rows - logits[f"logits.{p}"]).abs().max())
        if not difference < LARGEST_NOISE:
            sys.exit(f"{golden.name}: prompt {p}: logits differ from reference.safetensors by {difference:.2g}")
        reference.append((prompt, tokens, logits[f"logits.{p}"]))
    difference = largest_difference(model, reference)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{golden.name}: seed {facts['seed']}, gap {facts['smallest_gap']}, one pass differs by {difference:.2g}, "
          f"smallest fault {min(facts['mutations'].values()):.2g}, {size / 1e3:.0f} KB: good", flush=True)


def legacy_config():
    """The llama3 model's config.json in the words of transformers before 5: rope_theta and rope_scaling, torch_dtype."""
    config = json.loads((HERE / "llama-7-gqa-llama3-f32" / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    folder = HERE / "legacy-config"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models to make; all of them if none is named")
    parser.add_argument("--check", action="store_true", help="compare the folders instead of making them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.disable_progress_bar()
    known = [g.name for g in GOLDENS]
    for name in arguments.names:
        if name not in known:
            parser.error(f"unknown model '{name}': expected one of {', '.join(known)}")
    for golden in GOLDENS:
        if not arguments.names or golden.name in arguments.names:
            (check if arguments.check else make)(golden)
    if not arguments.check:
        legacy_config()


if __name__ == "__main__":
    main()
