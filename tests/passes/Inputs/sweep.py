# SPDX-License-Identifier: Apache-2.0
"""Runs the whole pipeline over models, rules, choices of layers and of single units, slots, rings and cuts, verifying each phase; then takes waits
away one at a time, each of which must be noticed.

    sweep.py HEADRACE_OPT
"""
import itertools
import random
import subprocess
import sys

import model

VERIFY = "-headrace-verify-phase"


def run(opt, text, passes):
    return subprocess.run([opt, *passes], input=text, capture_output=True, text=True)


def pipeline(layers, embedding, head, slots, wrap_units, wrap_bytes, units=(), ring=0):
    homes = f"layers={','.join(map(str, layers))} embedding={int(embedding)} head={int(head)}"
    if units:
        homes += f" units={','.join(map(str, units))}"
    movement = f"slots={slots} ring-bytes={ring} wrap-units={wrap_units} wrap-bytes={wrap_bytes}"
    if not layers:
        homes = homes.replace("layers= ", "")
    return [VERIFY, f"-headrace-choose-homes={homes}", VERIFY, f"-headrace-insert-movement={movement}", VERIFY,
            "-headrace-assign-lanes", "-headrace-insert-waits", "-headrace-elide-waits", VERIFY,
            "-headrace-place-buffers", VERIFY]


def cases():
    generator = random.Random(22)
    for count, rule, tied in itertools.product((1, 5), ("paper", "eager"), (False, True)):
        every = list(range(count))
        choices = [every[i - 1::i] for i in range(1, count + 1)]       # intervals
        choices += [sorted(generator.sample(every, k)) for k in range(count + 1)]
        for layers in choices:
            embedding, head = generator.random() < 0.5, generator.random() < 0.5
            # Units in order of use; a cut is legal as far as no unit lies where an earlier one does.
            units = 4 * len(layers)
            for slots in (0, 1, 3):
                held = min(len(layers), slots or 2) * 4
                wraps = [(0, 0)]
                if rule == "eager" and units:
                    n = generator.randint(0, held - 1)
                    wraps += [(n, 256 * generator.randint(1, 7)), (held, 0)]
                for wrap in wraps:
                    yield ["--layers", str(count), "--rule", rule, "--iterations", "decode,mixed"] + ["--tied"] * tied, \
                        pipeline(layers, embedding, head, slots, *wrap)


def ring_cases():
    """Random sets of units under both rules, with layer-sized slots and in rings of any size that holds the largest."""
    generator = random.Random(4)
    size = list(model.UNITS.values())
    for _ in range(120):
        count, tied, head = generator.randint(1, 5), generator.random() < 0.5, generator.random() < 0.3
        rule = generator.choice(("paper", "eager", "eager"))
        units = sorted(generator.sample(range(1, 4 * count + 1), generator.randint(1, 4 * count)))
        sizes = [size[(unit - 1) % 4] for unit in units]
        if head:  # the tied head's unit is its norm, its matrix the embedding
            sizes += [256, model.EMBEDDING] if tied else [model.HEAD]
        ring, wrap = 0, (0, 0)
        if rule == "eager" and generator.random() < 0.8:
            ring = generator.randint(max(sizes), sum(sizes))
            # What lies in the first half of a lap in any case: the first unit, in part or whole.
            wrap = generator.choice(((0, 0), (0, 256), (1, 0)))
        yield ["--layers", str(count), "--rule", rule, "--iterations", "decode,mixed"] + ["--tied"] * tied, \
            pipeline([], head and tied, head, 0 if ring else generator.randint(1, 3), *wrap, units, ring)


def main(opt):
    total = refused = 0
    for arguments, passes in itertools.chain(cases(), ring_cases()):
        result = run(opt, model.model(arguments), passes)
        if result.returncode:
            sys.exit(f"model.py {' '.join(arguments)} | headrace-opt {' '.join(passes)}\n{result.stderr[:2000]}")
        total += 1
        if total % 8 and "ring-bytes=0" in " ".join(passes):
            continue
        # Every wait is needed: without it, the order of some two steps is lost.
        lines = result.stdout.splitlines()
        waits = [i for i, line in enumerate(lines) if line.lstrip().startswith("headrace.wait ") and " pacing " not in line]
        mutants = ["\n".join(lines[:i] + lines[i + 1:]) for i in waits]
        checked = run(opt, "\n// -----\n".join(mutants), ["-split-input-file", "-mlir-print-op-on-diagnostic=false", VERIFY])
        errors = checked.stderr.count("error: ")
        if errors != len(mutants):
            sys.exit(f"{len(mutants)} programs without one of their waits, {errors} refused:\n"
                     f"model.py {' '.join(arguments)} | headrace-opt {' '.join(passes)}\n{checked.stderr[:2000]}")
        refused += errors
    print(f"{total} pipelines, {refused} programs without one of their waits refused")


if __name__ == "__main__":
    main(sys.argv[1])
