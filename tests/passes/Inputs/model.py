# SPDX-License-Identifier: Apache-2.0
"""Prints a decoder-only model in the model phase, with round sizes.

    model.py [--layers N] [--tied] [--relu] [--iterations decode,mixed] [--cycle PERIOD]

Sizes in bytes, all multiples of 256 (alignment):
    units        qkv 4096 = norm 256 + matrix 3840, out 2048, up 8192 = norm 256 + matrix 7936, down 4096,
                 embedding 16384, head 16384 = norm 256 + matrix 16128 (tied: 256, and the embedding)
    transients   x 1024, qkv 3072, up 4096 (gated: 2048 after activate), logits 4096; twice that in a mixed iteration
"""
import argparse

UNITS = {"qkv": 4096, "out": 2048, "up": 8192, "down": 4096}
META, IDS, KV, EMBEDDING, HEAD = "<1024, bytes>", "<256, bytes>", "<8192, bf16>", 16384, 16384


def iteration(kind, phase, options):
    scale = 1 if kind == "decode" else 2
    tied, gated = options.tied, not options.relu
    x, qkv, up, act, logits = (f"<{n * scale}, f32>" for n in (1024, 3072, 4096, 2048 if gated else 4096, 4096))
    head = 256 if tied else HEAD
    unit = {role: f"<{size}, bf16>" for role, size in UNITS.items()}
    lines = []
    emit = lambda line: lines.append("  " + line)

    emit(f"%meta = headrace.io meta : {META}")
    emit(f"%sampled = headrace.io sampled : {IDS}")
    emit(f"%output = headrace.io output : {IDS}")
    emit(f"%history = headrace.io history : {IDS}")
    emit(f'%embedding = headrace.weight 0 "embedding" embedding : <{EMBEDDING}, bf16>')
    for layer in range(options.layers):
        for i, role in enumerate(UNITS):
            name = f"layers.{layer}.{role}"
            emit(f'%{name} = headrace.weight {1 + 4 * layer + i} "{name}" {role} layer {layer} : {unit[role]}')
    emit(f'%head = headrace.weight {1 + 4 * options.layers} "head" head : <{head}, bf16>')
    for layer in range(options.layers):
        emit(f"%kv.{layer} = headrace.kv {layer} : {KV}")

    emit(f"%x.0, %nh = headrace.embed tokens(%meta) %embedding[0 for {EMBEDDING}], %sampled, %history"
         f" step<embedding, device_bytes 512> : {META}, <{EMBEDDING}, bf16>, {IDS}, {IDS} -> {x}")
    for layer in range(options.layers):
        a, m = f"step<attention {layer}", f"step<mlp {layer}"
        weight = lambda role: f"%layers.{layer}.{role}"
        emit(f"%n.{layer} = headrace.norm qkv tokens(%meta) %x.{layer}, {weight('qkv')}[0 for 256] {a}, flops 768>"
             f" : {META}, {x}, {unit['qkv']} -> {x}")
        emit(f"%q.{layer} = headrace.linear qkv tokens(%meta) %n.{layer}, {weight('qkv')}[256 for 3840] {a}, flops 3840>"
             f" : {META}, {x}, {unit['qkv']} -> {qkv}")
        emit(f"%r.{layer}, %k.{layer} = headrace.rope_append tokens(%meta) %q.{layer}, %kv.{layer} {a}, flops 512>"
             f" : {META}, {qkv}, {KV}")
        emit(f"%a.{layer} = headrace.attention tokens(%meta) %r.{layer}, %k.{layer} {a}, flops 8192> scratch 256"
             f" : {META}, {qkv}, {KV} -> {x}")
        emit(f"%o.{layer} = headrace.linear out tokens(%meta) %a.{layer}, {weight('out')}[0 for 2048] onto %x.{layer}"
             f" {a}, flops 2048> : {META}, {x}, {unit['out']} -> {x}")
        emit(f"%m.{layer} = headrace.norm up tokens(%meta) %o.{layer}, {weight('up')}[0 for 256] {m}, flops 768>"
             f" : {META}, {x}, {unit['up']} -> {x}")
        emit(f"%u.{layer} = headrace.linear up tokens(%meta) %m.{layer}, {weight('up')}[256 for 7936]"
             f"{'' if gated else ' then relu'} {m}, flops 7936> : {META}, {x}, {unit['up']} -> {up}")
        activated = f"%u.{layer}"
        if gated:
            activated = f"%s.{layer}"
            emit(f"{activated} = headrace.activate tokens(%meta) %u.{layer} {m}, flops 1024> : {META}, {up} -> {act}")
        emit(f"%x.{layer + 1} = headrace.linear down tokens(%meta) {activated}, {weight('down')}[0 for 4096]"
             f" onto %o.{layer} {m}, flops 4096> : {META}, {act}, {unit['down']} -> {x}")
    h = "step<head"
    emit(f"%g = headrace.gather_rows sampled(%meta) %x.{options.layers} {h}> : {META}, {x} -> {x}")
    emit(f"%f = headrace.norm head sampled(%meta) %g, %head[0 for 256] {h}, flops 768> : {META}, {x}, <{head}, bf16> -> {x}")
    if tied:
        emit(f"%l = headrace.linear head sampled(%meta) %f, %embedding[0 for {EMBEDDING}] {h}, flops 16384>"
             f" : {META}, {x}, <{EMBEDDING}, bf16> -> {logits}")
    else:
        emit(f"%l = headrace.linear head sampled(%meta) %f, %head[256 for 16128] {h}, flops 16128>"
             f" : {META}, {x}, <{head}, bf16> -> {logits}")
    emit(f"%ns, %no = headrace.sample sampled(%meta) %l, %nh, %sampled, %output {h}, flops 4096> scratch 256"
         f" : {META}, {logits}, {IDS}, {IDS}, {IDS}")
    emit(f"headrace.publish sampled(%meta) %no {h}> : {META}, {IDS}")

    tokens = 8 * scale if kind == "mixed" else 8
    name, cycle = (kind, "") if options.cycle == 1 else (f"{kind}_{phase}", f" cycle({phase} of {options.cycle})")
    header = f"headrace.iteration @{name} {kind} phase(model) limits({tokens}, 8, 2048){cycle} {{"
    return "\n".join([header, *lines, "}"])


def model(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tied", action="store_true", help="the head's matrix is the embedding")
    parser.add_argument("--relu", action="store_true", help="no gate: the activation is up's epilogue")
    parser.add_argument("--iterations", default="decode", help="decode, mixed, or both with a comma")
    parser.add_argument("--cycle", type=int, default=1, help="of each iteration so many that follow each other")
    options = parser.parse_args(arguments)
    return "\n".join(iteration(kind, phase, options)
                     for kind in options.iterations.split(",") for phase in range(options.cycle)) + "\n"


if __name__ == "__main__":
    print(model(), end="")
