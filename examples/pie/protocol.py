# SPDX-License-Identifier: Apache-2.0
"""Figures 4 and 5: Pie's protocol (section 3.3) as the paper words it, and plans for layers.toml."""
import json
import os
import shutil

HERE = os.path.dirname(os.path.abspath(__file__))


class Protocol:
    """From the first layer on, each computes for a tick. Of `layers` layers the last `away` begin on the host; a swap
    takes `swap` ticks, in or out, both at once."""

    def __init__(self, layers, away, swap):
        self.layers, self.swap = layers, swap
        self.where = ["."] * (layers - away) + ["h"] * away  # . on the device, i on its way in, o out, h on the host
        self.free = 0  # places
        self.ends = {}  # of what is on its way: when
        self.time = self.waited = 0
        self.started = {}  # of a layer that is not on the device: when it began to leave
        self.trips = []  # from there until it was on the device again, in ticks

    def land(self):
        for layer in [k for k, end in self.ends.items() if end <= self.time]:
            del self.ends[layer]
            if self.where[layer] == "i":
                self.where[layer] = "."
                if layer in self.started:
                    self.trips.append(self.time - self.started.pop(layer))
            else:
                self.where[layer] = "h"
                self.free += 1

    def start(self, layer):
        """The layer starts to compute; gives (time, layer, where every layer is, swaps that begin), counted from 1."""
        began = []
        while True:
            self.land()
            began += self.begin(layer)
            if self.where[layer] == ".":
                break
            self.time += 1
            self.waited += 1
        picture = self.where.copy()
        picture[layer] = "#"
        row = (self.time, layer + 1, " ".join(picture), ", ".join(began))
        self.time += 1
        return row

    def begin(self, layer):
        def until(other):  # its next use
            return (other - layer) % self.layers

        began = []
        host = [k for k in range(self.layers) if self.where[k] == "h"]
        coldest = max((k for k in range(self.layers) if self.where[k] == "." and k != layer), key=until, default=None)
        if "i" not in self.where and self.free and host:
            hottest = min(host, key=until)
            self.where[hottest], self.ends[hottest] = "i", self.time + self.swap
            self.free -= 1
            began.append(f"{hottest + 1} in")
        if "o" not in self.where and coldest is not None and any(until(k) < until(coldest) for k in host):
            self.where[coldest], self.ends[coldest] = "o", self.time + self.swap
            self.started[coldest] = self.time
            began.append(f"{coldest + 1} out")
        return began

    def play(self, iterations):
        return [self.start(layer) for _ in range(iterations) for layer in range(self.layers)]


def trips(mapping, iteration_ns):
    """Of `inspect --mapping --json` and the ns that each phase takes: from the start of each swap-out to the end of that
    layer's swap-in, in ns, over two cycles."""
    swaps, at = [], 0
    for phase, length in list(zip(mapping["phases"], iteration_ns)) * 2:
        swaps += [(at + s["begin_ns"], at + s["end_ns"], s["direction"], s["layer"]) for s in phase["swaps"]]
        at += length
    found, left = [], {}
    for begin, end, direction, layer in sorted(swaps):
        if direction == "d2h":
            left[layer] = begin
        elif layer in left:
            found.append(end - left.pop(layer))
    return found


def swapped(fig, flags, places):
    """A plan of layers.toml: (layers away, ms of compute, ms of each iteration of the cycle, mapping)."""
    command = f"compile examples/pie/layers.toml {flags}--policy pie --kv-places {places} -o layers.plan"
    printed = fig.run(command + " --overwrite", show=False)
    fig.say(f"\n$ headrace {command}\n" + next(line for line in printed.splitlines() if line.startswith("why")))
    plan = json.loads(fig.run("inspect layers.plan --json", show=False))
    mapping = json.loads(fig.run("inspect layers.plan --mapping --json", show=False))
    variants = sorted(plan["variants"], key=lambda v: v["key"]["phase"])
    return (plan["model"]["layers"] - places, variants[0]["compute_alone_ms"],
            [v["predicted_iteration_ms"] for v in variants], mapping)


