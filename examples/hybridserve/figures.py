# SPDX-License-Identifier: Apache-2.0
"""HybridServe's findings, one function each: the commands, and what follows from what they print."""
import functools
import json

EIGHTHS = ["0", "1/8", "1/4", "3/8", "1/2", "5/8", "3/4", "7/8", "1"]
MODELS = ["opt-6.7b", "opt-13b", "opt-30b", "opt-66b"]


class Plan:
    """What `headrace compile` says of one cell: a batch at a context, decode and one prefill iteration."""

    def __init__(self, fig, model, batch, context, mini_batches, more, tokens=2048, weights_kept=False):
        each = batch // mini_batches
        # OPT-6.7B's weights fit beside what moves; of the others all layers are away, or as few as the memory allows.
        interval = "--interval none " if model == "opt-6.7b" else "" if weights_kept else "--interval 1 "
        self.command = (f"{model} --hardware rtx4090-hybridserve --batch {batch} --context {context} --mini-batches {mini_batches} "
                        f"{interval}--kv-device-memory 0B --sequences {each} --contexts {context} "
                        f"--new-tokens {min(tokens, each * context)} {more}").strip()
        self.fig, self.batch, self.context, self.tokens = fig, batch, context, min(tokens, each * context)
        self.mini_batches = mini_batches
        self.json = json.loads(fig.run(f"compile {self.command} --dry-run --json", show=False))
        cells = [v for v in self.json["variants"] if v["key"]["kv_blocks"] == self.json["kv_blocks"]]
        self.decode = next(v for v in cells if v["key"]["new_tokens"] == each)
        self.prefill = next((v for v in cells if v["key"]["new_tokens"] > each), self.decode)

    def decode_s(self):
        return self.decode["predicted_iteration_ms"] / 1e3

    def busy(self):
        """The share of an iteration of decode in which each lane works."""
        whole = self.decode["predicted_iteration_ms"]
        return self.decode["compute_alone_ms"] / whole, self.decode["link_alone_ms"] / whole

    def rate(self, prompt, output):
        """Tokens made by all that it takes, the prompts' iterations included (section 5.2)."""
        prompts = -(-self.batch * prompt // (self.tokens * self.mini_batches))
        seconds = prompts * self.prefill["predicted_iteration_ms"] / 1e3 + (output - 1) * self.decode_s()
        return self.batch * output / seconds


def share_text(plan):
    """The share that `auto` took, from the command that makes the plan again."""
    words = plan.json["command"].split()
    return words[words.index("--act-ratio") + 1]


def hosts(fig, model, batch, context, mini_batches):
    """Plans with activations on the host, by share; those that do not fit are left out."""
    return {share: Plan(fig, model, batch, context, mini_batches, f"--act-ratio {share} --act-home host")
            for share in EIGHTHS}


def figure_3(fig):
    rows = []
    for batch in (16, 128):
        plan = Plan(fig, "opt-30b", batch, 1024, 1, "", tokens=1024)
        kv = plan.json["placements"][0]["kv_bytes_by_home"]["host"] / 2**30
        rows.append([batch, f"{kv:.1f} GiB", f"{plan.decode['h2d_bytes'] / 2**30:.1f} GiB", f"{plan.decode_s():.2f} s"])
    fig.say(f"\n$ headrace compile {plan.command}")
    fig.table(["batch", "KV on the host", "h2d an iteration", "decode"], rows)
    fig.found("Figure 3b: KV of OPT-30B at 1,024 tokens, batch 16 and 128", "21, 168 GB", f"{rows[0][1]}, {rows[1][1]}")
    fig.say("\nThroughput of decode against the batch, KV alone, nothing but the link in the way:")
    rows, rates = [], []
    for batch in (16, 64, 256):
        plan = Plan(fig, "opt-30b", batch, 1024, max(1, batch // 32), "", tokens=1024)
        rates.append(batch / plan.decode_s())
        rows.append([batch, f"{rates[-1]:.2f}"])
    fig.table(["batch", "tokens/s"], rows)
    fig.found("Figure 3a: from batch 64 to 256 throughput rises by", "saturates, then falls",
              f"{rates[2] / rates[1]:.2f}: the bound is batch by (weights + KV); without FlexGen's overhead it does not fall")


def token_ms(plan):
    """Compute of a token from its id, all layers: as in the prefill of such tokens."""
    return plan.prefill["compute_alone_ms"] / (plan.tokens * plan.mini_batches)


def recomputing(none, prompts, share):
    """The lanes' ms in an iteration of decode that makes `share` of each sequence's KV from ids again: what the cost
    model predicts; no plan does it. Compute has the prefill of these tokens beside it, the link brings less of KV."""
    kv = none.json["placements"][0]["kv_bytes_by_home"]["host"]
    return (none.decode["link_alone_ms"] * (1 - share * kv / none.decode["h2d_bytes"]),
            none.decode["compute_alone_ms"] + prompts.prefill["compute_alone_ms"])


def recomputed_prompts(plan, model, context, share, more=""):
    """The first `share` of 64 sequences' tokens as prompts, each mini-batch's in one iteration. `plan` makes a Plan."""
    return plan(model, 64, int(context * share), 4, more, tokens=16 * context)


def figure_4(fig):
    """Tokens of the first blocks of each sequence are recomputed, beside those that decode."""
    plan = functools.partial(Plan, fig)
    for model, context, paper in (("opt-30b", 1024, 1.45), ("opt-66b", 512, 1.31)):
        none = plan(model, 64, context, 4, "")
        rows, slower = [["0", 16, f"{none.decode['link_alone_ms'] / 1e3:.2f} s",
                         f"{none.decode['compute_alone_ms'] / 1e3:.2f} s", "1.00"]], {}
        for share in (1 / 4, 1 / 2, 3 / 4):
            prompts = recomputed_prompts(plan, model, context, share)
            link, compute = recomputing(none, prompts, share)
            slower[share] = max(link, compute) / none.decode["predicted_iteration_ms"]
            rows.append([f"{share:g}", 16 + prompts.tokens, f"{link / 1e3:.2f} s", f"{compute / 1e3:.2f} s",
                         f"{slower[share]:.2f}"])
            if share == 1 / 2:
                fig.say(f"\n$ headrace compile {none.command}\n$ headrace compile {prompts.command}")
        fig.table([f"{model}, of its tokens recomputed", "rows of a mini-batch", "the link", "compute", "by none"], rows)
        compute = float(rows[2][3].split()[0])
        fig.found(f"Figure 4: half of the tokens recomputed, {model}, batch 64, context {context}: slower by", f"{paper}x",
                  f"{slower[1 / 2]:.2f}x: compute alone is {rows[2][3]}; {paper}x of it is {compute / paper:.1f} s without, "
                  f"where an ideal link takes {none.decode_s():.1f}")


def figure_8(fig):
    """Half activations, half keys and values, two mini-batches; four layers are enough to see it."""
    shape = ("--model-name four-layers --family opt --layers 4 --hidden 4096 --heads 32 --kv-heads 32 --head-dim 128 "
             "--intermediate 16384 --vocab 50272 --max-positions 2048 --dtype f16")
    goal = ("--hardware rtx4090-hybridserve --batch 16 --context 1024 --mini-batches 2 --interval 1 --kv-device-memory 0B "
            "--sequences 8 --contexts 1024 --new-tokens 1024 --offload-embedding off --offload-head off")
    times = []
    for title, more in (("(a) keys and values alone", ""), ("(b) half of each", "--act-ratio 1/2 --act-home host")):
        fig.run(f"compile {shape} {goal} {more} -o {len(times)}.plan", show=False)
        fig.say(f"\n{title}\n\n$ headrace compile {shape} {goal} {more}".rstrip())
        fig.run(f"timeline {len(times)}.plan --width 118")
        plan = json.loads(fig.run(f"inspect {len(times)}.plan --json", show=False))
        times.append(next(v["predicted_iteration_ms"] for v in plan["variants"] if v["key"]["new_tokens"] == 8))
    fig.found("Figure 8: keys and values alone, and half activations: an iteration", "drawn, no numbers",
              f"{times[0]:.1f}, {times[1]:.1f} ms: compute runs beside the copies of the next mini-batch and layer")


def figure_6(fig):
    """Per token and layer: all of a layer's products against those of K and V."""
    none = Plan(fig, "opt-30b", 64, 1024, 4, "")
    all_ = Plan(fig, "opt-30b", 64, 1024, 4, "--act-ratio 1 --act-home host")
    tokens = 64 * 1023
    act = (all_.decode["compute_alone_ms"] - none.decode["compute_alone_ms"]) / tokens
    token = token_ms(none)
    fig.say(f"\n$ headrace compile {all_.command}")
    fig.say(f"\nms a token, all {48} layers: token recomputation (a prefill of these tokens) {token:.4f}, from activations {act:.4f}")
    fig.found("Figure 6: recomputation from activations takes less than token recomputation by", "78%",
              f"{100 * (1 - act / token):.0f}%: 4 h^2 of about 24 h^2 operations a token, and attention")


def figure_9(fig):
    plans = hosts(fig, "opt-30b", 64, 1024, 4)
    rows = []
    for share, plan in plans.items():
        compute, link = plan.busy()
        rows.append([share, f"{plan.decode_s():.2f} s", f"{100 * compute:.0f}%", f"{100 * link:.0f}%",
                     f"{plan.decode['h2d_bytes'] / 2**30:.1f} GiB"])
    fig.say(f"\n$ headrace compile {plans['1/2'].command}")
    fig.table(["act ratio", "decode", "compute works", "link works", "h2d"], rows)
    best = min(plans, key=lambda share: plans[share].decode_s())
    fig.found("Figure 9: with keys and values alone the device idles; with activations alone the link",
              "both shown", f"compute works {rows[0][2]} of the time; the link {rows[-1][3]}")
    compute, link = plans[best].busy()
    fig.found(f"Figure 9: the best eighth on the host, {best}: lanes idle",
              "neither", f"{100 * (1 - compute):.0f}% and {100 * (1 - link):.0f}%")


PROMPTS = [128, 512, 1920]


def figure_12(fig):
    rows, over_kv, over_act = [], {}, {}
    for model in MODELS:
        for prompt in PROMPTS:
            batch, context = 128, prompt + 128
            kv = Plan(fig, model, batch, context, 8, "").rate(prompt, 128)
            act = Plan(fig, model, batch, context, 8, "--act-ratio 1 --act-home host").rate(prompt, 128)
            auto = Plan(fig, model, batch, context, 8, "--act-ratio auto")
            hybrid = auto.rate(prompt, 128)
            over_kv.setdefault(model, []).append(hybrid / kv)
            over_act.setdefault(model, []).append(hybrid / act)
            rows.append([f"{model}, {prompt}", f"{kv:.1f}", f"{act:.1f}", f"{hybrid:.1f}", share_text(auto),
                         f"{hybrid / kv:.2f}", f"{hybrid / act:.2f}"])
    fig.say(f"\n$ headrace compile {auto.command}")
    fig.table(["model, prompt", "KV alone, tokens/s", "activations alone", "hybrid", "its share", "by KV", "by activations"],
              rows)

    def mean(values):
        values = [v for of in values.values() for v in of]
        return sum(values) / len(values)

    fig.found("Figure 12: hybrid by FlexGen, mean", "2.19x", f"{mean(over_kv):.2f}x an ideal plan of keys and values alone, "
              "which overlaps all it can: FlexGen's own inefficiency is the rest")
    fig.found("Figure 12: hybrid by activations alone, mean", "1.35x", f"{mean(over_act):.2f}x")
    for model, paper in (("opt-6.7b", "2.05x"), ("opt-66b", "2.33x")):
        here = over_kv[model]
        fig.found(f"Figure 12: {model}, by FlexGen, mean", paper,
                  f"{sum(here) / len(here):.2f}x the ideal plan: a wider model has more work a byte of KV, so less is gained")


def figure_13(fig):
    for batch, paper in ((32, 1.27), (64, 1.38)):
        rows, ratios = [], []
        for prompt in (512, 1024, 1920):
            kv = Plan(fig, "opt-30b", batch, prompt + 128, 4, "").decode["h2d_bytes"]
            auto = Plan(fig, "opt-30b", batch, prompt + 128, 4, "--act-ratio auto")
            ratios.append(kv / auto.decode["h2d_bytes"])
            rows.append([prompt, f"{kv / 2**30:.1f} GiB", f"{auto.decode['h2d_bytes'] / 2**30:.1f} GiB", share_text(auto),
                         f"{ratios[-1]:.2f}"])
        fig.say(f"\n$ headrace compile {auto.command}")
        fig.table([f"batch {batch}, prompt", "KV alone", "hybrid", "its share", "less by"], rows)
        fig.found(f"Figure 13: traffic less by up to, batch {batch}", f"{paper}x", f"{max(ratios):.2f}x")


def figure_14(fig):
    rows, more = [], {}
    for batch, mini_batches in ((32, 4), (128, 8)):
        for prompt in (512, 1920):
            kv, auto = (Plan(fig, "opt-30b", batch, prompt + 128, mini_batches, share).busy()[0]
                        for share in ("", "--act-ratio auto"))
            more.setdefault(batch, []).append(auto / kv)
            rows.append([f"{batch}, {prompt}", f"{100 * kv:.1f}%", f"{100 * auto:.1f}%", f"{auto / kv:.1f}"])
    fig.table(["batch, prompt", "KV alone: compute works", "hybrid", "by"], rows)
    fig.found("Figure 14: of an iteration compute works, batch 32 and 128", "8.2 to 12.6%; 35.6 to 78.2%",
              f"{rows[0][1]} to {rows[-1][1]}; {rows[0][2]} to {rows[-1][2]}")
    fig.found("Figure 14: more by, mean, and at batch 128",
              "7.39x, up to 13.39x; but its own ends are 35.6 / 8.2 = 4.3x and 78.2 / 12.6 = 6.2x",
              f"{sum(sum(v) for v in more.values()) / 4:.1f}x, up to {max(more[128]):.1f}x")


def figure_15(fig):
    rows = []
    gains = {}
    for model in MODELS:
        context = 1920 + 128
        act = Plan(fig, model, 128, context, 8, "--act-ratio 1 --act-home host").rate(1920, 128)
        even = Plan(fig, model, 128, context, 8, "--act-ratio 1/2 --act-home host").rate(1920, 128)
        auto = Plan(fig, model, 128, context, 8, "--act-ratio auto")
        best = auto.rate(1920, 128)
        gains[model] = (even / act, best / act)
        rows.append([model, "1.00", f"{even / act:.2f}", f"{best / act:.2f}", share_text(auto)])
    fig.say(f"\n$ headrace compile {auto.command}")
    fig.table(["by activations alone", "act", "1:1", "auto", "its share"], rows)
    fig.found("Figure 15: 1:1 by activations alone, mean; 6.7B; 66B", "1.33x; 1.23x; 1.39x",
              f"{sum(g[0] for g in gains.values()) / 4:.2f}x; {gains['opt-6.7b'][0]:.2f}x; {gains['opt-66b'][0]:.2f}x")
    fig.found("Figure 15: with policies, 30B; 66B", "1.6x; 1.56x", f"{gains['opt-30b'][1]:.2f}x; {gains['opt-66b'][1]:.2f}x")


FIGURES = {
    "figure-3": ("Figure 3: KV that crosses the link in every iteration", figure_3),
    "figure-4": ("Figure 4: token recomputation", figure_4),
    "figure-6": ("Figure 6: token recomputation, and recomputation from activations", figure_6),
    "figure-8": ("Figure 8: an iteration's lanes, with keys and values alone and with activations", figure_8),
    "figure-9": ("Figure 9: both imbalances, and what removes them", figure_9),
    "figure-12": ("Figure 12: throughput at batch 128, 128 new tokens", figure_12),
    "figure-13": ("Figure 13: bytes to the device an iteration, OPT-30B", figure_13),
    "figure-14": ("Figure 14: the share of an iteration of decode that compute works, OPT-30B", figure_14),
    "figure-15": ("Figure 15: shares of activation blocks at prompts of 1,920", figure_15),
}
