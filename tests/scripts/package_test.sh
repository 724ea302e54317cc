#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The Debian package in a bare Debian 12, which debootstrap makes: installed by apt with what it depends on, it knows its
# shapes, makes a plan, runs it, and goes again. Needs root and a mirror; exit status 77 where one is missing.
#
#   package_test.sh BUILD       the folder of a preset that was built
set -uo pipefail
build=$1
[ "$(id -u)" -eq 0 ] || { echo 'debootstrap needs root' && exit 77; }
command -v debootstrap >/dev/null || { echo 'debootstrap is not installed' && exit 77; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
failed=0
fail() { echo "FAILED: $*" && failed=1; }

(cd "$build" && cpack -G DEB --config CPackConfig.cmake -B "$root/package") >"$root/cpack.log" 2>&1 ||
  { cat "$root/cpack.log" && exit 1; }
deb=$(ls "$root"/package/headrace_*.deb) || exit 1
dpkg-deb --info "$deb"
mirror=${HEADRACE_DEBIAN_MIRROR:-http://deb.debian.org/debian}
if ! debootstrap --variant=minbase bookworm "$root/debian" "$mirror" >"$root/debootstrap.log" 2>&1; then
  tail -n 5 "$root/debootstrap.log"
  exit 77
fi
cp "$deb" "$root/debian/headrace.deb"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root/debian" "$@"; }
inside apt-get install -y --no-install-recommends /headrace.deb >"$root/apt.log" 2>&1 || { cat "$root/apt.log" && exit 1; }

cd /
out=$(inside headrace compile llama-3.1-8b --hardware rtx4090 --device-memory 8GiB --batch 1 --context 512 -o /a.plan 2>&1) ||
  fail "compile: $out"
grep -q '^hardware  *rtx4090$' <<<"$out" || fail "no hardware in: $out"
out=$(inside headrace simulate /a.plan --random-input-len 8 --max-new-tokens 4 2>&1) || fail "simulate: $out"
out=$(inside headrace run /usr/share/headrace/examples/jobs/tiny-on-host.toml --synthetic-weights 1 --prompt-ids 1,2,3 \
  --max-new-tokens 4 2>&1) || fail "run: $out"
grep -q '^tokens' <<<"$out" || fail "no tokens in: $out"
for file in bin/headrace share/doc/headrace/README.md share/doc/headrace/copyright share/doc/headrace/docs/glossary.md \
  share/headrace/examples/hardware/rtx4090.toml; do
  [ -e "$root/debian/usr/$file" ] || fail "no /usr/$file"
done
inside dpkg --purge headrace >/dev/null 2>&1 || fail 'dpkg --purge'
[ ! -e "$root/debian/usr/share/headrace" ] || fail 'left behind: /usr/share/headrace'
exit $failed
