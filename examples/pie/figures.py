# SPDX-License-Identifier: Apache-2.0
"""Pie's findings, one function each: the commands, and what follows from what they print."""
import json
import os

from harness import spread

EXPANSIONS = ["1", "1.2", "1.4", "1.6", "1.8", "2"]


class Serving:
    """`headrace bench serve` on sim, by a short name of what it runs; the first command of a figure is shown."""

    def __init__(self, fig, model, dataset, requests, hardware="gh200"):
        self.fig, self.model, self.dataset, self.requests, self.hardware = fig, model, dataset, requests, hardware
        self.shown = False

    def run(self, kv_gb, more, rate="inf"):
        command = (f"bench serve {self.model} --hardware {self.hardware} --device sim --kv-device-memory {kv_gb}GB "
                   f"--dataset-name {self.dataset} --num-prompts {self.requests} --request-rate {rate} {more}")
        if not self.shown:
            self.fig.say(f"\n$ headrace {command} -o bench.json")
            self.shown = True
        self.fig.run(command + " -o bench.json", show=False)
        with open(os.path.join(self.fig.folder, "bench.json"), encoding="utf-8") as file:
            return json.load(file)["results"][0]


def rate_of(result):
    return result["output_tokens_per_second"]


def figure_1(fig):
    bandwidth, latency = 419e9, 2e-6
    fig.say("\nOf gh200.toml: h2d_bandwidth 419 GB/s, copy_latency 2 us. A copy of s bytes takes s / 419 GB/s + 2 us.")
    rows = []
    for mb in (0.25, 1, 4, 16, 64, 256):
        size = mb * 1e6
        rows.append([f"{mb:g} MB", f"{size / (size / bandwidth + latency) / 1e9:.0f} GB/s",
                     f"{size / (size + latency * bandwidth):.3f}"])
    fig.table(["copy", "reaches", "of the link"], rows)
    share = 16e6 / (16e6 + latency * bandwidth)
    fig.found("Figure 1: of the link's bandwidth that a copy of 16 MB reaches", "0.95", f"{share:.3f} (the latency is from it)")


CASES = [("opt-30b", "sharegpt", 1.86), ("opt-30b", "alpaca", 1.58), ("opt-13b", "sharegpt", 1.54),
         ("llama-13b", "alpaca", 1.27)]
REQUESTS = {"sharegpt": 300, "alpaca": 1200}


def figure_6(fig):
    """Throughput by expansion."""
    for model, dataset, paper in CASES:
        rows, best = [], {}
        for kv in (3, 7):
            serving = Serving(fig, model, dataset, REQUESTS[dataset])
            for name, hardware, policy in (("headrace", "gh200", ""), ("pie", "gh200", "--policy pie "),
                                           ("pie, both directions", "gh200-paper", "--policy pie ")):
                serving.hardware = hardware
                rates = [rate_of(serving.run(kv, policy + f"--expansion {e}")) for e in EXPANSIONS]
                rows.append([f"{kv} GB, {name}"] + [f"{r:.0f}" for r in rates])
                best[kv, name] = max(rates) / rates[0]
        fig.say(f"\n{model}, {dataset}: output tokens/s by expansion")
        fig.table(["KV on the device"] + EXPANSIONS, rows)
        for name in ("headrace", "pie, both directions", "pie"):
            fig.found(f"Figure 6: best expansion over none, {model}, {dataset}, {name}", f"up to {paper}",
                      f"{best[3, name]:.2f} (3 GB), {best[7, name]:.2f} (7 GB)")


def figure_7(fig):
    """Throughput by the device's KV, against vLLM."""
    for dataset, rate, requests, paper in (("alpaca", 70, 3000, 1.5), ("sharegpt", 6, 400, 1.9)):
        rows, gains = [], {"pie": [], "headrace": []}
        serving = Serving(fig, "opt-13b", dataset, requests, "gh200-paper")
        for kv in (2, 3, 5, 7, 9, 12):
            vllm = rate_of(serving.run(kv, "--expansion 1", rate))
            pie = max(rate_of(serving.run(kv, f"--policy pie --expansion {e}", rate)) for e in EXPANSIONS[1:])
            ours = rate_of(serving.run(kv, "--expansion auto", rate))
            gains["pie"].append(max(pie, vllm) / vllm)
            gains["headrace"].append(ours / vllm)
            rows.append([f"{kv} GB", f"{vllm:.0f}", f"{pie:.0f}", f"{ours:.0f}"])
        fig.say(f"\nopt-13b, {dataset}, {rate} requests/s: output tokens/s; of pie the best of expansions 1.2 to 2")
        fig.table(["KV on the device", "vllm", "pie", "headrace, auto"], rows)
        for name, found in gains.items():
            fig.found(f"Figure 7: {name} over vllm, {dataset}, from little KV to 12 GB", f"{paper}, to equal",
                      f"{max(found):.2f}, to {found[-1]:.2f}")


