# SPDX-License-Identifier: Apache-2.0
"""Pie's findings, one function each: the commands, and what follows from what they print."""
import json
import os

from harness import spread
from protocol import figure_4, figure_5

EXPANSIONS = ["1", "1.2", "1.4", "1.6", "1.8", "2"]


class Serving:
    """`headrace bench serve` on sim, by a short name of what it runs; the first command of a figure is shown."""

    def __init__(self, fig, model, dataset, requests, hardware="gh200"):
        self.fig, self.model, self.dataset, self.requests, self.hardware = fig, model, dataset, requests, hardware
        self.shown = False

    def run(self, kv_gb, more, rate="inf"):
        return self.serve(f"--kv-device-memory {kv_gb}GB --dataset-name {self.dataset} --num-prompts {self.requests} "
                          f"--request-rate {rate} {more}")

    def serve(self, flags):
        command = f"bench serve {self.model} --hardware {self.hardware} --device sim {flags}"
        if not self.shown:
            self.fig.say(f"\n$ headrace {command} -o bench.json")
            self.shown = True
        self.fig.run(command + " -o bench.json", show=False)
        with open(os.path.join(self.fig.folder, "bench.json"), encoding="utf-8") as file:
            return json.load(file)["results"][0]


def rate_of(result):
    return result["output_tokens_per_second"]


