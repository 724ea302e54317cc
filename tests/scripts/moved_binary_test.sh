#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The binary alone, in another folder, with an empty environment and without the source tree, knows the shipped shapes
# and profiles; a folder of examples beside it wins.
#
#   moved_binary_test.sh HEADRACE SOURCE
set -uo pipefail
binary=$1 source=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
fail() { echo "FAILED: $*" && failed=1; }

cp "$binary" "$place/headrace"
# Where a file of the tree would be opened, its path would be in the program.
if grep -qaF "$source" "$place/headrace"; then
  fail "the binary has the path of the source tree: $(strings "$place/headrace" | grep -F "$source" | sort -u | head -n 3)"
fi

# A root folder that holds the binary and the libraries that load it, and nothing else: no source tree. Where this user may not
# make one, the folder alone.
mkdir -p "$place/root/tmp"
{ ldd "$place/headrace" | grep -o '/[^ ]*' && echo "$place/headrace"; } | while read -r file; do
  mkdir -p "$place/root$(dirname "$file")" && cp -L "$file" "$place/root$file"
done
mv "$place/root$place/headrace" "$place/root/tmp/headrace"
moved() { # arguments...: in /tmp, or where that is
  if [ "$apart" = yes ]; then
    env -i "${enter[@]}" "$place/root" /tmp/headrace "$@"
  else
    (cd "$place/root/tmp" && env -i "$place/root/tmp/headrace" "$@")
  fi
}
apart=yes
enter=("$(command -v chroot || echo /usr/sbin/chroot)")
if ! moved --help >/dev/null 2>&1; then
  enter=("$(command -v unshare || echo unshare)" -r "${enter[0]}")
  if ! moved --help >/dev/null 2>&1; then
    apart=no
    echo 'chroot is not permitted here: the source tree is there, only elsewhere'
  fi
fi

out=$(moved compile llama-3.1-8b --hardware rtx4090 --device-memory 8GiB --batch 1 --context 512 --dry-run 2>&1) ||
  fail "compile: $out"
grep -q '^model  *llama-3.1-8b, 32 layers$' <<<"$out" || fail "no model in: $out"
grep -q '^hardware  *rtx4090$' <<<"$out" || fail "no hardware in: $out"
grep -q '^as flags  *headrace compile llama-3.1-8b --hardware rtx4090 ' <<<"$out" || fail "no name in: $out"
out=$(moved compile no-such-shape --hardware rtx4090 --dry-run 2>&1) && fail 'no-such-shape compiles'
grep -q 'nor one of the shipped models: .*llama-3.1-8b, .*tinyllama-1.1b' <<<"$out" || fail "no names in: $out"

# A folder beside it wins (the binary asks /proc where it lies).
mkdir -p "$place/beside/examples/models"
cp "$binary" "$place/beside/headrace"
sed 's/^layers = .*/layers = 5/' "$source/examples/models/llama-3.1-8b.toml" >"$place/beside/examples/models/llama-3.1-8b.toml"
out=$(cd "$place" && env -i beside/headrace compile llama-3.1-8b --hardware rtx4090 --device-memory 8GiB --batch 1 --context 512 --dry-run 2>&1)
grep -q '^model  *llama-3.1-8b, 5 layers$' <<<"$out" || fail "the folder beside the binary does not win: $out"
exit $failed
