#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The command line starts where no GPU can be used, and says why with exit status 1: on any machine, since none is visible here.
#   starts_without_driver.sh HEADRACE
set -uo pipefail
error=$(CUDA_VISIBLE_DEVICES= "$1" run none.plan --device cuda --prompt-ids 1 2>&1 >/dev/null)
rc=$?
[ $rc -eq 1 ] || { echo "exit status $rc, expected 1: $error" && exit 1; }
case $error in
*"cuda device: "*) ;;
*) echo "no reason in: $error" && exit 1 ;;
esac
