#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/gpu-check with programs that only say what they were asked, and crash, hang, fail or end unfinished where FAULTS says
# so. Three calls, each on a machine that has nothing of the others but their archive, two of them killed, give it all.
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
export STAND_INS=$work TMPDIR=$work/tmp FAULTS=''
unset HEADRACE_CUDA_LIBRARIES HEADRACE_HOST_MEMORY LD_LIBRARY_PATH
mkdir -p "$work"/{tmp,bin,no-gpu,no-sanitizer,build/deep,toolkit/extras/CUPTI/lib64,wheel/nvidia/cu13/lib}
printf '#!/bin/sh\nexit 9\n' >"$work/no-gpu/nvidia-smi"
cat >"$work/bin/nvidia-smi" <<'SH2'
#!/bin/sh
echo "nvidia-smi $1" >>"$STAND_INS/asked"
case "$1" in
-q)
  sed "s/@DEVICE@/${DEVICE:-H200}/" <<'TEXT'
==============NVSMI LOG==============
Driver Version                            : 580.1
GPU 00000000:17:00.0
    Product Name                          : NVIDIA @DEVICE@
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 4
                Device Max                : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
TEXT
  ;;
*) for i in $(seq 250); do echo '2026/01/01 00:00:00.000, 1755, 3201, 99, 600.00, 60, 900, 5, 16' && sleep 0.1; done ;;
esac
SH2
cat >"$work/fault" <<'SH2'
#!/bin/sh
# part: what FAULTS says of it
case " $FAULTS " in
*" $1=crash "*) kill -SEGV $PPID ;;
*" $1=hang "*) exit 3 ;;
*" $1=fail "*) exit 1 ;;
*" $1=stay "*) exit 4 ;;
esac
SH2
cat >"$work/build/deep/gpu_tests" <<'SH2'
#!/bin/sh
case "$*" in
*CudaDevice*BuiltGraph*) part=smoke ;;
*GpuGolden*/llama*) part=golden-one ;;
*GpuGolden*) part=golden ;;
*GpuPlacement*) part=placement ;;
*Overlap*) part=overlap ;;
*BuiltGraph*) part=graphs ;;
*Devices/*) part=conformance ;;
*) part=kernels ;;
esac
echo "$part" >>"$STAND_INS/asked"
case " $FAULTS " in *" $part=none "*) echo '[==========] Running 0 tests from 0 test suites.' && exit 0 ;; esac
echo '[==========] Running 3 tests from 1 test suite.'
if [ $part = golden ]; then # until clocks of it were sampled
  before=$(wc -l <"$work/clocks.csv")
  for _ in $(seq 100); do
    [ "$(wc -l <"$work/clocks.csv")" -le "$before" ] || break
    sleep 0.1
  done
fi
"$STAND_INS/fault" $part
case $? in
1) exit 1 ;;
3) trap '' TERM && while :; do sleep 0.2; done ;;
4) echo $$ >"$STAND_INS/there" && sleep 60 ;;
esac
SH2
cat >"$work/build/bench_cuda" <<'SH2'
#!/bin/sh
[ "$1" = --table ] && echo '## figures' && exit 0
echo "$2" >>"$STAND_INS/asked"
for last; do :; done
echo "bench $*"
"$STAND_INS/fault" "$2" || exit 1
echo "$2" >>"$last" # a figure more
[ "$2" != iterations ] || [ "$(grep -c iterations "$last")" -ge 2 ] || exit 75
SH2
cat >"$work/build/headrace" <<'SH2'
#!/bin/sh
echo "libraries $HEADRACE_CUDA_LIBRARIES, host memory $HEADRACE_HOST_MEMORY, asked $*"
SH2
printf '#!/bin/sh\necho "$*"\n' >"$work/bin/compute-sanitizer"
printf '#!/bin/sh\necho "%s"\n' "$work/wheel/nvidia/cu13/lib" >"$work/bin/python3"
cp "$work/bin/python3" "$work/bin/python"
: >"$work/wheel/nvidia/cu13/lib/libcublasLt.so.13"
: >"$work/toolkit/extras/CUPTI/lib64/libcupti.so.13"
chmod +x "$work"/build/headrace "$work"/bin/* "$work"/no-gpu/* "$work/fault" "$work"/build/bench_cuda "$work"/build/deep/gpu_tests
export CUDA_HOME=$work/toolkit
out=$work/out
check() { PATH=${first_of_path:+$first_of_path:}$work/bin:$PATH "$root/scripts/gpu-check" --bin "$work/build" --out "$out" --every 1 "$@" >"$work/log" 2>&1; }
refused() { # expected words, flags...
  local words=$1
  shift
  expect "refused: $*" test "$(check "$@"; echo $?)" = 2
  expect "the refusal of $* says $words" grep -q -- "$words" "$work/log"
}
held() { tar -xzOf "$out/gpu-check.tar.gz" "gpu-check/$1" 2>/dev/null; } # a file of the archive
result() { held "parts/$1.status" | cut -d ' ' -f 1; }
results() { # what, "part=result"...
  local what=$1 pair
  shift
  for pair in "$@"; do
    expect "$what: $pair, not $(result "${pair%%=*}")" test "$(result "${pair%%=*}")" = "${pair#*=}"
  done
}

expect '--help says how' grep -q -- '--host-memory SIZE' <("$root/scripts/gpu-check" --help)
refused 'gpu-check: --part nothing: expected one of facts smoke' --part nothing
refused 'gpu-check: --time soon: expected a number of seconds' --time soon
refused 'gpu-check: --time: expected a value behind it' --time
refused 'gpu-check: --limit golden: expected a number' --limit golden
refused 'gpu-check: --limit nothing=3: expected PART=SECONDS' --limit nothing=3
refused 'gpu-check: --host-memory lots: expected bytes with their unit' --host-memory lots
refused 'gpu-check: --from .*: expected an archive that gpu-check wrote' --from "$work/fault"
refused 'gpu-check: --from .*: expected a folder' --from "$work/bin"
refused 'gpu-check: --frm: expected --part' --frm
expect 'missing programs are named' test "$(PATH=$work/bin:$PATH "$root/scripts/gpu-check" --bin "$work/none" >"$work/log" 2>&1; echo $?)" = 2
expect 'missing programs are named' grep -q "gpu-check: no gpu_tests under $work/none: expected" "$work/log"
out=$work/nowhere
expect 'without a GPU it says so' test "$(PATH=$work/no-gpu:$PATH "$root/scripts/gpu-check" --bin "$work/build" --out "$out" >"$work/log" 2>&1; echo $?)" = 1
expect 'without a GPU it says so' grep -q 'no GPU answers' "$work/log"
expect 'without a GPU it writes nothing' test ! -e "$out"

# Faults of parts, and a time that is too short for all.
out=$work/short
: >"$work/asked"
FAULTS='kernels=none golden=fail' check --part kernels --part golden --part iterations --host-memory 200GiB
expect 'a failed part makes the call fail' test $? = 1
results 'faults' kernels=failed golden=failed iterations=incomplete
expect 'nvidia-smi is asked once and samples once' test "$(grep -c nvidia-smi "$work/asked")" = 2
: >"$work/asked"
check --part kernels --part golden --part iterations
expect 'all of what was asked passed' test $? = 0
expect 'what is unfinished goes before what failed' test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = 'iterations kernels golden '
: >"$work/asked"
check --part golden
expect 'what passed does not run again' test "$(grep -c golden "$work/asked")" = 0
FAULTS='overlap=hang' check --part overlap --part link --part golden --again --time 3 --limit overlap=1 --limit link=9 --limit golden=4
expect 'too short: what hung failed' test $? = 1
results 'too short' overlap=out-of-time link= golden=passed
expect 'too short: what is left is said' grep -q 'link: no time left for its 9 s; more than --time: give it more' "$work/log"
out=$work/ends
: >"$work/asked"
FAULTS='overlap=hang' check --part overlap --part sizes --part link --time 4 --limit overlap=2 --limit sizes=3 --limit link=1
expect 'what may not end in time is not started, what may is' test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = 'overlap link '
expect 'that is said' grep -q 'sizes: no time left for its 3 s; call again to resume' "$work/log"
results 'what was not started' sizes= link=passed
check --part iterations --time 100 --again
expect 'a part that goes on is given what is left' grep -qE '=== iterations, at most (100|99|98) s' "$work/log"
check --part iterations --time 80 --again
expect 'unless that is too little' grep -q 'iterations: no time left for its 420 s; more than --time' "$work/log"
check --part racecheck
expect 'racecheck without its longest test' grep -q \
  -- '--tool racecheck .*:-\*Large\*:CudaSample.TokensAreTheReferencesWithEveryPenaltyAndFilter$' <(held parts/racecheck.1.log)
printf '#!/bin/sh\necho "========= Device not supported" && exit 1\n' >"$work/no-sanitizer/compute-sanitizer"
chmod +x "$work/no-sanitizer/compute-sanitizer"
first_of_path=$work/no-sanitizer check --part racecheck --part memcheck --again
expect 'what is not to be had is no failure' test $? = 0
results 'what is not to be had' racecheck=unavailable memcheck=unavailable
expect 'what is not to be had is counted' grep -q '0 parts passed, 2 unavailable here, 0 failed, 0 are left' "$work/log"
out=$work/short
check --part smoke --host-memory 200GiB
expect 'programs are told the host memory' grep -q 'host memory 200GiB' <(held parts/smoke.1.log)
expect 'programs are told where CUPTI is' grep -q "libraries .*$CUDA_HOME/extras/CUPTI/lib64" <(held parts/smoke.1.log)

# Call 1: a crash, a hang that no TERM ends, a failure, an unfinished part; then nothing can be said any more.
call() { # the faults, flags...: in the background; returns once a part stays
  rm -f "$work/there"
  : >"$work/asked"
  FAULTS=$1
  shift
  PATH=$work/bin:$PATH "$root/scripts/gpu-check" --bin "$work/build" --out "$out" --every 1 "$@" >"$work/log" 2>&1 &
  called=$!
  for _ in $(seq 150); do
    [ ! -s "$work/there" ] || return 0
    sleep 0.1
  done
  echo 'FAILED: no part stayed' && failures=$((failures + 1))
}
out=$work/first
check --part iterations
results 'a part that goes on' iterations=incomplete
call 'smoke=crash golden-one=hang graphs=fail conformance=stay' --limit golden-one=1
sleep 1.5 # the archive's turn
{ kill -KILL $called && wait $called; } 2>/dev/null
stayed=$(ps -o pgid= -p "$(cat "$work/there")" | tr -d ' ')
[ -z "$stayed" ] || kill -KILL -- "-$stayed"
results 'after the first call' facts=passed smoke=crashed-SEGV golden-one=out-of-time same-tokens=passed steps-rate=passed \
  handshake=passed golden=passed placement=passed racecheck=passed graphs=failed conformance=cut-off overlap= iterations=incomplete
expect 'the part that was cut off has its log' grep -q 'Running 3 tests' <(held parts/conformance.1.log)
expect 'clocks under load are in the summary' grep -q 'golden .*SM 1755 to 1755 MHz, memory 3201 MHz, PCIe 5 x16' <(held gpu-check.md)
expect 'facts name the link' grep -q 'PCIe generation 4 of 5, width 8x of 16x' <(held parts/facts.1.log)
expect 'facts have the memory' grep -q 'MemAvailable' <(held parts/facts.1.log)
expect "facts name the toolkit's CUPTI" grep -q "^libcupti.so.13 *$CUDA_HOME/extras/CUPTI/lib64" <(held parts/facts.1.log)
[ -e /usr/local/cuda/lib64/libcublasLt.so.13 ] || ldconfig -p | grep -q libcublasLt.so.13 ||
  expect "facts name pip's cublasLt" grep -q "^libcublasLt.so.13 *$work/wheel/nvidia/cu13/lib" <(held parts/facts.1.log)

# Call 2, another machine: what was never tried comes first; ended by TERM.
first=$out/gpu-check.tar.gz
out=$work/second
call 'kernels=stay' --from "$first"
kill -TERM $called
wait $called
expect 'ended by a signal: some are left' test $? = 75
results 'after the second call' golden=passed kernels=cut-off overlap=passed golden-one=out-of-time iterations=incomplete
expect 'never tried goes first' test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = 'overlap kernels '

# Call 3, a third machine, the archive unpacked there.
FAULTS=''
mkdir "$work/carried"
tar -xzf "$out/gpu-check.tar.gz" -C "$work/carried"
out=$work/third
: >"$work/asked"
check --from "$work/carried"
expect 'nothing is left after the third call' test $? = 0
all='facts smoke golden-one same-tokens steps-rate handshake golden placement racecheck graphs conformance overlap kernels memcheck'
all="$all overlap-rate link graphs-cost kernels-rate iterations furthest caches hybrid switch sizes mapped direct tracing spread"
for part in $all; do
  results 'in the end' "$part=passed"
  expect "a log of $part" test -n "$(held "parts/$part.1.log")"
done
expect 'logs of earlier tries are kept' grep -q 'Running 3 tests' <(held parts/golden-one.1.log)
expect 'and those of later ones' grep -q 'Running 3 tests' <(held parts/golden-one.2.log)
measured='iterations same-tokens steps handshake overlap link graphs kernels furthest caches hybrid switch sizes mapped direct '
measured="${measured}tracing spread iterations "
expect 'figures of all calls are there' test "$(held figures.json | tr '\n' ' ')" = "$measured"
expect 'the summary names the device' grep -q '"device": "NVIDIA H200"' "$out/gpu-check.json"
expect 'the summary is JSON' /usr/bin/env python3 -m json.tool "$out/gpu-check.json" /dev/null
expect 'the figures are a table too' grep -q '## figures' "$out/figures.md"
expect 'what passed before did not run' test "$(grep -cE '^(same-tokens|steps|handshake|golden|placement)$' "$work/asked")" = 0
for one in first second third; do
  expect "at most 8 files come back of the $one call" test "$(find "$work/$one" -type f | wc -l)" -le 8
done
expect 'nothing is left behind but what was killed' test "$(find "$work/tmp" -mindepth 1 -maxdepth 1 | wc -l)" = 1

# Another device measures anew and need not test again; what was measured is kept for its like.
third=$out/gpu-check.tar.gz
out=$work/fourth
: >"$work/asked"
DEVICE='H100 80GB' check --from "$third" --part link --part golden
expect 'another device measures' test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = 'link '
DEVICE='H100 80GB' check --part smoke --again
expect 'by the profile of its own' grep -q 'asked run .* --hardware h100 ' <(held "parts/smoke.$(held parts/smoke.status | cut -d ' ' -f 3).log")
expect 'and the other by its own' grep -q 'asked run .* --hardware h200 ' <(held parts/smoke.1.log)
expect 'into figures of its own' test "$(held figures.json)" = link
expect 'beside the others' test "$(held "of-h200-$(held code)/figures.json" | tr '\n' ' ')" = "$measured"
: >"$work/asked"
check --part link --part golden
expect 'what was measured here is not measured again' test "$(grep -cv nvidia "$work/asked")" = 0
expect 'its figures are there' test "$(held figures.json | tr '\n' ' ')" = "$measured"
expect "and the other device's" test "$(held "of-h100-80gb-$(held code)/figures.json")" = link
out=$work/third

# The file to carry.
mkdir "$work/programs"
for program in headrace gpu_tests bench_cuda; do
  cp "$(type -P true)" "$work/programs/$program"
done
pack() { "$root/scripts/gpu-pack" --bin "$work/programs" "$@" >"$work/log" 2>&1; }
unpack() { # file: to $work/elsewhere/gpu-pack
  rm -rf "$work/elsewhere"
  mkdir "$work/elsewhere"
  tar -xf "$1" -C "$work/elsewhere"
}
packed=$work/elsewhere/gpu-pack
expect 'a file is packed' pack --from "$out/gpu-check.tar.gz" "$work/pack.tar.gz"
unpack "$work/pack.tar.gz"
expect 'it has what gpu-check needs' test -x "$packed/scripts/gpu-check" -a -x "$packed/bin/gpu_tests" -a \
  -f "$packed/examples/hardware/h200.toml" -a -f "$packed/tests/golden/opt-7-tied-f32/model.safetensors" -a -s "$packed/commit" \
  -a -f "$packed/examples/models/opt-6.7b.toml" -a -s "$packed/gpu-check.tar.gz"
mkdir "$work/models"
echo 'layers = 1' >"$work/models/opt-6.7b.toml"
expect 'it is packed anew' pack --models "$work/models" "$work/pack.tar.gz"
unpack "$work/pack.tar.gz"
expect 'with other shapes then' test "$(ls "$packed/examples/models")" = opt-6.7b.toml
expect 'a file of something else is refused' test "$(cp "$work/fault" "$work/fault.tar.gz"; pack "$work/fault.tar.gz"; echo $?)" = 2
expect 'the refusal says what is expected' grep -q 'expected one that gpu-pack made' "$work/log"
expect 'another ending is refused' test "$(pack "$work/pack.zip"; echo $?)" = 2
expect 'too large a file is refused' test "$(pack --most 1 "$work/large.tar.gz"; echo $?)" = 2
expect 'the refusal has the tree' grep -qE 'takes [0-9]+ bytes, the tree [0-9]+: expected at most 1 MiB together' "$work/log"
expect 'and is not left there' test ! -e "$work/large.tar.gz" -a ! -e "$work/large.tar.gz.part"
# Elsewhere, without the tree: it goes on from the archive that it carries.
pack --from "$work/second/gpu-check.tar.gz" "$work/pack.tar.gz"
unpack "$work/pack.tar.gz"
cp "$work/build/headrace" "$work/build/bench_cuda" "$work/build/deep/gpu_tests" "$packed/bin"
: >"$work/asked"
elsewhere() { (cd / && PATH=$work/bin:$PATH "$packed/scripts/gpu-check" "$@") >"$work/log" 2>&1; }
elsewhere --out "$work/carried-out" --part golden --part same-tokens --part kernels
expect 'the package goes on' test $? = 0
expect 'the package goes on' test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = 'kernels '
# Programs of other code: what they measure and test is done again, what they do not is not.
out=$work/carried-out
again() { # what, the folder that is another one, "parts that run"
  sed -i "s|^$2 .*|$2 another|" "$packed/trees"
  : >"$work/asked"
  elsewhere --out "$out" --part golden --part same-tokens
  expect "$1: nothing is left" test $? = 0
  expect "$1" test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = "$3"
}
expect 'the package says of what code it is' test "$(cut -d ' ' -f 1 <"$packed/trees" | tr '\n' ' ')" = \
  'kernels runtime/cuda runtime/core bench/cuda '
again 'the same code' kernels-none ''
was=$(held code)
again 'another benchmark: what is measured' bench/cuda 'same-tokens '
expect 'another benchmark: figures of its own' test "$(held figures.json)" = same-tokens
expect 'another benchmark: beside the others' test -n "$(held "of-h200-$was/figures.json")"
again 'other kernels: all' kernels 'golden same-tokens '
again 'another device in runtime/cuda: all' runtime/cuda 'golden same-tokens '
again 'another runtime/core: all' runtime/core 'golden same-tokens '
again 'no other code: nothing' runtime/core ''

# A seed of what is committed, here what the third call brought: all of it where the code is the same.
mkdir -p "$work/committed/h200" "$work/committed/old"
tar -xzf "$third" -C "$work/committed/h200" gpu-check
mv "$work/committed/h200/gpu-check/figures.json" "$work/committed/h200"
echo '{}' >"$work/committed/old/figures.json"
seed() { "$root/scripts/gpu-seed" --results "$work/committed" "$work/seed.tar.gz" >"$work/log" 2>&1; }
expect 'a seed' seed
expect 'a seed takes all' grep -qE "^h200: .*steps-rate.* taken; left of it: nothing; other code since: nothing" "$work/log"
expect 'a seed says what it knows nothing of' grep -q 'old: nothing is taken: no old/gpu-check says what code' "$work/log"
out=$work/seeded
: >"$work/asked"
check --from "$work/seed.tar.gz"
expect 'from a seed: nothing is left' test $? = 0
expect 'from a seed: what is there is not done again' test "$(grep -cv nvidia "$work/asked")" = 0
expect 'from a seed: its figures' test "$(held figures.json | tr '\n' ' ')" = "$measured"
: >"$work/asked"
out=$work/seeded-h100
DEVICE='H100 80GB' check --from "$work/seed.tar.gz" --part link --part golden
expect 'from a seed, another device: it measures, and need not test' test "$(grep -v nvidia "$work/asked" | tr '\n' ' ')" = 'link '
# Another benchmark: tests alone.
committed=$work/committed/h200/gpu-check
sed -i 's|^bench/cuda .*|bench/cuda another|' "$committed/trees"
echo another >"$committed/code"
sed -i 's/ [^ ]*$/ another/' "$committed"/parts/{link,steps-rate,same-tokens}.status
expect 'a seed of other benchmarks' seed
expect 'a seed of other benchmarks has the tests' grep -qE \
  '^h200: .*golden.* taken; left of it: .*link.* steps-rate.*; other code since: bench/cuda' "$work/log"
expect 'a seed of other benchmarks has no figures' test -z "$(tar -tzf "$work/seed.tar.gz" | grep figures)"
# All other: no seed.
sed -i 's/ [^ ]*$/ another/' "$committed"/parts/*.status
rm "$work/seed.tar.gz"
expect 'nothing is taken' seed
expect 'nothing is taken: no file' test ! -e "$work/seed.tar.gz"
expect 'nothing is taken: that is said' grep -q 'nothing is taken, no seed.tar.gz is made: a first call does all of facts' "$work/log"
echo "$failures failures"
[ $failures -eq 0 ]
