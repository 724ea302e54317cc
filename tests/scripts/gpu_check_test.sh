#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/gpu-check with programs that only say what they were asked: which parts run, that a failed one hides no other, that a
# second call resumes, and what is refused.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
expect() { # what, command...
  local what=$1
  shift
  "$@" || { echo "FAILED: $what" && failures=$((failures + 1)); }
}
mkdir -p "$work/bin" "$work/no-gpu" "$work/build/deep"
printf '#!/bin/sh\nexit 9\n' >"$work/no-gpu/nvidia-smi"
cat >"$work/bin/nvidia-smi" <<'SH'
#!/bin/sh
case "$1" in *=name*) echo 'NVIDIA H200' ;; *driver*) echo 580.1 ;; *) echo '1980 MHz' ;; esac
SH
cat >"$work/build/deep/gpu_tests" <<'SH'
#!/bin/sh
case "$*" in
*Overlap*) echo '[==========] Running 0 tests from 0 test suites.'; exit 0 ;;
*GpuGolden*) echo '[==========] Running 3 tests from 1 test suite.'; exit ${GOLDEN_STATUS:-1} ;;
*) echo '[==========] Running 3 tests from 1 test suite.'; exit 0 ;;
esac
SH
cat >"$work/build/bench_cuda" <<'SH'
#!/bin/sh
[ "$1" = --table ] && echo '## figures' && exit 0
for last; do :; done; echo "bench $*"; : >"$last"
SH
printf '#!/bin/sh\necho "$*"\n' >"$work/build/headrace"
chmod +x "$work"/build/headrace "$work"/bin/* "$work"/no-gpu/* "$work"/build/bench_cuda "$work"/build/deep/gpu_tests
check() { PATH=$work/bin:$PATH "$root/scripts/gpu-check" --bin "$work/build" --out "$work/out" "$@" >"$work/log" 2>&1; }

expect 'an unknown part is refused' test "$(check --part nothing; echo $?)" = 2
expect 'the refusal names the parts' grep -q 'expected one of device kernels' "$work/log"
expect 'a time that is none is refused' test "$(check --time soon; echo $?)" = 2
expect 'a flag without its value is refused' test "$(check --time; echo $?)" = 2
expect 'missing programs are named' test "$(PATH=$work/bin:$PATH "$root/scripts/gpu-check" --bin "$work/none" >"$work/log" 2>&1; echo $?)" = 2
expect 'missing programs are named' grep -q 'no gpu_tests under' "$work/log"
expect 'a failed part makes the run fail' test "$(check; echo $?)" = 1
expect 'the failed part' grep -q '^failed' "$work/out/parts/golden.status"
expect 'a filter that no test matches fails' grep -q '^failed' "$work/out/parts/overlap.status"
expect 'parts behind a failed one run' grep -q '^passed' "$work/out/parts/iterations.status"
expect 'the summary names the device' grep -q '"device": "NVIDIA H200"' "$work/out/gpu-check.json"
expect 'the summary has the results' grep -q '| golden | failed |' "$work/out/gpu-check.md"
expect 'the figures are a table too' grep -q '## figures' "$work/out/figures.md"
GOLDEN_STATUS=0 check --part golden --part kernels
expect 'what failed runs again' grep -q '^passed' "$work/out/parts/golden.status"
expect 'what passed does not' grep -q 'kernels passed before' "$work/log"
expect 'without a GPU it says so' test "$(PATH=$work/no-gpu:$PATH "$root/scripts/gpu-check" --bin "$work/build" --out "$work/out2" >"$work/log" 2>&1; echo $?)" = 1
expect 'without a GPU it says so' grep -q 'no GPU answers' "$work/log"
expect 'without a GPU it writes nothing' test ! -e "$work/out2"
echo "$failures failures"
[ $failures -eq 0 ]
