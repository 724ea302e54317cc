#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench_cuda's parts `steps` and `handshake` over the stand-in for CUDA's runtime, on a small model: every step has a figure
# beside its bound, a kernel that does not wait for the one before is noticed, and what the driver has not is an answer.
#
#   bench_steps_test.sh PROGRAM FOLDER       FOLDER: the stand-in's libraries
set -uo pipefail
program=$1
source=$PWD
export HEADRACE_CUDA_LIBRARIES=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir -p examples/models
cp -r "$source/examples/hardware" examples
cat >examples/models/llama-3.1-8b.toml <<'MODEL'
family = "llama"
layers = 2
hidden = 32
heads = 4
kv_heads = 1
head_dim = 128
intermediate = 48
vocab = 96
max_positions = 8
dtype = "bf16"
MODEL
cat >examples/models/opt-6.7b.toml <<'MODEL'
family = "opt"
layers = 2
hidden = 32
heads = 2
intermediate = 48
vocab = 64
max_positions = 8
dtype = "f16"
MODEL
failures=0
expect() { # what, command
  "${@:2}" || { echo "FAILED: $1" && failures=$((failures + 1)); }
}

"$program" --part steps --part handshake --json figures.json >first.log
expect 'all measured' test $? = 0
"$program" --part steps --part handshake --json figures.json >second.log
expect 'and not again' test "$(grep -cE 'bound us|kernel between us' second.log)" = 0
expect 'figures' python3 - <<'CHECK'
import json
report = json.load(open("figures.json"))
facts = report["facts"]
assert facts["device"] == "stand-in" and facts["profile"] == "h200, which names another GPU", facts
assert facts["peak memory GB/s"] == 4800 and facts["peak TFLOP/s, 16 bits"] == 989, facts
steps = {f["name"]: f for f in report["parts"]["steps"]["figures"]}
assert all(abs(f["share"] - f["bound us"] / f["us"]) < 1e-9 and f["bound us"] > 0 for f in steps.values()), steps
products = [f for f in steps.values() if "candidates" in f]
assert len(products) == 10 and all(f["candidates"] == 2 for f in products), products
assert all(len(f["all us"].split()) == 2 and f["its us"] <= f["us"] for f in products), products
# q, k, v of one row: 4 + 1 heads read and written, 1 read, 2 written: 13 x 128 x 2 bytes by 4.8 TB/s
assert abs(steps["rope_append, 1 rows"]["bound us"] - 13 * 256 / 4.8e6) < 1e-12, steps["rope_append, 1 rows"]
assert abs(steps["sample, greedy, 8 of 96"]["bound us"] - 8 * 96 * 4 / 4.8e6) < 1e-12
for name in ("rms norm, 8 rows", "layer norm, 1 rows", "sample, top p 0.9 of all alike, 1 of 64",
             "sample, top p 0.9 of few, 8 of 64", "attention, decode of 32, contexts up to 8",
             "attention, a chunk of 8 and decode of 31, contexts up to 8", "attention, prefill of 8"):
  assert name in steps, sorted(steps)
assert steps["chain of 200 kernels, 8 rows"]["us, programmatic edges"] > 0
asked = report["parts"]["handshake"]["figures"]
assert [f["name"].split(",")[0] for f in asked[::3]] == ["host node", "memory operations", "a kernel that looks"], asked
assert all(f["bound us"] > 0 for f in asked), asked
assert len(asked) == 9 and all(f["copies of 64 MiB"] >= 1 for f in asked if "beside" in f["name"]), asked
CHECK
# A driver without memory operations: that is said, the rest is measured, and nothing failed.
HEADRACE_STAND_IN_NO_MEM_OPS=1 "$program" --part handshake --json without.json >without.log
expect 'without memory operations: 77' test $? = 77
expect 'without memory operations: three say so' test \
  "$(grep -c 'memory operations, .*unavailable "cuGraphAddBatchMemOpNode: cudaErrorNotSupported' without.log)" = 3
expect 'without memory operations: six others' test "$(grep -cE '^(host node|a kernel).* us ' without.log)" = 6
# The planted fault: one kernel of each chain does not wait for the one before.
HEADRACE_STAND_IN_DROPS_A_WAIT=1 "$program" --part steps --filter chain --json faulty.json >faulty.log
expect 'a wait left out: it fails' test $? = 1
expect 'a wait left out: each chain says so' test "$(grep -c 'a kernel did not wait for the one before' faulty.log)" = 2
[ $failures -eq 0 ]
