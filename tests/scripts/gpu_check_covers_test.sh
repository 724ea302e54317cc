#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every test of gpu_tests is in a part of scripts/gpu-check, but those of other devices than CUDA, which any machine runs; and
# what a part asks for is there.
#   gpu_check_covers_test.sh GPU_TESTS
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GPU_TESTS=$1 LISTED=$work/listed
names() { # of --gtest_list_tests
  awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }'
}
mkdir -p "$work"/{bin,build,libraries}
printf '#!/bin/sh\n[ "$1" != -q ] || echo "    Product Name : NVIDIA H200"\n' >"$work/bin/nvidia-smi"
cat >"$work/build/gpu_tests" <<'SH2'
#!/bin/sh
"$GPU_TESTS" --gtest_list_tests "$@" >>"$LISTED" && [ -n "$("$GPU_TESTS" --gtest_list_tests "$@")" ] &&
  echo '[==========] Running 1 test from 1 test suite.'
SH2
printf '#!/bin/sh\n' >"$work/build/headrace"
printf '#!/bin/sh\n' >"$work/build/bench_cuda"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/python3"
cp "$work/bin/python3" "$work/bin/python"
: >"$work/libraries/libcublasLt.so.13"
: >"$work/libraries/libcupti.so.13"
chmod +x "$work"/bin/* "$work"/build/*
parts=()
for part in smoke golden-one overlap kernels graphs conformance golden placement; do
  parts+=(--part "$part")
done
PATH=$work/bin:$PATH "$root/scripts/gpu-check" --bin "$work/build" --out "$work/out" --cuda-libraries "$work/libraries" \
  "${parts[@]}" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
"$GPU_TESTS" --gtest_list_tests | names | grep -v '^Devices/.*/\(host\|sim\)[^/]*$' | sort -u >"$work/wanted"
names <"$LISTED" | sort -u >"$work/asked"
missing=$(comm -23 "$work/wanted" "$work/asked")
echo "$(wc -l <"$work/wanted") tests, $(grep -c . <<<"$missing") in no part of gpu-check"
[ -z "$missing" ] || { echo "$missing" && exit 1; }
[ "$(wc -l <"$work/wanted")" -gt 50 ]