def latency_of(result, tokens=None):
    """Queueing and the rest of it, ms by output token (section 5.1)."""
    each = result["completed"] / (tokens or result["output_tokens"])
    queueing = result["queueing_ms"]["mean"] * each
    return queueing, result["e2el_ms"]["mean"] * each - queueing


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
    fig.say("\nThe paper names neither the model nor the rate: such that 12 GB hold what comes.")
    for model, dataset, rate, requests, paper in (("opt-13b", "alpaca", 70, 3000, 1.5), ("opt-13b", "sharegpt", 6, 400, 1.9),
                                                  ("opt-30b", "sharegpt", 2, 200, 1.9)):
        rows, gains = [], {"pie": [], "headrace": []}
        serving = Serving(fig, model, dataset, requests, "gh200-paper")
        for kv in (2, 3, 5, 7, 9, 12)[model == "opt-30b":]:  # 2 GB do not hold one sequence of OPT-30B
            vllm = rate_of(serving.run(kv, "--expansion 1", rate))
            pie = max(rate_of(serving.run(kv, f"--policy pie --expansion {e}", rate)) for e in EXPANSIONS[1:])
            ours = rate_of(serving.run(kv, "--expansion auto", rate))
            gains["pie"].append(max(pie, vllm) / vllm)
            gains["headrace"].append(ours / vllm)
            rows.append([f"{kv} GB", f"{vllm:.0f}", f"{pie:.0f}", f"{ours:.0f}"])
        fig.say(f"\n{model}, {dataset}, {rate} requests/s: output tokens/s; of pie the best of expansions 1.2 to 2")
        fig.table(["KV on the device", "vllm", "pie", "headrace, auto"], rows)
        for name, found in gains.items():
            fig.found(f"Figure 7: {name} over vllm, {model}, {dataset}, from little KV to 12 GB", f"{paper}, to equal",
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
    layers = {e: rate_of(serving.run(3, f"--policy pie --expansion {e}")) for e in expansions + ["auto"]}
    rows = []
    for e, one in results.items():
        compute = one["tpot_ms"]["mean"]
        rows.append([e, f"{rate_of(one):.0f}", f"{one['queueing_ms']['mean'] / 1e3:.1f}", f"{compute:.2f}",
                     f"{one['stall_ms'] / one['duration_s'] / 10:.1f}%", f"{layers[e]:.0f}"])
    fig.say("\nopt-13b, sharegpt, 600 requests at once, 3 GB of KV on the device")
    fig.table(["expansion", "output tokens/s", "queueing, s", "TPOT, ms", "compute waits", "of pie"], rows)
    fixed = {e: rate_of(results[e]) for e in expansions}
    best = max(fixed, key=fixed.get)
    fig.found("Figure 9 (a): adaptive over the best fixed expansion, the warm-up with it", "more than 0.98",
              f"{rate_of(results['auto']) / fixed[best]:.3f}")
    fig.found("Figure 9 (a): the same of pie, whole layers", "more than 0.98",
              f"{layers['auto'] / max(layers[e] for e in expansions):.3f}")
    fig.found("Figure 9 (b): adaptive over fixed 1.2 to 2.0", "at least 1",
              spread([rate_of(results["auto"]) / fixed[e] for e in ("1.2", "1.4", "1.6", "1.8", "2")]))
    fig.found("Figure 9 (c): the best fixed expansion; worse at", "2.08; 2.2",
              f"{best}; {next((e for e in expansions[expansions.index(best) + 1:]), '-')}")
    fig.found("Figure 9 (c): TPOT at expansion 2 over that at 1", "about 1",
              f"{results['2']['tpot_ms']['mean'] / results['1']['tpot_ms']['mean']:.2f}")


FLEXGEN = "--policy flexgen --slo-factor 1000 "
PADDED = "--scheduler static --dataset-name trace --dataset-path padded.jsonl "


def figure_10(fig):
    """Against FlexGen."""
    for dataset, requests, rates, paper in (("sharegpt", 300, ("0.5", "0.75"), 9.4),
                                            ("alpaca", 1200, ("10", "15"), 7.8)):
        serving = Serving(fig, "opt-30b", dataset, requests)
        each = serving.run(3, "--expansion 1 --save-detailed")["each"]
        prompt, output = (max(e[key] for e in each) for key in ("prompt_tokens", "output_tokens"))
        output = min(output, 2048 - prompt)  # OPT's positions
        wanted = sum(e["output_tokens"] for e in each)
        padded = json.dumps({"arrival_s": 0, "prompt_tokens": prompt, "output_tokens": output}) + "\n"
        with open(os.path.join(fig.folder, "padded.jsonl"), "w", encoding="utf-8") as file:
            file.write(padded * requests)
        fig.say(f"padded.jsonl has {requests} times\n{padded}\n$ headrace bench serve opt-30b --hardware gh200 "
                "--device sim " + FLEXGEN + PADDED + "--device-memory 64GB -o bench.json")
        traffic = f"--dataset-name {dataset} --num-prompts {requests} --request-rate inf "
        rows, rate = [], {}

        def add(kv, name, result, serving=serving, rows=rows, rate=rate, wanted=wanted):
            rate[kv, name] = wanted / result["duration_s"]
            queueing, compute = latency_of(result, wanted)
            rows.append([f"{kv} GB, {name}", f"{rate[kv, name]:.0f}", f"{queueing:.0f}", f"{compute:.0f}"])

        for kv in (3, 7):
            memory = f"--device-memory {61 + kv}GB "
            for name, hardware, flags in (("vllm", "gh200", ["--expansion 1"]),
                                          ("pie", "gh200", [f"--policy pie --expansion {e}" for e in EXPANSIONS[1:]]),
                                          ("pie, both directions", "gh200-paper",
                                           [f"--policy pie --expansion {e}" for e in EXPANSIONS[1:]]),
                                          ("headrace, auto", "gh200", ["--expansion auto"])):
                serving.hardware = hardware
                add(kv, name, max((serving.run(kv, f) for f in flags), key=rate_of))
            serving.hardware = "gh200"
            flexgen = serving.serve(FLEXGEN + PADDED + memory)
            add(kv, "flexgen", flexgen)
            if kv == 3:
                tokens = flexgen["kv_blocks"] * 16
            add(kv, "flexgen, padded to its batch's longest",
                serving.serve(f"{FLEXGEN}--scheduler static --context 2048 {traffic}{memory}"))
            add(kv, "flexgen, continuous batches", serving.serve(f"{FLEXGEN}{traffic}{memory}"))
            if kv == 3:
                seats = int((480e9 - 66e9) / (1376256 * (prompt + output)))
                add(kv, f"all of KV on the host, too, {seats} seats",
                    serving.serve(f"--interval 1 --kv-device-memory 0B --batch {seats} --max-num-seqs {seats} "
                                  + PADDED + memory))
        fig.say(f"\nopt-30b, {dataset}, {requests} requests at once: output tokens/s that were asked for; ms by such a "
                "token; of pie the\nbest of expansions 1.2 to 2")
        fig.table(["KV on the device", "tokens/s", "queueing", "compute"], rows)
        fits, share, step = tokens // (prompt + output), wanted / requests / output, 60e9 / 419e9
        # (prompt + length) x length is inversely proportional to the tokens/s that were asked for.
        target = (prompt + output) * output * rate[3, "flexgen"] / (rate[3, "pie"] / paper)
        length = ((prompt / 2) ** 2 + target) ** 0.5 - prompt / 2
        fig.say(f"\nFlexGen's arithmetic, 64 GB: 60 GB of weights at 419 GB/s are {step * 1e3:.0f} ms an iteration. "
                f"Without them there is\nroom for {tokens:,} tokens of KV, {fits} sequences of {prompt} + {output}. "
                f"Of {fits} tokens an iteration {share:.1%} were asked\nfor: {fits} x {share:.3f} / {step:.3f} s = "
                f"{fits * share / step:.0f} tokens/s, less the prompts' iterations.")
        if prompt + length <= 2048 and abs(rate[3, "pie"] / rate[3, "flexgen"] / paper - 1) > 0.15:
            fig.say(f"Of pie at 3 GB the paper's {paper} would be had with outputs padded to about {length:.0f} instead of "
                    f"{output}. It\npads to the longest, and states no lengths but those of its profile: prompts of 20 "
                    "and 162, outputs of 32 to\n512.")
        else:
            fig.say(f"At 3 GB the paper's {paper} lies between pie with the link's directions shared and apart. It "
                    "states neither the KV\non the device nor the lengths that it padded to.")

        def over(name, other, rate=rate):
            return f"{rate[3, name] / rate[3, other]:.1f} (3 GB), {rate[7, name] / rate[7, other]:.1f} (7 GB)"

        for name in ("pie", "pie, both directions", "headrace, auto"):
            fig.found(f"Figure 10: throughput of {name} over flexgen, {dataset}", str(paper), over(name, "flexgen"))
        fig.found(f"Figure 10: throughput of pie over flexgen in continuous batches, {dataset}", "-",
                  over("pie", "flexgen, continuous batches"))
        rows, ratios, unqueued = [], [], []
        for r in rates:
            pie = sum(latency_of(serving.run(3, "--policy pie --expansion 2", r)))
            flags = FLEXGEN + PADDED + f"--device-memory 64GB --request-rate {r}"
            queueing, compute = latency_of(serving.serve(flags), wanted)
            ratios.append((queueing + compute) / pie)
            unqueued.append(compute / pie)
            rows.append([r, f"{pie:.1f}", f"{queueing:.0f} + {compute:.0f}", f"{ratios[-1]:.0f}"])
        fig.say(f"\n{requests} requests that come one after another, 3 GB: ms by token asked for, of flexgen queueing "
                "+ compute")
        fig.table(["requests/s", "pie, expansion 2", "flexgen", "flexgen over pie"], rows)
        fig.say("FlexGen does not keep up with these rates, so its queue, and the ratio, grow with the number of "
                "requests, which the\npaper does not state.")
        fig.found(f"Figure 10: latency of flexgen over pie's, {dataset}, at rates that pie keeps up with", "up to 60",
                  f"{min(ratios):.0f} to {max(ratios):.0f} of {requests} requests; without the queue "
                  f"{min(unqueued):.0f} to {max(unqueued):.0f}")


def latency(fig):
    """Latency, and memory for the same throughput."""
    systems = (("vllm", "gh200", ["--expansion 1"]),
               ("pie", "gh200", [f"--policy pie --expansion {e}" for e in EXPANSIONS[1:]]),
               ("pie, both directions", "gh200-paper", [f"--policy pie --expansion {e}" for e in EXPANSIONS[1:]]),
               ("headrace, auto", "gh200", ["--expansion auto"]))
    cases = (("opt-30b", "sharegpt"), ("opt-30b", "alpaca"), ("opt-13b", "sharegpt"), ("opt-13b", "alpaca"))
    gains, computes, saved = {}, {}, {}
    for model, dataset in cases:
        serving = Serving(fig, model, dataset, REQUESTS[dataset])
        rows, first = [], None
        for name, hardware, flags in systems:
            serving.hardware = hardware
            result = max((serving.run(3, f) for f in flags), key=rate_of)
            queueing, compute = latency_of(result)
            first = first or (queueing + compute, compute)
            gains.setdefault(name, []).append(first[0] / (queueing + compute))
            computes.setdefault(name, []).append(compute / first[1])
            rows.append([name, f"{rate_of(result):.0f}", f"{queueing:.1f}", f"{compute:.1f}",
                         f"{first[0] / (queueing + compute):.2f}"])
        fig.say(f"\n{model}, {dataset}, {serving.requests} requests at once, 3 GB: output tokens/s, ms by output token;\n"
                "of pie the expansion with the most tokens/s")
        fig.table(["", "tokens/s", "queueing", "compute", "vllm's latency over it"], rows)
        serving.hardware = "gh200"
        five = rate_of(serving.run(5, "--expansion 1"))
        for name, hardware, flags in (("pie", "gh200", "--policy pie --expansion 1.67"),
                                      ("pie, both directions", "gh200-paper", "--policy pie --expansion 1.67"),
                                      ("headrace", "gh200", "--expansion 1.67"),
                                      ("headrace, auto", "gh200", "--expansion auto")):
            serving.hardware = hardware
            saved.setdefault(name, []).append(rate_of(serving.run(3, flags)) / five)
    fig.say("\n3 GB expanded 1.67 times over vllm's throughput with 5 GB")
    fig.table([""] + [f"{m}, {d}" for m, d in cases], [[n] + [f"{v:.2f}" for v in found] for n, found in saved.items()])
    poisson = {}
    for dataset, rates, requests in (("alpaca", ("10", "15", "20", "30"), 600),
                                     ("sharegpt", ("0.5", "0.75", "1"), 200)):
        serving = Serving(fig, "opt-30b", dataset, requests)
        rows = []
        for r in rates:
            found = []
            for name, flags in (("vllm", "--expansion 1"), ("pie", "--policy pie --expansion 2"),
                                ("headrace, auto", "--expansion auto")):
                found.append(latency_of(serving.run(3, flags, r)))
                poisson.setdefault((dataset, name), []).append(sum(found[0]) / sum(found[-1]))
            rows.append([r] + [f"{q:.1f} + {c:.1f}" for q, c in found])
        fig.say(f"\nopt-30b, {dataset}, {requests} requests, 3 GB: queueing + compute, ms by output token")
        fig.table(["requests/s", "vllm", "pie, expansion 2", "headrace, auto"], rows)
    fig.say("\nAt once the latency is queueing, for half of N requests at the system's rate: its gain is the throughput's, "
            "of which\nthe paper's most is 1.9. As requests come there is little below what vllm serves (of ShareGPT 0.66 "
            "requests/s: 224\ntokens/s / 338), and any above: its queue grows with every request. A request that waits again "
            "after a preemption is\ncounted as computing.")
    for name in ("pie", "pie, both directions", "headrace, auto"):
        fig.found(f"Sections 1, 5.6: vllm's latency over that of {name}, requests at once, 3 GB", "up to 2",
                  spread(gains[name]))
    for name in ("pie", "headrace, auto"):
        fig.found(f"Sections 1, 5.6: the same of {name}, OPT-30B, as requests come: alpaca, sharegpt", "up to 2",
                  f"{spread(poisson['alpaca', name])}, {spread(poisson['sharegpt', name])}")
    for name in ("pie", "pie, both directions", "headrace, auto"):
        fig.found(f"Section 5.6: compute by token over vllm's, {name}, requests at once", "about 1",
                  spread(computes[name]))
    for name, found in saved.items():
        fig.found(f"Section 5.2: {name}, 3 GB, over vllm's throughput with 1.67 times as much", "1", spread(found))


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
    "figure-4": ("Nine layers, two away (Figure 4)", figure_4),
    "figure-5": ("Six layers, four away, then three (Figure 5)", figure_5),
    "figure-6": ("Throughput by expansion (Figure 6)", figure_6),
    "figure-7": ("Throughput by the device's KV, against vLLM (Figure 7)", figure_7),
    "figure-8": ("Throughput by request rate (Figure 8)", figure_8),
    "figure-9": ("Adaptive expansion (Figure 9)", figure_9),
    "figure-10": ("Against FlexGen (Figure 10)", figure_10),
    "latency": ("Latency, and memory for the same throughput (sections 5.2, 5.6)", latency),
}
