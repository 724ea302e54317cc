#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# A lent GPU, rehearsed: what scripts/gpu-pack makes goes to three machines that have nothing else, each a folder and an
# environment of its own in which the tree cannot be seen. Programs are those over the stand-in for CUDA's runtime, shapes are
# small. The first call ends with a part left over, the second goes on from its archive, the third answers as another device.
#
#   gpu_rehearsal_test.sh BENCH TESTS HEADRACE LIBRARIES [LOG]      LOG: what was seen is kept there
set -uo pipefail
bench=$1 tests=$2 headrace=$3 libraries=$4 log=${5:-/dev/null}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
expect() { # what, command
  "${@:2}" || { echo "FAILED: $1" && failures=$((failures + 1)); }
}
mkdir -p "$work"/{programs,models,results}
cp "$bench" "$work/programs/bench_cuda"
cp "$tests" "$work/programs/gpu_tests"
cp "$headrace" "$work/programs/headrace"
model() { # name, family, what is its own
  printf 'family = "%s"\nlayers = 4\nhidden = 32\nintermediate = 48\nvocab = 96\nmax_positions = 24\n%b' "$2" "$3" >"$work/models/$1.toml"
}
model tinyllama-1.1b llama 'heads = 8\nkv_heads = 1\nhead_dim = 64\ndtype = "bf16"\n'
model llama-3.1-8b llama 'heads = 4\nkv_heads = 1\nhead_dim = 128\ndtype = "bf16"\n'
model opt-6.7b opt 'heads = 2\ndtype = "f16"\n'
sed -i 's/max_positions = 24/max_positions = 8/' "$work/models/llama-3.1-8b.toml"

# A machine: its own nvidia-smi and CUDA libraries, and the file.
machine() { # folder, device
  mkdir -p "$1"/{bin,cuda/lib64,tmp,home}
  cp "$libraries"/lib*.so.13 "$1/cuda/lib64"
  : >"$1/cuda/lib64/libcupti.so.13" # not opened by what is rehearsed
  cat >"$1/bin/nvidia-smi" <<SMI
#!/bin/sh
[ "\$1" != -q ] || echo '    Product Name                          : $2'
SMI
  chmod +x "$1/bin/nvidia-smi"
}
hidden=() # what no machine sees, where the system lets us hide it
unshare -rm true 2>/dev/null && hidden=("$root" /usr/local)
on_machine() { # folder, device, command line
  local folder=$1 device=$2 hide=''
  shift 2
  [ ${#hidden[@]} -eq 0 ] || hide="for folder in ${hidden[*]}; do mount -t tmpfs none \$folder; done;"
  ${hide:+unshare -rm} env -i PATH="$folder/bin:/usr/bin:/bin" HOME="$folder/home" TMPDIR="$folder/tmp" CUDA_HOME="$folder/cuda" \
    HEADRACE_STAND_IN_GPU="$device" bash -c "$hide cd '$folder' && $*"
}
parts=''
for part in facts same-tokens steps-rate handshake racecheck conformance; do
  parts+=" --part $part"
done
call() { # number, device, flags: on a fresh machine, from the archive of the call before
  local folder=$work/machine-$1 device=$2 from=()
  [ ! -e "$work/results/gpu-check.tar.gz" ] || from=(--from "$work/results/gpu-check.tar.gz")
  machine "$folder" "$device"
  echo "=== machine $1, $device"
  "$root/scripts/gpu-pack" --bin "$work/programs" --models "$work/models" --most 64 "${from[@]}" "$folder/gpu-pack.tar.gz" 2>&1 | tail -n 3
  on_machine "$folder" "$device" "tar -xf gpu-pack.tar.gz && gpu-pack/scripts/gpu-check --out results $parts ${*:3}" 2>&1
  local rc=$?
  cp "$folder"/results/* "$work/results"
  echo "exit status $rc"
  return $rc
}
held() { tar -xzOf "$work/results/gpu-check.tar.gz" "gpu-check/$1" 2>/dev/null; }
ran() { sed -n 's/^=== \(.*\): [a-z-]*, [0-9]* s$/\1/p' "$1" | tr '\n' ' '; }

call 1 'stand-in for H200' --time 200 --limit conformance=199 >"$work/1.log"
expect 'first call: some are left' test $? = 75
expect 'first call: what ran' test "$(ran "$work/1.log")" = 'facts same-tokens steps-rate handshake racecheck '
expect 'first call: what did not' grep -q 'conformance: no time left for its 199 s; call again to resume' "$work/1.log"
expect 'first call: figures beside bounds of the H200' grep -q '| profile | h200, ' "$work/results/figures.md"
[ ${#hidden[@]} -eq 0 ] || expect 'what is not there is an answer' test "$(held parts/racecheck.status | cut -d ' ' -f 1)" = unavailable
call 2 'stand-in for H200' >"$work/2.log"
expect 'second call: nothing is left' test $? = 0
expect 'second call: what was left ran' test "$(ran "$work/2.log")" = 'facts conformance racecheck '
call 3 'stand-in for H100 80GB' >"$work/3.log"
expect 'third call: nothing is left' test $? = 0
expect 'third call: it measures anew and need not test' test "$(ran "$work/3.log")" = 'facts same-tokens steps-rate handshake racecheck '
expect 'third call: by its own profile' grep -q '| profile | h100, ' "$work/results/figures.md"
expect 'third call: the H200 figures are kept' grep -q 'stand-in for H200' \
  <(held "of-stand-in-for-h200-$(held code)/figures.json")
sed "s|$work|.|g" "$work"/?.log "$work/results/gpu-check.md" >"$log"
echo "$failures failures"
[ $failures -eq 0 ] || { cat "$work"/?.log && exit 1; }
