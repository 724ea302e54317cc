# SPDX-License-Identifier: Apache-2.0
"""The systems that HybridServe compares, as plans, in a world: the stated inputs, or one of them another."""
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from figures import MODELS, PROMPTS, Plan, recomputed_prompts, recomputing, share_text, token_ms

OUTPUT = 128  # new tokens of each request (section 5.2)


class Cells:
    """What `headrace compile` says, by command: as it was kept, or asked now. It is a figure to Plan."""

    def __init__(self, fig, kept):
        self.fig, self.kept, self.used, self.lock = fig, dict(kept), {}, threading.Lock()

    def run(self, command, show=False):
        command = command.removeprefix("compile ").removesuffix(" --dry-run --json").strip()
        if command not in self.used:
            cell = self.kept.get(command) or self.ask(command)
            with self.lock:
                self.used[command] = self.kept[command] = cell
        return json.dumps(self.used[command])

    def ask(self, command):
        told = json.loads(self.fig.run(f"compile {command} --dry-run --json", show=False))
        words = told["command"].split()
        share = words.index("--act-ratio") if "--act-ratio" in words else None
        keys = ("predicted_iteration_ms", "compute_alone_ms", "link_alone_ms", "h2d_bytes")
        return {"command": " ".join(words[share:share + 2]) if share else "", "kv_blocks": told["kv_blocks"],
                "placements": [{k: told["placements"][0][k] for k in ("weight_bytes_by_home", "kv_bytes_by_home")}],
                "variants": [{"key": {k: v["key"][k] for k in ("new_tokens", "kv_blocks")}, **{k: v[k] for k in keys}}
                             for v in told["variants"]]}

    def dear(self):
        """Those that are kept: seconds each, of batch 128 or where `auto` seeks a share."""
        return {k: v for k, v in sorted(self.used.items()) if "--batch 128" in k or "--act-ratio auto" in k}


