#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every link of a page to a file of the project leads there, and every anchor to a heading.

  tests/figures/links_test.py                exit status 1 if a link is dead
  tests/figures/links_test.py --self-test    dead links are noticed
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```|    .*?$)", re.MULTILINE | re.DOTALL)  # what is shown, not linked


def anchors(path):
    """Of a page's headings, as GitHub makes them: lower case, no punctuation, blanks as hyphens; -1, -2 for more of one."""
    found = {}
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {name if n == 0 else f"{name}-{n}" for name, most in found.items() for n in range(most + 1)}


def dead(page):
    wrong = []
    with open(page, encoding="utf-8") as file:
        text = FENCE.sub("", file.read())
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        if not os.path.exists(path):
            wrong.append(f"{page}: {link}: no such file")
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            wrong.append(f"{page}: {link}: no such heading")
    return wrong


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.md")
        with open(page, "w", encoding="utf-8") as file:
            file.write("# A `b`, c\n\n[here](#a-b-c) [there](page.md#a-b-c)\n[lost](#a-b) [gone](gone.md)\n\n    [shown](not.md)\n")
        return len(dead(page)) != 2


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    pages = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    wrong = [text for page in sorted(set(pages.stdout.split())) if os.path.exists(os.path.join(ROOT, page))
             for text in dead(os.path.join(ROOT, page))]
    print("\n".join(wrong + [f"{len(wrong)} links are dead"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
