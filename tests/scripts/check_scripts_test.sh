#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/check-format and scripts/check-tidy look at the working tree: edits that are not committed, and new files.
# In a repository of its own, with stand-ins for clang-tidy, which prints the files it was given, and for cmake.
set -euo pipefail
tree=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p scripts runtime bin
cp "$tree"/scripts/check-format "$tree"/scripts/check-tidy scripts/
cp "$tree"/.clang-format .
printf 'build/\n' >.gitignore
printf 'int kept;\n' >runtime/Kept.cpp
printf 'int gone;\n' >runtime/Gone.cpp
git init -q .
git -c user.name=t -c user.email=t@t add -A
git -c user.name=t -c user.email=t@t commit -qm one
cat >bin/clang-tidy-14 <<'TIDY'
#!/usr/bin/env bash
for word in "$@"; do case "$word" in *.cpp) echo "tidied $word" ;; esac; done
while [ "$1" != -p ]; do shift; done
grep -qx "c++ -I$PWD/build/release/generated x.cpp" "$2/compile_commands.json" || echo "commands: $(cat "$2/compile_commands.json")"
TIDY
cat >bin/cmake <<'CMAKE'
#!/usr/bin/env bash
case "$*" in *HEADRACE_UNITY=OFF*) ;; *) exit 1 ;; esac
while [ "$1" != -B ]; do shift; done
echo "c++ -I$2/generated x.cpp" >"$2/compile_commands.json"
CMAKE
chmod +x bin/clang-tidy-14 bin/cmake
export PATH="$work/bin:$PATH"

fail() { echo "FAILED: $*" >&2 && exit 1; }
scripts/check-format || fail "a clean tree is refused"
[ "$(scripts/check-tidy HEAD)" = 'check-tidy: no changed sources' ] || fail "tidy of a clean tree"

rm runtime/Gone.cpp                                # deleted, not committed
mkdir build
printf 'int  x ;\n' >build/Made.cpp # ignored
scripts/check-format || fail "deleted or ignored files are looked at"

printf 'int   fresh ;\n' >runtime/Fresh.cpp # new, not added
! scripts/check-format 2>/dev/null || fail "a new file is not looked at by check-format"
printf 'int kept, edited;\n' >runtime/Kept.cpp
seen=$(scripts/check-tidy HEAD | sort | tr '\n' ' ')
[ "$seen" = 'check-tidy: 2 files tidied runtime/Fresh.cpp tidied runtime/Kept.cpp ' ] || fail "check-tidy looked at: $seen"
seen=$(scripts/check-tidy --all)
seen=${seen%%$'\n'*}
[ "$seen" = 'check-tidy: 2 files' ] || fail "check-tidy --all: $seen"

scripts/check-format --fix
scripts/check-format || fail "--fix left a new file"
grep -qx 'int fresh;' runtime/Fresh.cpp || fail "--fix did not rewrite the new file"
echo ok