def mean(values):
    """Geometric, as the paper's are (section 1)."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


@dataclass
class World:
    """FlexGen's efficiency, and what is not as it is stated: flags of all systems, of FlexGen's alone, and DeepSpeed's
    batch as a share of what fits."""
    cells: Cells
    efficiency: float = 1.0
    all: str = ""
    flexgen_alone: str = ""
    deepspeed_batch: float = 1.0
    ids_batch: int = 64

    def plan(self, model, batch, context, mini_batches, more="", **how):
        return Plan(self.cells, model, batch, context, mini_batches, f"{more} {self.all}".strip(), **how)

    def flexgen(self, model, batch, context, mini_batches):
        link = "" if self.efficiency == 1 else f"--link-efficiency {self.efficiency:g}"
        return self.plan(model, batch, context, mini_batches, f"{link} {self.flexgen_alone}".strip(), weights_kept=True)

    def kv(self, model, batch, context, mini_batches):
        return self.plan(model, batch, context, mini_batches)

    def act(self, model, batch, context, mini_batches):
        return self.plan(model, batch, context, mini_batches, "--act-ratio 1 --act-home host")

    def even(self, model, batch, context, mini_batches):
        return self.plan(model, batch, context, mini_batches, "--act-ratio 1/2 --act-home host")

    def hybrid(self, model, batch, context, mini_batches):
        return self.plan(model, batch, context, mini_batches, "--act-ratio auto")

    def deepspeed(self, model, prompt):
        """Every layer away, KV on the device, no mini-batches: the largest batch whose prompts go through at once."""
        def told(batch):
            context = prompt + OUTPUT
            return json.loads(self.cells.run(
                f"{model} --hardware rtx4090-hybridserve --policy deepspeed --batch {batch} --context {context} "
                f"--sequences {batch} --contexts {context} --new-tokens {batch * prompt} {self.all}".strip()))

        def fits(batch):
            try:
                return bool(told(batch))
            except SystemExit as refusal:
                if "cannot hold" not in str(refusal):
                    raise
                return False

        low, high = 0, 129
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        batch = max(1, int(low * self.deepspeed_batch))
        decode, prefill = sorted(told(batch)["variants"], key=lambda v: v["key"]["new_tokens"])
        seconds = (prefill["predicted_iteration_ms"] + (OUTPUT - 1) * decode["predicted_iteration_ms"]) / 1e3
        return batch, batch * OUTPUT / seconds

    # What the points ask for.

    def rates(self, system, models=MODELS):
        """Throughput at batch 128 of eight mini-batches, by model and prompt (Figure 12)."""
        where = [(model, prompt) for model in models for prompt in PROMPTS]

        def rate(at):
            if system == "deepspeed":
                return self.deepspeed(*at)[1]
            return getattr(self, system)(at[0], 128, at[1] + OUTPUT, 8).rate(at[1], OUTPUT)

        with ThreadPoolExecutor(2) as pool:
            return dict(zip(where, pool.map(rate, where)))

    def by(self, system, other, models=MODELS):
        over, under = self.rates(system, models), self.rates(other, models)
        return mean(over[at] / under[at] for at in over)

    def longest(self, system, model):
        """At prompts of 1,920 (Figure 15)."""
        return getattr(self, system)(model, 128, 1920 + OUTPUT, 8).rate(1920, OUTPUT)

    def use(self, system, batch, prompt):
        """The share of an iteration of decode in which compute works, OPT-30B, in percent."""
        return 100 * getattr(self, system)("opt-30b", batch, prompt + OUTPUT, 4 if batch < 128 else 8).busy()[0]

    def uses(self, system, batch):
        return [self.use(system, batch, prompt) for prompt in (512, 1920)]

    def traffic(self, batch):
        """Bytes to the device, KV alone by hybrid, where that is most (Figure 13)."""
        return max(self.plan("opt-30b", batch, prompt + OUTPUT, 4).decode["h2d_bytes"] /
                   self.hybrid("opt-30b", batch, prompt + OUTPUT, 4).decode["h2d_bytes"] for prompt in
                   (512, 1024, 1920))

    def half_ids(self, model, context):
        """Half of 64 sequences' tokens recomputed, by none of them (Figure 4): FlexGen's link, all compute beside it."""
        link = "" if self.efficiency == 1 else f"--link-efficiency {self.efficiency:g}"
        none = self.plan(model, 64, context, 4, link)
        prompts = recomputed_prompts(self.plan, model, context, 1 / 2, link)
        return max(recomputing(none, prompts, 1 / 2)) / none.decode["predicted_iteration_ms"]

    def act_by_ids(self):
        """A decode iteration's compute, recomputation from activations in it, by the same with token recomputation (Figure 6)."""
        shape = ("opt-30b", self.ids_batch, 1024, max(1, self.ids_batch // 16))
        none, act = self.plan(*shape), self.act(*shape)
        ids = none.decode["compute_alone_ms"] + token_ms(none) * self.ids_batch * 1023
        return 100 * act.decode["compute_alone_ms"] / ids

    def kv_gib(self, batch):
        plan = Plan(self.cells, "opt-30b", batch, 1024, 1, "", tokens=1024)
        return plan.json["placements"][0]["kv_bytes_by_home"]["host"] / 2**30

    def balance(self, model):
        """Algorithm 1, line 26: KV blocks that are loaded while one ACT block's keys and values are made."""
        none, act = (getattr(self, s)(model, 64, 512, 4) for s in ("plan", "act"))
        tokens = 64 * 511
        made = (act.decode["compute_alone_ms"] - none.decode["compute_alone_ms"]) / tokens
        weights = none.json["placements"][0]["weight_bytes_by_home"]["host"]
        kv = none.decode["link_alone_ms"] * (1 - weights / none.decode["h2d_bytes"]) / (64 * 512)
        return made / kv


def shares(world):
    return {at: share_text(world.hybrid(at[0], 128, at[1] + OUTPUT, 8)) for at in
            ((model, prompt) for model in MODELS for prompt in PROMPTS)}


VALUES = {
    "kv-16": lambda w: w.kv_gib(16),
    "kv-128": lambda w: w.kv_gib(128),
    "use-128-first": lambda w: w.use("flexgen", 128, 1024),
    "ids-30b": lambda w: w.half_ids("opt-30b", 1024),
    "ids-66b": lambda w: w.half_ids("opt-66b", 512),
    "act-by-ids": lambda w: w.act_by_ids(),
    "hybrid-by-flexgen": lambda w: w.by("hybrid", "flexgen"),
    "act-by-flexgen": lambda w: w.by("act", "flexgen"),
    "hybrid-by-flexgen-6.7b": lambda w: w.by("hybrid", "flexgen", ["opt-6.7b"]),
    "hybrid-by-flexgen-66b": lambda w: w.by("hybrid", "flexgen", ["opt-66b"]),
    "deepspeed-by-flexgen": lambda w: 100 * w.by("deepspeed", "flexgen"),
    "deepspeed-by-hybrid": lambda w: 100 * w.by("deepspeed", "hybrid"),
    "hybrid-by-act": lambda w: w.by("hybrid", "act"),
    "traffic-32": lambda w: w.traffic(32),
    "traffic-64": lambda w: w.traffic(64),
    "use-more": lambda w: sum(more(w, 32) + more(w, 128)) / 4,
    "use-more-128": lambda w: max(more(w, 128)),
    "use-flexgen-32": lambda w: sum(w.uses("flexgen", 32)) / 2,
    "use-flexgen-128": lambda w: sum(w.uses("flexgen", 128)) / 2,
    "use-hybrid-32": lambda w: sum(w.uses("hybrid", 32)) / 2,
    "use-hybrid-128": lambda w: sum(w.uses("hybrid", 128)) / 2,
    "even": lambda w: mean(w.longest("even", m) / w.longest("act", m) for m in MODELS),
    "even-6.7b": lambda w: w.longest("even", "opt-6.7b") / w.longest("act", "opt-6.7b"),
    "even-66b": lambda w: w.longest("even", "opt-66b") / w.longest("act", "opt-66b"),
    "policies-30b": lambda w: w.longest("hybrid", "opt-30b") / w.longest("act", "opt-30b"),
    "policies-66b": lambda w: w.longest("hybrid", "opt-66b") / w.longest("act", "opt-66b"),
    "ratio-30b": lambda w: w.balance("opt-30b"),
    "ratio-66b": lambda w: w.balance("opt-66b"),
}


def more(world, batch):
    return [hybrid / flexgen for hybrid, flexgen in zip(world.uses("hybrid", batch), world.uses("flexgen", batch))]
