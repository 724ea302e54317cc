# SPDX-License-Identifier: Apache-2.0
"""Asks headrace-lm-offload, which a build has beside headrace."""
import json
import os
import subprocess


def ask(headrace, cases):
    binary = os.path.join(os.path.dirname(headrace), "headrace-lm-offload")
    if not os.access(binary, os.X_OK):
        raise SystemExit(f"{binary}: not there: expected a build's (scripts/build release headrace-lm-offload)")
    done = subprocess.run([binary], input=json.dumps(cases), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def case(model, machine, runtime, settings):
    return {"model": model, "machine": machine, "runtime": runtime, "settings": settings}
