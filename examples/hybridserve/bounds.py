# SPDX-License-Identifier: Apache-2.0
"""Every point against the paper: within 15%, or the one stated input that would have to differ, put back in.

FlexGen's one parameter is its efficiency: the share of the link that its copies reach (`--link-efficiency`), the same
for all models, batches and prompts. Fitted once, in closed form of its lanes, to the points that points.py gives to it.
"""
import json
import math
import os
from dataclasses import dataclass, replace

from figures import MODELS, PROMPTS
from points import POINTS, fits, held_out
from systems import OUTPUT, VALUES, Cells, World, mean, shares

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, "bounds.json")
WITHIN = 0.15


@dataclass
class Input:
    """One input, what is stated of it, and how far it can go on the stated device."""
    words: str
    stated: object  # None: what was fitted
    least: float
    most: float
    put: object     # (world, value) to the world in which it has that value
    form: str = "{:.3g}"
    whole: bool = False


def flag(words, name, stated, least, most, unit=""):
    return Input(words, stated, least, most, lambda w, v: replace(w, all=f"--{name} {v:g}{unit}"), "{:.3g}" + unit)


INPUTS = {
    "efficiency": Input("FlexGen's efficiency", None, 0.05, 1, lambda w, v: replace(w, efficiency=v)),
    "batch": Input("DeepSpeed's batch, by what fits", 1, 0.05, 1, lambda w, v: replace(w, deepspeed_batch=v)),
    "kernels": Input("FlexGen's kernels, share of the device memory's bandwidth", 0.8, 0.05, 1,
                     lambda w, v: replace(w, flexgen_alone=f"--memory-efficiency {v:g}")),
    "ids": Input("sequences of 1,024 that are recomputed at once", 64, 1, 128, lambda w, v: replace(w, ids_batch=v),
                 "{}", True),
    "flops": flag("share of 165.2 TFLOP/s that is reached", "flops-efficiency", 0.6, 0.05, 1),
    "link": flag("the link (nominal 31.5GB/s)", "h2d-bandwidth", 25, 2, 31.5, "GB/s"),
    "memory": flag("device memory", "memory", 24, 6, 24, "GB"),
}

# What each point's arithmetic has in it, in the order in which it is asked: what the paper does not state first, then
# what was assumed of the device, then what was measured of it.
ASKED = {
    "use-128-first": ["efficiency", "kernels"], "ids-30b": ["efficiency", "flops"], "ids-66b": ["efficiency", "flops"],
    "act-by-ids": ["ids"], "hybrid-by-flexgen": ["efficiency"], "act-by-flexgen": ["efficiency", "flops"],
    "hybrid-by-flexgen-6.7b": ["efficiency"], "hybrid-by-flexgen-66b": ["efficiency"],
    "deepspeed-by-flexgen": ["batch", "efficiency"], "deepspeed-by-hybrid": ["batch"],
    "hybrid-by-act": ["flops", "link"],
    "traffic-32": ["flops", "memory"], "traffic-64": ["flops", "memory"], "use-more": ["efficiency", "kernels"],
    "use-more-128": ["efficiency", "kernels"], "use-flexgen-32": ["efficiency", "kernels"],
    "use-flexgen-128": ["efficiency", "kernels"], "use-hybrid-32": ["flops", "link", "memory"],
    "use-hybrid-128": ["flops", "link", "memory"], "even": ["flops", "link"], "even-6.7b": ["flops", "link"],
    "even-66b": ["flops", "link"], "policies-30b": ["flops", "link"], "policies-66b": ["flops", "link"],
    "ratio-30b": ["flops", "link"], "ratio-66b": ["flops", "link"],
}


def within(point, here):
    return abs(here / point.paper - 1) <= WITHIN