def figure_8(fig):
    """Throughput by request rate."""
    for dataset, rates, low, requests, paper in (("alpaca", (5, 10, 15, 20, 30), 15, 600, "1.2 to 1.6"),
                                                 ("sharegpt", (1, 2, 3, 4, 6), 3, 200, "1.6 to 1.9")):
        serving = Serving(fig, "opt-30b", dataset, requests)
        rows, below, above = [], [], []
        for rate in rates:
            one, two, auto = (rate_of(serving.run(3, f"--expansion {e}", rate)) for e in ("1", "2", "auto"))
            rows.append([str(rate), f"{one:.0f}", f"{two:.0f}", f"{auto:.0f}", f"{auto / one:.2f}"])
            (below if rate < low else above).append(auto / one)
        fig.say(f"\nopt-30b, {dataset}, 3 GB of KV on the device: output tokens/s")
        fig.table(["requests/s", "expansion 1", "2", "auto", "auto over 1"], rows)
        fig.found(f"Figure 8: gain of expansion, {dataset}, below {low} requests/s; from there on", f"little; {paper}",
                  f"{spread(below)}; {spread(above)}")
    fig.say("\nSharegpt: 3 GB hold 2,180 tokens of OPT-30B (2 x 48 x 7168 x 2 B = 1.376 MB each), six requests of 330 on "
            "average, which give\n212 tokens/s, 0.6 requests/s: whatever is done there, 3 requests/s of 338 tokens do not "
            "fit. The paper's cache at this figure must be\nlarger than what 3 GB hold at its lengths.")


def figure_9(fig):
    """Adaptive expansion."""
    expansions = ["1", "1.2", "1.4", "1.6", "1.8", "2", "2.08", "2.2", "2.4", "2.6", "3"]
    serving = Serving(fig, "opt-13b", "sharegpt", 600)
    results = {e: serving.run(3, f"--expansion {e}") for e in expansions + ["auto"]}
    rows = []
    for e, one in results.items():
        compute = one["tpot_ms"]["mean"]
        rows.append([e, f"{rate_of(one):.0f}", f"{one['queueing_ms']['mean'] / 1e3:.1f}", f"{compute:.2f}",
                     f"{one['stall_ms'] / one['duration_s'] / 10:.1f}%"])
    fig.say("\nopt-13b, sharegpt, 600 requests at once, 3 GB of KV on the device")
    fig.table(["expansion", "output tokens/s", "queueing, s", "TPOT, ms", "compute waits"], rows)
    fixed = {e: rate_of(results[e]) for e in expansions}
    best = max(fixed, key=fixed.get)
    fig.found("Figure 9 (a): adaptive over the best fixed expansion, the warm-up with it", "more than 0.98",
              f"{rate_of(results['auto']) / fixed[best]:.3f}")
    fig.found("Figure 9 (b): adaptive over fixed 1.2 to 2.0", "at least 1",
              spread([rate_of(results["auto"]) / fixed[e] for e in ("1.2", "1.4", "1.6", "1.8", "2")]))
    fig.found("Figure 9 (c): the best fixed expansion; worse at", "2.08; 2.2",
              f"{best}; {next((e for e in expansions[expansions.index(best) + 1:]), '-')}")
    fig.found("Figure 9 (c): TPOT at expansion 2 over that at 1", "about 1",
              f"{results['2']['tpot_ms']['mean'] / results['1']['tpot_ms']['mean']:.2f}")


def formulas(fig):
    """The expansions that the paper prints and those that places have."""
    fig.say("\nn layers, m of them away; t_swap m = t_compute n is the link's bound")
    rows = []
    for n, m, what in ((9, 2, "Figure 4"), (48, 25, "Figure 9 (c), OPT-30B"), (40, 10, ""), (40, 20, "")):
        rows.append([f"{n}, {m}", f"{n / (n - m):.2f}", f"{n / (n - m + 2):.2f}", f"{(n + 4) / (n - m + 2):.2f}",
                     f"{m / (n - 2):.3f}", what])
    fig.table(["n, m", "n/(n-m)", "n/(n-m+2)", "(n+4)/(n-m+2)", "ours: f", ""], rows)
    fig.say("\nf = m / (n - 2): the part of every layer's blocks that two slots bring, at the device's bytes of n - m places.")
    fig.found("Figure 4: its expansion 1.28 is", "(n + 4) / (n - m + 2)",
              "n / (n - m) = 9 / 7 = 1.29; the printed formula gives 1.44")
    fig.found("Figure 9 (c): its 2.08 is", "(n + 4) / (n - m + 2)",
              "52 / 25 at n = 48, m = 25, the printed formula; n / (n - m) = 48 / 23 = 2.09")


FIGURES = {
    "figure-1": ("Copies and the link (Figure 1)", figure_1),
    "formulas": ("Expansion by its formulas (sections 3.1, 3.3)", formulas),
    "figure-6": ("Throughput by expansion (Figure 6)", figure_6),
    "figure-7": ("Throughput by the device's KV, against vLLM (Figure 7)", figure_7),
    "figure-8": ("Throughput by request rate (Figure 8)", figure_8),
    "figure-9": ("Adaptive expansion (Figure 9)", figure_9),
}
