#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how peers run OPT-6.7B in bfloat16 with part of its layers' weights in host memory.

peers
  resident             transformers, every weight on the device: the time that the others are compared with
  manual               the same model; offloaded layers are copied by a side stream into one of two slots
                       while the layers before them compute
  accelerate           accelerate.dispatch_model with the last layers on the host, in pinned memory
  accelerate-pageable  the same with ordinary host memory, as device_map="auto" places them
  graph                resident, replayed as one CUDA graph (only with --compile)
cells are named PEER/INTERVAL/WORK: work is decode32, decode1 (batch 32 and 1, context 256) or prefill (1,024
tokens); interval N keeps as many layers on the host as every Nth layer makes; resident and graph have interval 0.
"""
import time

START = time.perf_counter()  # imports count too

import argparse
import copy
import fnmatch
import json
import math
import mmap
import os
import statistics
import sys
import traceback

WARM_UP, MOST, LEAST, SLOW_MS = 3, 10, 5, 200.0
TOLERANCE = 2.0 ** -6  # of the largest logit: two to four units in its last place in bfloat16
INTERVALS = (4, 1, 2)  # in the order of how much they are wanted
OFFLOADING = ("manual", "accelerate", "accelerate-pageable")


def wanted_cells(compiled):
    """(peer, interval, work), the most wanted first."""
    works = ("decode32", "decode1", "prefill")
    cells = [("resident", 0, work) for work in works]
    cells += [("graph", 0, work) for work in works[:2] if compiled]
    cells += [("manual", 4, "decode32"), ("accelerate", 4, "decode32")]
    cells += [(peer, 4, work) for work in works[1:] for peer in OFFLOADING[:2]]
    cells += [(peer, 1, "decode32") for peer in OFFLOADING[:2]]
    cells += [("accelerate-pageable", 4, "decode32")]
    cells += [(peer, 2, "decode32") for peer in OFFLOADING[:2]]
    cells += [(peer, interval, work) for interval in INTERVALS[1:] for work in works[1:] for peer in OFFLOADING[:2]]
    return cells


def name_of(cell):
    return "/".join(map(str, cell))


def arguments():
    def seconds(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got '{text}'")
        return value

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="exit status: 0; 1 if a cell failed or its logits differ; 2 for arguments")
    parser.add_argument("--json", metavar="FILE", help="write one JSON object a line: the machine, then each cell")
    parser.add_argument("--seconds", type=seconds, default=60.0, metavar="N",
                        help="start no cell that would not end N seconds after the start (default: 60)")
    parser.add_argument("--only", metavar="PATTERN", action="append",
                        help="only cells whose names match, as 'manual/4/*'; resident cells that they need run too")
    parser.add_argument("--compile", action="store_true", help="also resident decode replayed as a CUDA graph")
    parser.add_argument("--tiny", action="store_true",
                        help="a tiny OPT of 8 layers on the CPU, without streams: tries the code, times mean nothing")
    parser.add_argument("--list", action="store_true", help="print the cells' names in their order, and stop")
    given = parser.parse_args()
    cells = wanted_cells(given.compile)
    for pattern in given.only or ():
        if not fnmatch.filter(map(name_of, cells), pattern):
            parser.error(f"--only: expected a pattern that matches a cell's name (--list shows them), got '{pattern}'")
    if given.only:
        asked = [cell for cell in cells if any(fnmatch.fnmatchcase(name_of(cell), p) for p in given.only)]
        cells = [c for c in cells if c in asked or (c[0] == "resident" and any(c[2] == a[2] for a in asked))]
    if given.list:
        print("\n".join(map(name_of, cells)))
        sys.exit(0)
    if given.tiny and given.compile:
        parser.error("--compile: expected a GPU, and --tiny runs on the CPU")
    try:
        given.json = open(given.json, "w", encoding="utf-8") if given.json else None
    except OSError as error:
        parser.error(f"--json: expected a file that can be written: {error}")
    return parser, given, cells


class Refused(Exception):
    """A cell that would not end in time."""


class Machine:
    """The device: streams, events and host memory, or on the CPU what stands for them."""

    def __init__(self, tiny):
        self.tiny = tiny
        self.device = torch.device("cpu" if tiny else "cuda:0")
        self.pin_rate = 2e9  # bytes/s, until one block was pinned
        self.registered = []  # kept: memory must not be unmapped while it is registered
        self.bandwidth = None

    def stream(self):
        return None if self.tiny else torch.cuda.Stream()

    def event(self, timed=False):
        return None if self.tiny else torch.cuda.Event(enable_timing=timed)

    def synchronize(self):
        if not self.tiny:
            torch.cuda.synchronize()

    def host_block(self, count, pinned=True):
        """`count` bfloat16 numbers of host memory in huge pages where there are some, touched, then pinned."""
        if self.tiny:
            return torch.empty(count, dtype=torch.bfloat16)
        began, size = time.perf_counter(), 2 * count
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except (OSError, ValueError):
            pass
        block = torch.frombuffer(memory, dtype=torch.uint8)
        block.zero_()  # by all cores; pinning would touch the pages with one
        block = block.view(torch.bfloat16)
        if not pinned:
            return block
        self.registered.append(block)
        if int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), size, 0)) != 0 or not block.is_pinned():
            self.registered.pop()
            try:
                torch.zeros(1, device=self.device)  # takes the error that registering left behind
            except RuntimeError:
                pass
            block = torch.empty(count, dtype=torch.bfloat16, pin_memory=True)
        self.pin_rate = size / (time.perf_counter() - began)
        return block

    def measure_link(self):
        """Bytes/s of a copy of 1 GiB from pinned memory: the median of five."""
        count = (1 << 20 if self.tiny else 1 << 30) // 2
        there, times = torch.empty(count, dtype=torch.bfloat16, device=self.device), []
        host = self.host_block(count)
        for _ in range(6):
            self.synchronize()
            began = time.perf_counter()
            there.copy_(host, non_blocking=True)
            self.synchronize()
            times.append(time.perf_counter() - began)
        self.bandwidth = 2 * count / statistics.median(times[1:])


class Weights:
    """OPT with random weights on the device, a layer's in one block, and copies of blocks on the host as asked for."""

    def __init__(self, machine):
        self.machine = machine
        sizes = dict(vocab_size=50272, hidden_size=4096, num_hidden_layers=32, ffn_dim=16384, num_attention_heads=32)
        if machine.tiny:
            sizes = dict(vocab_size=160, hidden_size=64, num_hidden_layers=8, ffn_dim=256, num_attention_heads=4)
        config = OPTConfig(**sizes, max_position_embeddings=2048, dropout=0.0)
        with torch.device("meta"):
            self.model = OPTForCausalLM._from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        self.model.eval()
        self.config = self.model.config
        decoder = self.model.model.decoder
        self.prefix = "model.decoder.layers."
        self.blocks = [self.random(sum(p.numel() for p in layer.parameters())) for layer in decoder.layers]
        for layer, block in zip(decoder.layers, self.blocks):
            bind(layer, block)
            for norm in (layer.self_attn_layer_norm, layer.final_layer_norm):
                norm.weight.add_(1)
        for module in (decoder.embed_tokens, decoder.embed_positions, decoder.final_layer_norm):
            bind(module, self.random(sum(p.numel() for p in module.parameters())))
        decoder.final_layer_norm.weight.add_(1)
        self.model.tie_weights()
        away = [name for name, p in self.model.named_parameters() if p.device != machine.device]
        if away or self.model.lm_head.weight is not decoder.embed_tokens.weight:
            raise RuntimeError(f"expected every weight on the device and tied embeddings; not: {away}")
        self.on_host = {}

    def random(self, count):
        return torch.empty(count, dtype=torch.bfloat16, device=self.machine.device).uniform_(-0.035, 0.035)

    @property
    def layer_bytes(self):
        return 2 * self.blocks[0].numel()

    def host(self, layer, pinned=True):
        if (layer, pinned) not in self.on_host:
            block = self.machine.host_block(self.blocks[layer].numel(), pinned)
            self.on_host[layer, pinned] = block.copy_(self.blocks[layer])
        return self.on_host[layer, pinned]

    def clone(self):
        """The same model, which shares every weight until some are bound to other memory."""
        return copy.deepcopy(self.model, {id(p): p for p in self.model.parameters()})