def rate_at(plan, prompt, efficiency):
    """A plan's throughput where copies reach that share of the link: each iteration is the longer of what it was and
    its copies."""
    def seconds(cell):
        return max(cell["predicted_iteration_ms"], cell["link_alone_ms"] / efficiency) / 1e3

    prompts = -(-plan.batch * prompt // (plan.tokens * plan.mini_batches))
    return plan.batch * OUTPUT / (prompts * seconds(plan.prefill) + (OUTPUT - 1) * seconds(plan.decode))


def fit(ideal):
    """The thousandth with the least squares of log(here / paper) over the points that are fitted."""
    over = {"hybrid-by-flexgen": MODELS, "hybrid-by-flexgen-6.7b": ["opt-6.7b"], "hybrid-by-flexgen-66b": ["opt-66b"]}
    taken = [point for point in POINTS if fits(point)]
    hybrid = ideal.rates("hybrid")
    plans = {at: ideal.flexgen(at[0], 128, at[1] + OUTPUT, 8) for at in hybrid}

    def squares(efficiency):
        return sum(math.log(mean(hybrid[at] / rate_at(plans[at], at[1], efficiency) for at in hybrid
                                 if at[0] in over[point.name]) / point.paper) ** 2 for point in taken)

    best = min((i / 1000 for i in range(50, 1001)), key=squares)
    fitted = replace(ideal, efficiency=best)
    for at, plan in plans.items():  # what the lanes say is what the compiler says of such a link
        told, rated = fitted.rates("flexgen", [at[0]])[at], rate_at(plan, at[1], best)
        if not 0.98 <= told / rated <= 1.02:
            raise SystemExit(f"bounds: {at}: FlexGen makes {told:.2f} tokens/s, its lanes say {rated:.2f}")
    return best, taken


def open_cells(fig):
    kept = json.load(open(KEPT, encoding="utf-8")) if os.path.exists(KEPT) else {"cells": {}, "solved": {}}
    return Cells(fig, kept["cells"]), kept["solved"]


def shown(point, value):
    digits = 1 if point.unit in ("%", " GiB") else 2
    return f"{value:.{digits}f}{point.unit}"


def explain(point, world, here, solved):
    """Puts the input that was found back in; nothing is taken on trust."""
    if point.name not in solved:
        return None
    name, value = solved[point.name]
    given = INPUTS[name]
    stated = world.efficiency if given.stated is None else given.stated
    then = VALUES[point.name](given.put(world, value))
    if name not in ASKED[point.name] or not within(point, then):
        return None
    limit = "" if given.least <= value <= given.most else ", which the stated device cannot have"
    return (f"{given.words}: {given.form.format(value)} instead of {given.form.format(stated)}{limit}; "
            f"then {shown(point, then)}, {then / point.paper:.2f} of it")


def bounds(fig):
    cells, solved = open_cells(fig)
    kept = dict(cells.kept)
    if fig.anew:
        cells.kept = {}
    ideal = World(cells)
    same_share(cells, ideal)
    efficiency, taken = fit(ideal)
    world = replace(ideal, efficiency=efficiency)
    say_systems(fig, world, taken)
    rows, unexplained, whys = [], [], []
    for point in POINTS:
        here = VALUES[point.name](world)
        ok = within(point, here)
        half = "fitted" if fits(point) else "held out" if held_out(point) else "fitting, not used"
        why = "" if ok else explain(point, world, here, solved)
        if why is None:
            unexplained.append(point.name)
        rows.append([point.name, half, shown(point, point.paper), shown(point, here), f"{here / point.paper:.2f}",
                     "yes" if ok else "NO, UNEXPLAINED" if why is None else "no"])
        if why:
            whys.append(f"  {point.name}: {why}")
        fig.found(f"{point.section}: {point.what} ({half})", shown(point, point.paper),
                  shown(point, here) + (", within 15%" if ok else f"; {why}" if why else "; unexplained"))
    fig.say("\nEvery point, each by the paper's number:")
    fig.table(["point", "half", "paper", "here", "here/paper", "within 15%"], rows)
    fig.say("\nThose that are not, and the one input with which they are (the rest as stated, put back in and run):")
    fig.say("\n".join(whys))
    fig.say("\nWhat they ask for, together; where it is a range, no one value explains them all:")
    asked = {name: [value for point, (by, value) in solved.items() if by == name] for name in INPUTS}
    fig.table(["input", "points", "least", "most"], [[INPUTS[name].words, len(values), min(values), max(values)]
                                                     for name, values in asked.items() if values])
    out = [row for row in rows if row[1] == "held out"]
    fig.say(f"\nwithin 15%: {sum(r[-1] == 'yes' for r in rows)} of {len(rows)}; of those held out "
            f"{sum(r[-1] == 'yes' for r in out)} of {len(out)}; unexplained: {', '.join(unexplained) or 'none'}")
    stale = [command for command in sorted({**kept, **cells.dear()}) if kept.get(command) != cells.dear().get(command)]
    if fig.anew and stale:
        raise SystemExit("\n".join(["bounds: not what is kept in bounds.json; run examples/hybridserve/solve", *stale]))
    if unexplained:
        raise SystemExit(fig.whole() + "\nunexplained: " + ", ".join(unexplained))
    return cells


def same_share(cells, world):
    """Kept cells are still what the binary says: of each system the smallest of them, asked again."""
    shape = ("opt-6.7b", 128, PROMPTS[0] + OUTPUT, 8)
    found = world.hybrid(*shape)
    command = found.command.replace("--act-ratio auto", found.json["command"])
    others = [plan.command for plan in (world.flexgen(*shape), world.act(*shape), world.even(*shape))]
    for kept, again in [(found.command, command)] + list(zip(others, others)):
        if cells.ask(again)["variants"] != json.loads(cells.run(kept))["variants"]:
            raise SystemExit(f"bounds: {kept}: not what is kept in bounds.json; run examples/hybridserve/solve")


def say_systems(fig, world, taken):
    fig.say("\nFlexGen's time is the link's: with compute at 7.4 to 12.6% of it (sections 3.1, 5.4), doing one\n"
            f"after the other would cost at most 1 / (1 - 0.126) = {1 / 0.874:.2f}. So its one parameter is the share\n"
            "of the link "
            "that it reaches.\nfitted to " + ", ".join(f"{p.name} {p.paper}" for p in taken) +
            f": {world.efficiency:g}\n\n$ headrace compile {world.flexgen('opt-66b', 128, 2048, 8).command}\n")
    ideal = replace(world, efficiency=1).rates("flexgen")
    kv, flexgen, act, hybrid, deepspeed = (world.rates(s) for s in ("kv", "flexgen", "act", "hybrid", "deepspeed"))
    share = shares(world)
    fig.table(["tokens/s", "KV alone", "weights kept", "FlexGen", "DeepSpeed", "its batch", "activations", "hybrid",
               "its share"],
              [[f"{at[0]}, {at[1]}", f"{kv[at]:.1f}", f"{ideal[at]:.1f}", f"{flexgen[at]:.1f}", f"{deepspeed[at]:.1f}",
                world.deepspeed(*at)[0], f"{act[at]:.1f}", f"{hybrid[at]:.1f}", share[at]] for at in kv])
    fig.say(f"\nhybrid by KV alone {world.by('hybrid', 'kv'):.2f}, by FlexGen with the whole link "
            f"{mean(hybrid[at] / ideal[at] for at in ideal):.2f}, by FlexGen {world.by('hybrid', 'flexgen'):.2f}")
