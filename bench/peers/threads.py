#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Headrace and llama.cpp on the CPU by number of threads, in turns: a model that is resident, one sequence.

    bench/peers/threads.py --model FOLDER --gguf FILE [--threads 1,2] [--tries 2] [--json FILE]

FOLDER is the checkpoint as Hugging Face has it, FILE the same weights in the same element type as GGUF. llama.cpp is
its Python package (llama-cpp-python, built from source for this machine: CMAKE_ARGS=-DGGML_NATIVE=ON). A try is
headrace, llama.cpp, headrace, llama.cpp, ... with each number of threads; a figure is the better of a try's turns, and
all tries are given. Of each number of threads: decode (tokens a second after a prompt of --prompt tokens) and prefill
(tokens a second of that prompt), headrace's over llama.cpp's.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

PEER = """
import json, sys, time
import llama_cpp
model, threads, prompt, new = sys.argv[1], *map(int, sys.argv[2:5])
llama = llama_cpp.Llama(model, n_ctx=prompt + new + 8, n_batch=prompt, n_ubatch=prompt, n_threads=threads,
                        n_threads_batch=threads, verbose=False)
vocab = llama.n_vocab()
ids = [5 + i * 7 % (vocab - 10) for i in range(prompt)]
llama.eval(ids[:8]); llama.reset()
start = time.perf_counter(); llama.eval(ids); prefill = time.perf_counter() - start
gaps = []
for i in range(new):
    start = time.perf_counter(); llama.eval([5 + i * 11 % (vocab - 10)]); gaps.append(time.perf_counter() - start)
gaps.sort()
print(json.dumps({"prefill": prompt / prefill, "decode": 1 / gaps[len(gaps) // 2]}))
"""


def run(words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words[:2])}: exit {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def headrace(args, threads):
    ids = ",".join(str(5 + i * 7 % 1000) for i in range(args.prompt))
    ran = run([args.headrace, "run", args.model, "--threads", str(threads), "--prompt-ids", ids, "--max-new-tokens",
               str(args.new), "--max-num-batched-tokens", str(args.prompt), "--policy", "none", "--json"])
    return {"prefill": args.prompt / ran["ttft_ms"] * 1e3, "decode": 1e3 / ran["tpot_ms"]}


def peer(args, threads):
    return run([args.python, "-c", PEER, args.gguf, str(threads), str(args.prompt), str(args.new)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--headrace", default=os.path.join(here, "../../build/release/tools/headrace"))
    parser.add_argument("--python", default=sys.executable, help="one that has llama_cpp")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3, help="of each in a try")
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--json")
    args = parser.parse_args()
    counts = [int(t) for t in args.threads.split(",")]
    tries = []
    for number in range(args.tries):
        best = {t: {"headrace": {}, "llama.cpp": {}} for t in counts}
        for _ in range(args.turns):
            for t in counts:
                for name, measure in (("headrace", headrace), ("llama.cpp", peer)):
                    for what, rate in measure(args, t).items():
                        best[t][name][what] = max(rate, best[t][name].get(what, 0))
        tries.append(best)
        print(f"try {number + 1} of {args.tries}, {time.strftime('%F %T')}")
        for t in counts:
            for what in ("decode", "prefill"):
                ours, theirs = best[t]["headrace"][what], best[t]["llama.cpp"][what]
                scaled = ours / best[counts[0]]["headrace"][what]
                print(f"  {t:3} threads  {what:8} headrace {ours:9.1f}/s  llama.cpp {theirs:9.1f}/s  "
                      f"ratio {ours / theirs:5.2f}  of {counts[0]} {scaled:5.2f}")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"model": args.model, "threads": counts, "prompt": args.prompt, "new": args.new,
                       "tries": tries,
                       "median_decode_ratio": {t: statistics.median(
                           one[t]["headrace"]["decode"] / one[t]["llama.cpp"]["decode"] for one in tries)
                           for t in counts}}, out, indent=1)


if __name__ == "__main__":
    main()
