#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/slowest, on logs as ctest and ninja write them; scripts/run-tests, with a stand-in for ctest.
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p scripts bin build/release/Testing/Temporary
cp "$tree"/scripts/slowest "$tree"/scripts/run-tests scripts/
fail() { echo "FAILED: $*" >&2 && exit 1; }

for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
  printf '%d/12 Testing: t_%d\n%d/12 Test: t_%d\nOutput:\n3/9 Test: no name of its own\n<end of output>\nTest time =   %d.25 sec\n' $i $i $i $i $i
done >build/release/Testing/Temporary/LastTest.log
seen=$(scripts/slowest tests build/release)
want='slowest tests of build/release: 12 took 81 s, one after the other
    12.2 t_12
    11.2 t_11'
[ "$(head -n 3 <<<"$seen")" = "$want" ] || fail "tests: $seen"
[ "$(wc -l <<<"$seen")" -eq 11 ] || fail "not ten tests: $seen"

# The first two outputs are of one command; c.o was made before the file was written, b.o twice; d.o at the same time as b.o.
touch -d @1000 since
{
  printf '# ninja log v5\n'
  printf '0\t1500\t1001000000000\ta.h\taa\n0\t1500\t1001000000000\ta.cc\taa\n'
  printf '0\t9000\t1002000000000\tb.o\tbb\n1000\t5000\t1004000000000\tb.o\tbb\n'
  printf '0\t7000\t999000000000\tc.o\tcc\n1000\t5000\t1004000000000\td.o\tdd\n'
} >build/release/.ninja_log
seen=$(scripts/slowest objects build/release since)
want='slowest objects of build/release: 3 took 10 s, one after the other
     4.0 d.o
     4.0 b.o
     1.5 a.cc'
[ "$seen" = "$want" ] || fail "objects: $seen"
seen=$(scripts/slowest objects build/release)
[ "$(sed -n 2p <<<"$seen")" = '     7.0 c.o' ] || fail "all objects: $seen"

# The count comes last, and ctest's status back.
printf '#!/bin/sh\necho "$@" >asked\necho "97%% tests passed, 1 tests failed out of 31"\necho "The following tests FAILED:"\nexit 8\n' >bin/ctest
chmod +x bin/ctest
status=0
seen=$(PATH="$work/bin:$PATH" scripts/run-tests release -L unit) || status=$?
[ $status -eq 8 ] || fail "run-tests: status $status"
[ "$(tail -n 1 <<<"$seen")" = '97% tests passed, 1 tests failed out of 31' ] || fail "run-tests: $seen"
grep -qE '^seconds: release: tests [0-9]+$' <<<"$seen" || fail "no seconds: $seen"
# As many at a time as there are processors, also where a library is told to use one.
PATH="$work/bin:$PATH" OMP_NUM_THREADS=1 scripts/run-tests release -L unit >/dev/null || true
grep -qE -- "-j $(env -u OMP_NUM_THREADS nproc)\b.* -L unit$" asked || fail "ctest was asked for: $(cat asked)"
echo ok
