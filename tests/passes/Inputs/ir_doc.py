# SPDX-License-Identifier: Apache-2.0
"""Keeps the listings of docs/ir.md true. Each stands behind a comment that says how it was made:

    <!-- listing: MODEL ARGUMENTS | PASSES -->
    ```mlir
    ...
    ```

    ir_doc.py HEADRACE_OPT docs/ir.md            exits with 1 and a diff where a listing is not what is printed
    ir_doc.py --update HEADRACE_OPT docs/ir.md   writes what is printed
"""
import difflib
import re
import shlex
import subprocess
import sys

import model

LISTING = re.compile(r"(<!-- listing: ([^|\n]*)\|([^\n]*) -->\n```mlir\n)(.*?)(```\n)", re.DOTALL)


def printed(opt, arguments, passes):
    text = model.model(shlex.split(arguments))
    result = subprocess.run([opt, *shlex.split(passes)], input=text, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr)
    lines = result.stdout.rstrip("\n").split("\n")
    assert lines[0] == "module {" and lines[-1] == "}"
    return "\n".join(line[2:] for line in lines[1:-1]) + "\n"


def main(arguments):
    update = arguments[0] == "--update"
    opt, path = arguments[-2:]
    with open(path, encoding="utf-8") as file:
        old = file.read()
    listings = 0

    def replace(match):
        nonlocal listings
        listings += 1
        return match[1] + printed(opt, match[2], match[3]) + match[5]

    new = LISTING.sub(replace, old)
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(new)
    elif new != old:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "docs/ir.md", "printed"))
        sys.exit(1)
    elif not listings:
        sys.exit(f"{path} has no listings")


if __name__ == "__main__":
    main(sys.argv[1:])