def bind(module, block):
    """Makes the module's parameters views of the block, in their order."""
    place = 0
    for name, parameter in list(module.named_parameters()):
        view = block[place:place + parameter.numel()].view(parameter.shape)
        owner = module.get_submodule(name.rpartition(".")[0])
        owner._parameters[name.rpartition(".")[2]] = torch.nn.Parameter(view, requires_grad=False)
        place += parameter.numel()


def split(module, block):
    """name -> view of the block, for the module's parameters in their order."""
    views, place = {}, 0
    for name, parameter in module.named_parameters():
        views[name] = block[place:place + parameter.numel()].view(parameter.shape)
        place += parameter.numel()
    return views


class Prefetch:
    """Two slots on the device; the kth offloaded layer runs from slot k % 2, and its end lets k + 2 come in."""

    def __init__(self, machine, weights, layers):
        self.machine, self.stream = machine, machine.stream()
        self.model = weights.clone()
        self.hosts = [weights.host(layer) for layer in layers]
        self.slots = [torch.full_like(weights.blocks[0], math.nan) for _ in range(2)]
        self.ready, self.free = [machine.event(), machine.event()], [machine.event(), machine.event()]
        for k, layer in enumerate(layers):
            module = self.model.model.decoder.layers[layer]
            bind(module, self.slots[k % 2])
            module.register_forward_pre_hook(lambda *_, slot=k % 2: self.await_copy(slot))
            module.register_forward_hook(lambda *_, k=k: self.release(k))
        machine.synchronize()
        for k in range(min(2, len(layers))):
            self.fetch(k)

    def await_copy(self, slot):
        if self.stream:
            torch.cuda.current_stream().wait_event(self.ready[slot])

    def release(self, k):
        if self.stream:
            self.free[k % 2].record()
        self.fetch(k + 2 if k + 2 < len(self.hosts) else min(k % 2, len(self.hosts) - 1))

    def fetch(self, k):
        slot = k % 2
        if not self.stream:
            self.slots[slot].copy_(self.hosts[k])
            return
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(self.free[slot])  # nothing to wait for before the first release
            self.slots[slot].copy_(self.hosts[k], non_blocking=True)
            self.ready[slot].record()


