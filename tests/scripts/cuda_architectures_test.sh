#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What CMAKE_CUDA_ARCHITECTURES becomes: native is asked for, by a stand-in for nvcc's program; what does not compile is
# refused before anything is built.
#   cuda_architectures_test.sh SOURCE-FOLDER
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\necho 86,89,86\n' >"$work/two"
printf '#!/bin/sh\necho no driver >&2\nexit 1\n' >"$work/none"
chmod +x "$work"/*
becomes() { cmake -DLIST="$1" -DQUERY="$work/${2:-none}" -P "$source/cmake/CudaArchitectures.cmake" 2>&1 | tr '\n' ' '; }
expect() { # what it becomes or says, of what
  local found
  found=$(becomes "${@:2}") || true # refusals fail
  case $found in *"$1"*) ;; *) echo "$2: found '$found': expected '$1'" >&2 && exit 1 ;; esac
}
expect '-- 86;89 ' native two
expect '-- 80-real;86;89 ' '80-real;native' two
expect '-- 80-real;90;90a-virtual ' '80-real;90;90a-virtual'
expect 'native: no GPU of this machine answers' native none
expect 'no driver' native none
expect '75: expected native, or numbers from 80 on' '75;80'
expect 'all: expected native' all
