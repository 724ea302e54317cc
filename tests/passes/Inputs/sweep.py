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
RULES = ("paper", "eager", "ahead-0", "ahead-1", "ahead-2")


def run(opt, text, passes):
    return subprocess.run([opt, *passes], input=text, capture_output=True, text=True)


def pipeline(rule, away, slots, wrap_units, wrap_bytes, ring=0):
    """`away`: units. The cut is that of both classes, where it is one."""
    text = f"start={rule}"
    if away:
        text = f"weights={','.join(map(str, sorted(away)))} {text}"
    if slots:
        text += f" slots={slots}"
    if ring:
        text += f" ring={ring}"
    if wrap_units or wrap_bytes:
        text += f" decode-cut={wrap_units}+{wrap_bytes} mixed-cut={wrap_units}+{wrap_bytes}"
    homes = movement = "residency={" + text + "}"
    return [VERIFY, f"-headrace-choose-homes={homes}", VERIFY, f"-headrace-insert-movement={movement}", VERIFY,
            "-headrace-assign-lanes", "-headrace-insert-waits", "-headrace-elide-waits", VERIFY,
            "-headrace-place-on-host", "-headrace-place-buffers", VERIFY]


def cases():
    generator = random.Random(22)
    for count, rule, tied in itertools.product((1, 5), RULES, (False, True)):
        every = list(range(count))
        choices = [every[i - 1::i] for i in range(1, count + 1)]       # intervals
        choices += [sorted(generator.sample(every, k)) for k in range(count + 1)]
        for layers in choices:
            embedding, head = generator.random() < 0.5, generator.random() < 0.5
            away = [1 + 4 * layer + unit for layer in layers for unit in range(4)]
            away += [0] * embedding + [1 + 4 * count] * head
            # Units in order of use; a cut is legal as far as no unit lies where an earlier one does.
            units = 4 * len(layers)
            for slots in (0, 1, 3):
                if rule == "ahead-2" and slots == 1:
                    continue  # two items are there on entry
                held = min(len(layers), slots or 2) * 4
                wraps = [(0, 0)]
                if rule == "eager" and units:
                    n = generator.randint(0, held - 1)
                    wraps += [(n, 256 * generator.randint(1, 7)), (held, 0)]
                for wrap in wraps:
                    yield ["--layers", str(count), "--iterations", "decode,mixed"] + ["--tied"] * tied, \
                        pipeline(rule, away, slots, *wrap)


def ring_cases():
    """Random sets of units under all rules, with layer-sized slots and in rings of any size that holds the largest."""
    generator = random.Random(4)
    size = list(model.UNITS.values())
    for _ in range(120):
        count, tied, head = generator.randint(1, 5), generator.random() < 0.5, generator.random() < 0.3
        rule = generator.choice(("eager", "eager") + RULES)
        units = sorted(generator.sample(range(1, 4 * count + 1), generator.randint(1, 4 * count)))
        sizes = [size[(unit - 1) % 4] for unit in units]
        if head:  # the tied head's unit is its norm, its matrix the embedding
            sizes += [256, model.EMBEDDING] if tied else [model.HEAD]
        ring, wrap = 0, (0, 0)
        if rule == "eager" and generator.random() < 0.8:
            ring = generator.randint(max(sizes), sum(sizes))
            # What lies in the first half of a lap in any case: the first unit, in part or whole.
            wrap = generator.choice(((0, 0), (0, 256), (1, 0)))
        away = units + [0] * (head and tied) + [1 + 4 * count] * head
        yield ["--layers", str(count), "--iterations", "decode,mixed"] + ["--tied"] * tied, \
            pipeline(rule, away, 0 if ring else generator.randint(2, 3), *wrap, ring)


def place_cases():
    """Tails of caches in fewer places than layers: whole cycles of both classes, every way to write back, weights away
    as well, from block 0 and from a later one on."""
    generator = random.Random(9)
    cycles = ((3, 2, 2), (4, 2, 1), (4, 3, 1), (5, 3, 9), (5, 4, 12), (6, 5, 4), (8, 5, 1), (8, 6, 3))
    for (count, places, period), back in itertools.product(cycles, ("mirror", "all", "dirty", "both")):
        decode, mixed = ("dirty", "mirror") if back == "both" else (back, back)
        resident = generator.choice((0, 1, 2))
        text = f"kv=0-{count - 1}@{resident} kv-places={places} decode-write-back={decode} mixed-write-back={mixed}"
        if generator.random() < 0.6:
            units = sorted(generator.sample(range(1, 4 * count + 1), generator.randint(1, 4)))
            text += f" weights={','.join(map(str, units))} slots=2"
            if generator.random() < 0.5:
                text += " decode-cut=0+256 mixed-cut=0+256"
        residency = "residency={" + text + "}"
        yield ["--layers", str(count), "--iterations", "decode,mixed", "--cycle", str(period)], \
            [VERIFY, f"-headrace-choose-homes={residency} kv-blocks=4 kv-block-bytes=2048 kv-mirror={resident}", VERIFY,
             f"-headrace-insert-movement={residency}", VERIFY, "-headrace-verify-cycles", "-headrace-assign-lanes",
             "-headrace-insert-waits", "-headrace-elide-waits", VERIFY, "-headrace-place-on-host",
             "-headrace-place-buffers", VERIFY, "-headrace-verify-cycles"]


def residual_cases():
    """Residual streams of 1 to 4 mini-batches leave between layers, in as many slots as from one to more than are needed;
    weights away as well, or not, in slots or a ring; caches whole, or split and written back in every way."""
    generator = random.Random(20)
    for count, batches, slots in itertools.product((1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 5)):
        text = f"residual-slots={slots}"
        split = ""
        if generator.random() < 0.7:
            units = sorted(generator.sample(range(1, 4 * count + 1), generator.randint(1, 4)))
            units = [0] * (generator.random() < 0.3) + units + [1 + 4 * count] * (generator.random() < 0.3)
            text += f" weights={','.join(map(str, units))} " + generator.choice(("slots=2", f"ring={2 * model.HEAD}"))
        if "weights" in text and generator.random() < 0.4:
            text += " decode-cut=0+256 mixed-cut=0+256"
        elif generator.random() < 0.6:
            resident = generator.choice((0, 1, 2))
            back = generator.choice(("mirror", "all", "dirty"))
            text += f" kv=0-{count - 1}@{resident} decode-write-back={back} mixed-write-back={back}"
            split = f" kv-blocks=4 kv-block-bytes=2048 kv-mirror={resident}"
        residency = "residency={" + text + "}"
        yield ["--layers", str(count), "--iterations", "decode,mixed", "--mini-batches", str(batches), "--stream", "2048"], \
            [VERIFY, f"-headrace-choose-homes={residency}{split}", VERIFY,
             f"-headrace-insert-movement={residency}", VERIFY, "-headrace-assign-lanes", "-headrace-insert-waits",
             "-headrace-elide-waits", VERIFY, "-headrace-place-on-host", "-headrace-place-buffers", VERIFY]


def main(opt):
    total = refused = 0
    for arguments, passes in itertools.chain(cases(), ring_cases(), place_cases(), residual_cases()):
        result = run(opt, model.model(arguments), passes)
        if result.returncode:
            sys.exit(f"model.py {' '.join(arguments)} | headrace-opt {' '.join(passes)}\n{result.stderr[:2000]}")
        total += 1
        if total % 8 and "ring=" not in " ".join(passes):
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