def dispatched(machine, weights, layers, pinned):
    """The model as accelerate runs it with these layers on the host, by the arguments that transformers gives it."""
    model = weights.clone()
    state, device_map = {}, {"model.decoder.embed_tokens": 0, "model.decoder.embed_positions": 0,
                             "model.decoder.final_layer_norm": 0, "lm_head": 0}
    for layer, module in enumerate(model.model.decoder.layers):
        device_map[f"{weights.prefix}{layer}"] = "cpu" if layer in layers else 0
        if layer in layers:
            views = split(module, weights.host(layer, pinned))
            state |= {f"{weights.prefix}{layer}.{name}": view for name, view in views.items()}
    extra = {}
    if machine.tiny:  # there "cpu" is where the model runs; "disk" with all weights at hand takes the same hooks
        device_map = {name: "disk" if place == "cpu" else "cpu" for name, place in device_map.items()}
        extra = {"offload_index": {}}
    accelerate.dispatch_model(model, device_map, state_dict=state, skip_keys=model._skip_keys_device_placement,
                              **extra)
    there = {name for name, p in model.named_parameters() if p.device.type == "meta"}
    if there != set(state):
        raise RuntimeError(f"expected accelerate to offload {len(state)} tensors, it did {len(there)}")
    return model


class Work:
    """One iteration's input: a decode step over a filled cache, always at the same position, or a prompt."""

    def __init__(self, machine, config, name):
        self.prefill = name == "prefill"
        device, context = machine.device, 16 if machine.tiny else 256
        batch, tokens = (1, 64 if machine.tiny else 1024) if self.prefill else (int(name[len("decode"):]), 1)
        self.config = config
        self.ids = torch.randint(3, config.vocab_size, (batch, tokens), device=device)
        first = 0 if self.prefill else context
        self.positions = torch.arange(first, first + tokens, device=device).expand(batch, tokens)
        self.options = dict(input_ids=self.ids, position_ids=self.positions, use_cache=True, logits_to_keep=1)
        if self.prefill:
            return
        room = context + 8
        self.cache = StaticCache(config=config, max_cache_len=room)
        self.cache.early_initialization(batch, config.num_attention_heads,
                                        config.hidden_size // config.num_attention_heads, torch.bfloat16, device)
        self.context = context
        self.lengths = torch.full((len(self.cache.layers),), context, device=device)
        for layer, length in zip(self.cache.layers, self.lengths):
            layer.keys.normal_(), layer.values.normal_()
            layer.cumulative_length = length  # one fill then takes all layers back to the context's end
        mask = (torch.arange(room, device=device) <= context).expand(batch, 1, 1, room).contiguous()
        self.options |= dict(attention_mask=mask, past_key_values=self.cache)

    def forward(self, model):
        if self.prefill:
            return model(past_key_values=DynamicCache(config=self.config), **self.options).logits
        self.lengths.fill_(self.context)
        return model(**self.options).logits


class Bench:
    def __init__(self, machine, seconds, out):
        self.machine, self.seconds, self.out = machine, seconds, out
        self.weights, self.works, self.built = None, {}, {}
        self.resident_ms, self.reference, self.records = {}, {}, []
        self.extra = {"accelerate": 0.010, "accelerate-pageable": 0.040}  # s a layer over its copy, then what was seen

    def left(self):
        return self.seconds - (time.perf_counter() - START)

    def say(self, record):
        record["at_s"] = round(time.perf_counter() - START, 2)
        if self.out:
            self.out.write(json.dumps(record) + "\n")
            self.out.flush()

    def layers(self, peer, interval):
        total = self.weights.config.num_hidden_layers
        every = list(range(interval - 1, total, interval)) if interval else []
        return every if peer == "manual" else list(range(total - len(every), total))

    def need(self, peer, interval, work):
        """Seconds that the cell is expected to take, what it still has to pin included."""
        weights, machine, layers = self.weights, self.machine, self.layers(peer, interval)
        fresh = [n for n in layers if (n, peer != "accelerate-pageable") not in weights.on_host]
        setup = 0.3 + 1.2 * len(fresh) * weights.layer_bytes / machine.pin_rate
        bound = len(layers) * weights.layer_bytes / machine.bandwidth
        alone = self.resident_ms.get(work, 50.0) / 1e3
        each = max(alone, bound) if peer not in self.extra else alone + bound + self.extra[peer] * len(layers)
        return setup + each * (WARM_UP + (MOST if each < SLOW_MS / 1e3 else LEAST))

    def runner(self, peer, interval, work):
        """A callable that runs one iteration and gives its logits."""
        if peer == "resident":
            return lambda: work.forward(self.weights.model)
        if peer == "graph":
            return captured(self.weights.model, work)
        if (peer, interval) not in self.built:
            layers = self.layers(peer, interval)
            if peer == "manual":
                self.built[peer, interval] = Prefetch(self.machine, self.weights, layers).model
            else:
                pinned = peer == "accelerate"
                self.built[peer, interval] = dispatched(self.machine, self.weights, layers, pinned)
        model = self.built[peer, interval]
        return lambda: work.forward(model)

    def iterate(self, run, name):
        """The wall times and the device's times in ms, and the first and the last logits."""
        walls, events, first, logits = [], [], None, None
        self.machine.synchronize()
        end, todo = time.perf_counter(), WARM_UP + MOST
        while len(walls) < todo:
            start, stop = self.machine.event(timed=True), self.machine.event(timed=True)
            if start:
                start.record()
            logits = run()
            token = logits[:, -1].argmax(-1)
            if stop:
                stop.record()
            token.cpu()  # waits for this stream only, as a server that needs the token does
            end, before = time.perf_counter(), end
            walls.append(1e3 * (end - before))
            if start:
                stop.synchronize()
            events.append(start.elapsed_time(stop) if start else walls[-1])
            first = logits.clone() if first is None else first
            if len(walls) == WARM_UP:
                todo = WARM_UP + (LEAST if walls[-1] > SLOW_MS else MOST)
            rest = (todo if len(walls) >= WARM_UP else WARM_UP + LEAST) - len(walls)
            if 1 < len(walls) <= WARM_UP and rest * walls[-1] / 1e3 > self.left():
                raise Refused(f"an iteration took {walls[-1]:.0f} ms, {rest} more do not fit")
        self.machine.synchronize()
        return walls[WARM_UP:], events[WARM_UP:], (first, logits)

    def cell(self, peer, interval, work):
        record = {"kind": "cell", "cell": name_of((peer, interval, work)), "peer": peer, "interval": interval,
                  "work": work}
        began = time.perf_counter()
        try:
            need = self.need(peer, interval, work)
            if need > self.left():
                raise Refused(f"needs about {need:.1f} s, {self.left():.1f} s left")
            if work not in self.works:
                self.works[work] = Work(self.machine, self.weights.config, work)
            run = self.runner(peer, interval, self.works[work])
            self.machine.synchronize()
            record["setup_s"] = round(time.perf_counter() - began, 3)
            walls, events, logits = self.iterate(run, record["cell"])
            self.judge(record, walls, events, logits)
        except Refused as why:
            record["skipped"] = str(why)
        except Exception as error:  # whatever it was, the other cells are still worth their time
            record["error"] = f"{type(error).__name__}: {error}"
            traceback.print_exc(file=sys.stderr)
        record["cell_s"] = round(time.perf_counter() - began, 3)
        self.records.append(record)
        self.say(record)
        print(" ".join(f"{key}={record[key]}" for key in ("cell", "ms", "event_ms", "GB/s", "ratio", "logits_max_diff",
                                                          "skipped", "error", "cell_s") if key in record), flush=True)

    def judge(self, record, walls, events, logits):
        peer, work = record["peer"], record["work"]
        brought = len(self.layers(peer, record["interval"])) * self.weights.layer_bytes
        ms = statistics.median(walls)
        if peer == "resident":
            self.resident_ms[work], self.reference[work] = ms, logits[0].float()
        record |= {"ms": round(ms, 3), "event_ms": round(statistics.median(events), 3), "iterations": len(walls),
                   "least_ms": round(min(walls), 3), "most_ms": round(max(walls), 3), "bytes": brought,
                   "GB/s": round(brought / ms / 1e6, 2)}
        if work in self.reference:
            copies = 1e3 * brought / self.machine.bandwidth
            bound = max(self.resident_ms[work], copies)
            if peer in self.extra:
                over = ms - self.resident_ms[work] - copies
                self.extra[peer] = max(0.0, over / 1e3 / len(self.layers(peer, record["interval"])))
            reference = self.reference[work]
            differences = [float((each.float() - reference).abs().max()) for each in logits]
            worst = None if any(map(math.isnan, differences)) else max(differences)  # JSON has no NaN
            largest = float(reference.abs().max())
            record |= {"resident_ms": round(self.resident_ms[work], 3), "bound_ms": round(bound, 3),
                       "ratio": round(ms / bound, 3), "logits_max_diff": worst, "largest_logit": largest,
                       "logits_ok": worst is not None and worst <= TOLERANCE * largest}

    def table(self):
        print("\n| cell | ms | by events | GB brought | GB/s | bound, ms | ratio | logits differ by |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for r in self.records:
            if "ms" not in r:
                print(f"| {r['cell']} | {'failed' if 'error' in r else 'skipped'} | | | | | | |")
                continue
            differ = r.get("logits_max_diff")
            differ = "NaN" if differ is None else f"{differ:.4g}"
            print(f"| {r['cell']} | {r['ms']:.2f} | {r['event_ms']:.2f} | {r['bytes'] / 1e9:.2f} | {r['GB/s']:.1f} "
                  f"| {r.get('bound_ms', math.nan):.2f} | {r.get('ratio', math.nan):.3f} "
                  f"| {differ}{'' if r.get('logits_ok', True) else ' TOO MUCH'} |")


def captured(model, work):
    """One decode step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work.forward(model)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = work.forward(model)

    def replay():
        graph.replay()
        return logits
    return replay


def main():
    parser, given, cells = arguments()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    try:
        global torch, accelerate, OPTConfig, OPTForCausalLM, DynamicCache, StaticCache
        import accelerate
        import torch
        import transformers
        from transformers import DynamicCache, OPTConfig, OPTForCausalLM, StaticCache
    except ImportError as error:
        parser.error(f"expected torch, transformers and accelerate to be installed: {error}")
    if not given.tiny and not torch.cuda.is_available():
        parser.error("expected a GPU that torch can use; --tiny tries the code on the CPU")
    torch.manual_seed(1)
    bench = Bench(Machine(given.tiny), given.seconds, given.json)
    with torch.inference_mode():
        imported = time.perf_counter() - START
        bench.machine.measure_link()
        bench.weights = Weights(bench.machine)
        bench.machine.synchronize()
        about = {"kind": "machine", "device": "CPU (tiny)" if given.tiny else torch.cuda.get_device_name(),
                 "torch": torch.__version__, "transformers": transformers.__version__,
                 "accelerate": accelerate.__version__, "h2d_GB/s": round(bench.machine.bandwidth / 1e9, 2),
                 "pin_GB/s": round(bench.machine.pin_rate / 1e9, 2), "layer_bytes": bench.weights.layer_bytes,
                 "imports_s": round(imported, 2)}
        bench.say(about)
        print(" ".join(f"{key}={value}" for key, value in about.items()), flush=True)
        for cell in cells:
            bench.cell(*cell)
    bench.table()
    failed = any("error" in r or not r.get("logits_ok", True) for r in bench.records)
    sys.stdout.flush()
    if given.json:
        given.json.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
