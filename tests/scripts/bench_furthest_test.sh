#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bench_cuda's part `furthest` over the stand-in for CUDA's runtime, on a model of two small layers: which iterations it
# takes, that it goes on where it was ended, and that what lanes did adds up to the iteration.
#
#   bench_furthest_test.sh PROGRAM FOLDER       FOLDER: the stand-in's libraries
set -uo pipefail
program=$1
source=$PWD
export HEADRACE_CUDA_LIBRARIES=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir -p examples/models
cp -r "$source/examples/hardware" examples
cat >examples/models/opt-small.toml <<'MODEL'
family = "opt"
layers = 2
hidden = 64
heads = 2
intermediate = 128
vocab = 128
max_positions = 256
dtype = "f16"
MODEL
cat >figures.json <<'FIGURES'
{"facts": {"device": "stand-in"}, "parts": {"iterations": {"method": "any", "tries": {}, "figures": [
  {"name": "opt-small, decode 1 at 256, resident", "model": "opt-small", "cell": "decode 1 at 256", "ms": 2.0},
  {"name": "opt-small, decode 1 at 256, interval 2", "model": "opt-small", "cell": "decode 1 at 256",
   "placement": "interval 2", "sequences": 1, "ms": 2.1, "ratio": 1.05}]}}}
FIGURES
failures=0
expect() { # what, command
  "${@:2}" || { echo "FAILED: $1" && failures=$((failures + 1)); }
}

"$program" --part furthest --json figures.json --seconds 1 >first.log
expect 'no time: some are left' test $? = 75
"$program" --part furthest --json figures.json >second.log
expect 'all measured' test $? = 0
"$program" --part furthest --json figures.json >third.log
expect 'nothing is left' test $? = 0
expect 'what was measured is not measured again' test "$(grep -c 'in turns' third.log)" = 0
expect 'a picture of the iteration' grep -q 'data-headrace="timeline"' opt-small-decode-1-at-256-interval-2.svg
expect 'figures that add up' python3 - <<'CHECK'
import json
figures = json.load(open("figures.json"))["parts"]["furthest"]["figures"]
assert [f["name"] for f in figures] == ["opt-small, decode 1 at 256, interval 2, " + how
                                        for how in ("in turns", "step by step")], figures
turns, steps = figures
assert turns["ratio of a turn, least"] <= turns["ratio of a turn, most"], turns
assert turns["resident ms, 10%"] <= turns["resident ms"] <= turns["resident ms, 90%"], turns
assert turns["iterations of each"] >= 10 and turns["bound by"] == "compute", turns
more = sum(value for name, value in steps.items() if name.startswith("compute +ms, "))
assert abs(steps["resident ms"] + more - steps["ms"]) < 1e-6, steps
link = sum(value for name, value in steps.items() if name.startswith("h2d ms, "))
assert abs(link - steps["ms"]) < 1e-6, steps
assert steps["measured by"] == "time stamps" and steps["h2d ms, qkv"] > 0, steps
CHECK
[ $failures -eq 0 ]