def copy_layers(fig):
    folder = os.path.join(fig.folder, "examples", "pie")
    os.makedirs(folder)
    shutil.copy(os.path.join(HERE, "layers.toml"), folder)


def waits(compute, iterations):
    mean = sum(iterations) / len(iterations)
    return f"{mean - compute:.1f} of {mean:.1f} ms" if mean > 1.001 * compute else "never"


def figure_4(fig):
    """Nine layers, two away, a swap takes what two compute."""
    fig.say("\nThe protocol, by the paper's words (protocol.py), from the first layer on; layers counted from 1\n"
            "#  the layer that computes   .  on the device   i  on its way in   o  on its way out   h  on the host")
    paper = Protocol(9, 2, 2)
    rows = paper.play(2)
    fig.table(["time", "layer  1 2 3 4 5 6 7 8 9", "swaps that begin"],
              [[time, f"{layer}      {picture}", began.ljust(16)] for time, layer, picture, began in rows])
    later = paper.play(98)
    copy_layers(fig)
    _, compute, iterations, mapping = swapped(fig, "", 7)
    fig.run("inspect layers.plan --mapping")
    layer = compute / 9
    took = [t / 1e6 / layer for t in trips(mapping, [i * 1e6 for i in iterations])]
    fig.say("\nA plan's iterations end with their copies, so a swap that would cross an iteration's edge begins behind it: "
            f"of the cycle's\n{len(iterations)} iterations {sum(i > 1.001 * compute for i in iterations)} are up to "
            f"{max(iterations) - compute:.1f} ms longer than their compute of {compute:.1f} ms.")
    fig.found("Figure 4: what begins at layers 1 to 4", "nothing; 1 out; nothing; 8 in, 3 out",
              "; ".join(began or "nothing" for _, _, _, began in rows[:4]))
    queue = {sum(picture.count(c) for c in "oih") for _, _, picture, _ in later}
    fig.found("Figure 4: layers in the queue; compute times that each spends there", "4; 8",
              f"{spread_of(queue)}; {spread_of(set(paper.trips))}, by the protocol")
    fig.found("Figure 4: the same in a plan, from a swap-out's start to the swap-in's end, mean", "8",
              f"{sum(took) / len(took):.1f} ({min(took):.1f} to {max(took):.1f})")
    fig.found("Figure 4: compute waits, 100 iterations of the protocol; in a plan, an iteration", "never",
              f"{paper.waited or 'never'}; {waits(compute, iterations)}: no swap crosses an iteration's edge")


def spread_of(values):
    return f"{min(values)}" if len(values) == 1 else f"{min(values)} to {max(values)}"


def figure_5(fig):
    """Six layers, four away, then three."""
    fig.say("\nThe link of layers.toml twice as fast: a swap takes one layer's compute")
    copy_layers(fig)
    rows, found = [], {}
    for places in (2, 3, 4, 5):
        away, compute, iterations, _ = swapped(fig, "--layers 6 --model-name six --h2d-bandwidth 188MiB/s ", places)
        if places < 4:
            fig.run("inspect layers.plan --mapping")
        paper = Protocol(6, away, 1)
        paper.play(10)
        waited = paper.waited
        paper.play(100)
        found[away] = waits(compute, iterations)
        rows.append([away, f"{(paper.waited - waited) / 100:.0f} layers' compute", found[away]])
    fig.say("\nwhat compute waits for in an iteration")
    fig.table(["layers away", "by the protocol", "as planned"], rows)
    for away, paper in ((4, "waits"), (3, "does not")):
        fig.found(f"Figure 5: {away} layers away: compute waits", paper, found[away])
    most = max(away for away, waited in found.items() if waited == "never")
    fig.found("Figure 5: layers that the controller leaves on the CPU, after four", "one fewer, 3",
              f"{most} is the most that does not wait")
