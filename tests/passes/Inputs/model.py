# SPDX-License-Identifier: Apache-2.0
"""Prints a decoder-only model in the model phase, with round sizes.

    model.py [--layers N] [--tied] [--relu] [--iterations decode,mixed] [--cycle PERIOD] [--mini-batches M]
             [--stream BYTES [--middle]] [--acts BYTES [--rebuilt BYTES]]

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
    row, qkv, up, act, logits = (f"<{n * scale}, f32>" for n in (1024, 3072, 4096, 2048 if gated else 4096, 4096))
    x = f"<{options.stream}, f32>" if options.stream else row
    head = 256 if tied else HEAD
    unit = {role: f"<{size}, bf16>" for role, size in UNITS.items()}
    lines = []
    emit = lambda line: lines.append("  " + line)
    batches = range(options.mini_batches)
    # What each mini-batch has of its own: names, steps, declarations.
    of = lambda name, b: name if b == 0 else f"{name}.b{b}"
    step = lambda text, b: f"step<{text}" + (f", mini_batch {b}" if b else "")
    whose = lambda b: f" mini_batch({b})" if b else ""

    emit(f"%meta = headrace.io meta : {META}")
    for b in batches:
        emit(f"%{of('sampled', b)} = headrace.io sampled{whose(b)} : {IDS}")
    emit(f"%output = headrace.io output : {IDS}")
    for b in batches:
        emit(f"%{of('history', b)} = headrace.io history{whose(b)} : {IDS}")
    emit(f'%embedding = headrace.weight 0 "embedding" embedding : <{EMBEDDING}, bf16>')
    for layer in range(options.layers):
        for i, role in enumerate(UNITS):
            name = f"layers.{layer}.{role}"
            emit(f'%{name} = headrace.weight {1 + 4 * layer + i} "{name}" {role} layer {layer} : {unit[role]}')
    emit(f'%head = headrace.weight {1 + 4 * options.layers} "head" head : <{head}, bf16>')
    for layer in range(options.layers):
        for b in batches:
            emit(f"%{of(f'kv.{layer}', b)} = headrace.kv {layer}{whose(b)} : {KV}")
    for layer, b in ((layer, b) for layer in range(options.layers if options.acts else 0) for b in batches):
        emit(f"%{of(f'act.{layer}', b)} = headrace.act {layer}{whose(b)} : <{options.acts}, f32>")

    leaves = options.stream > 0
    for b in batches if leaves else []:
        emit(f"%{of('home', b)} = headrace.residual{whose(b)} : <host, {options.stream}, f32>")

    def comes(layer, b):
        emit(f"%{of(f'c.{layer}', b)} = headrace.on_device %{of('home', b)} : <host, {options.stream}, f32> -> {x}")
        return f"%{of(f'c.{layer}', b)}"

    def embed(b):
        into = f" into {comes(0, b)}" if leaves else ""
        emit(f"%{of('x.0', b)}, %{of('nh', b)} = headrace.embed tokens(%meta) %embedding[0 for {EMBEDDING}],"
             f" %{of('sampled', b)}, %{of('history', b)}{into} {step('embedding', b)}, device_bytes 512>"
             f" : {META}, <{EMBEDDING}, bf16>, {IDS}, {IDS} -> {x}")

    def gather(b):
        emit(f"%{of('g', b)} = headrace.gather_rows sampled(%meta) %{of(f'x.{options.layers}', b)}"
             f" {step('head', b)}> : {META}, {x} -> {row}")

    for b in batches if not leaves else []:
        embed(b)
    middle = options.middle
    for layer, b in ((layer, b) for layer in range(options.layers) for b in batches):
        a, m = step(f"attention {layer}", b), step(f"mlp {layer}", b)
        weight = lambda role: f"%layers.{layer}.{role}"
        n, q, r, k, att, o, mid, u, s = (f"%{of(f'{name}.{layer}', b)}" for name in "nqrkaomus")
        if leaves and layer == 0 and not middle:
            embed(b)
        entering, leaving = f"%{of(f'x.{layer}', b)}", f"%{of(f'x.{layer + 1}', b)}"
        if leaves and (layer == 0) == middle:
            entering = comes(layer, b)
        acts = f"<{options.acts}, f32>"
        again, more = (f", %{of(f'again.{layer}', b)}", f", <{options.rebuilt}, bf16>") if options.acts else ("", "")
        if options.acts:
            emit(f"{again[2:]} = headrace.rebuild_kv tokens(%meta) %{of(f'act.{layer}', b)}, {weight('qkv')}[256 for 3840]"
                 f" {a}, flops 7000, device_bytes 6000> scratch 512 : {META}, {acts}, {unit['qkv']}"
                 f" -> <{options.rebuilt}, bf16>")
        emit(f"{n} = headrace.norm qkv tokens(%meta) {entering}, {weight('qkv')}[0 for 256] {a}, flops 768>"
             f" : {META}, {x}, {unit['qkv']} -> {row}")
        if options.acts:
            emit(f"%{of(f'kept.{layer}', b)} = headrace.act_append tokens(%meta) {n}, %{of(f'act.{layer}', b)}"
                 f" {a}, device_bytes 800> : {META}, {row}, {acts}")
        emit(f"{q} = headrace.linear qkv tokens(%meta) {n}, {weight('qkv')}[256 for 3840] {a}, flops 3840>"
             f" : {META}, {row}, {unit['qkv']} -> {qkv}")
        appended, cache = (f"{k}:2", f"{k}#0, {k}#1") if options.acts else (k, k)
        emit(f"{r}, {appended} = headrace.rope_append tokens(%meta) {q}, %{of(f'kv.{layer}', b)}{again} {a}, flops 512>"
             f" : {META}, {qkv}, {KV}{more}")
        emit(f"{att} = headrace.attention tokens(%meta) {r}, {cache} {a}, flops 8192> scratch 256"
             f" : {META}, {qkv}, {KV}{more} -> {row}")
        emit(f"{o} = headrace.linear out tokens(%meta) {att}, {weight('out')}[0 for 2048] onto {entering}"
             f" {a}, flops 2048> : {META}, {row}, {unit['out']} -> {x}")
        emit(f"{mid} = headrace.norm up tokens(%meta) {o}, {weight('up')}[0 for 256] {m}, flops 768>"
             f" : {META}, {x}, {unit['up']} -> {row}")
        emit(f"{u} = headrace.linear up tokens(%meta) {mid}, {weight('up')}[256 for 7936]"
             f"{'' if gated else ' then relu'} {m}, flops 7936> : {META}, {row}, {unit['up']} -> {up}")
        activated = u
        if gated:
            activated = s
            emit(f"{s} = headrace.activate tokens(%meta) {u} {m}, flops 1024> : {META}, {up} -> {act}")
        emit(f"{leaving} = headrace.linear down tokens(%meta) {activated}, {weight('down')}[0 for 4096]"
             f" onto {o} {m}, flops 4096> : {META}, {act}, {unit['down']} -> {x}")
        if leaves and layer == options.layers - 1 and not middle:
            gather(b)
    output = "%output"
    for b in batches if not middle else []:
        h = step("head", b)
        sampled, history = (f"%{of(name, b)}" for name in ("sampled", "nh"))
        g, f, l, ns, no = (f"%{of(name, b)}" for name in ("g", "f", "l", "ns", "no"))
        if not leaves:
            gather(b)
        emit(f"{f} = headrace.norm head sampled(%meta) {g}, %head[0 for 256] {h}, flops 768>"
             f" : {META}, {row}, <{head}, bf16> -> {row}")
        if tied:
            emit(f"{l} = headrace.linear head sampled(%meta) {f}, %embedding[0 for {EMBEDDING}] {h}, flops 16384>"
                 f" : {META}, {row}, <{EMBEDDING}, bf16> -> {logits}")
        else:
            emit(f"{l} = headrace.linear head sampled(%meta) {f}, %head[256 for 16128] {h}, flops 16128>"
                 f" : {META}, {row}, <{head}, bf16> -> {logits}")
        emit(f"{ns}, {no} = headrace.sample sampled(%meta) {l}, {history}, {sampled}, {output} {h}, flops 4096>"
             f" scratch 256 : {META}, {logits}, {IDS}, {IDS}, {IDS}")
        output = no
    homes = [f"%{of('home', b)}" for b in batches] if middle else []
    sends, types = (f" sends {', '.join(homes)}", f", <host, {options.stream}, f32>" * len(homes)) if homes else ("", "")
    emit(f"headrace.publish sampled(%meta) {output}{sends} step<head> : {META}, {IDS}{types}")

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
    parser.add_argument("--mini-batches", type=int, default=1)
    parser.add_argument("--stream", type=int, default=0,
                        help="bytes of x, which leaves the device between layers, in iterations of all kinds")
    parser.add_argument("--middle", action="store_true",
                        help="a stage that receives its streams and sends them; they stay between layers")
    parser.add_argument("--acts", type=int, default=0,
                        help="bytes of each layer's activation blocks, of which keys and values are rebuilt")
    parser.add_argument("--rebuilt", type=int, default=4096, help="bytes of these keys and values")
    options = parser.parse_args(arguments)
    return "\n".join(iteration(kind, phase, options)
                     for kind in options.iterations.split(",") for phase in range(options.cycle)) + "\n"


if __name__ == "__main__":
    print(model(), end="")
