#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench_cuda's part `same-tokens` over the stand-in for CUDA's runtime, on small models of the names that it asks for: replies
# are the same, and with a copy's wait left out of every graph it says in which placement they are not.
#
#   bench_same_tokens_test.sh PROGRAM FOLDER       FOLDER: the stand-in's libraries
set -uo pipefail
program=$1
source=$PWD
export HEADRACE_CUDA_LIBRARIES=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir -p examples/models
cp -r "$source/examples/hardware" examples
# Models this small are all kernels' overheads where attention has its own, and copies then have so long that a wait for
# one is never needed.
sed -i '/^\(product\|prefill_attention\|decode_attention\|attention\|row\|plain_attention\)_/d' examples/hardware/h200.toml
model() { # name, heads, key heads, head size
  cat >"examples/models/$1.toml" <<MODEL
family = "llama"
layers = 4
hidden = 32
heads = $2
kv_heads = $3
head_dim = $4
intermediate = 48
vocab = 96
max_positions = 24
dtype = "bf16"
MODEL
}
model tinyllama-1.1b 8 1 64
model llama-3.1-8b 4 1 128
failures=0
expect() { # what, command
  "${@:2}" || { echo "FAILED: $1" && failures=$((failures + 1)); }
}

"$program" --part same-tokens --json figures.json --seconds 1 >first.log
expect 'no time: some are left' test $? = 75
"$program" --part same-tokens --json figures.json >second.log
expect 'replies are the same' test $? = 0
expect 'figures' python3 - <<'CHECK'
import json
figures = json.load(open("figures.json"))["parts"]["same-tokens"]["figures"]
assert [f["name"] for f in figures] == ["tinyllama-1.1b", "llama-3.1-8b"], figures
for f, head in zip(figures, ("64", "128")):
    assert f["runs that are the same"] == 8 and f["distinct tokens"] > 8, f
    assert f["attention"] == f"attention_decode_bf16_{head}, attention_prefill_bf16_{head}_m64", f
    assert f["resident, explicit, h2d bytes"] < f["interval 4, capture, h2d bytes"] < f["interval 1, capture, h2d bytes"], f
assert figures[0]["hash of the last logits"] != figures[1]["hash of the last logits"], figures
CHECK
# The planted fault, in every graph.
HEADRACE_STAND_IN_DROPS_A_WAIT=1 "$program" --part same-tokens --json faulty.json >faulty.log
expect 'a wait left out: it fails' test $? = 1
expect 'a wait left out: each model says so' test "$(grep -c 'interval [14], .*: not the replies of resident, explicit' faulty.log)" = 2
[ $failures -eq 0 ]
