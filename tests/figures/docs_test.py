#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the pages say that `headrace` prints is what it prints.

  tests/figures/docs_test.py [--headrace FILE] [--slow] [PAGE ...]     exit status 1 if a page is stale
  tests/figures/docs_test.py --part 1/2                                every second page
  tests/figures/docs_test.py --self-test                               stale copies of a page are noticed

Commands are the lines `$ headrace ...` (what they print, as on a terminal, stands below them) and `headrace ...`
(it does not) of blocks, fenced or indented by four; `\\` at a line's end goes on, ` #` begins a comment. Those of a
page run one after the other in one folder, in which examples/ and tests/ lie, so that a later one may use what an
earlier one wrote. `$ cat FILE` writes FILE, as it stands below it; `$ cd FOLDER` goes there, for the rest of the block.

Every command exits with 0, or with 1 or 2 where the page shows `headrace: error:`. Output is compared word for word
(blanks and line ends alike, since pages are narrower than terminals), but for lines of progress, which a fast machine
does not print; `...` stands for anything. Then a digit of every line is changed, and the comparison has to see that.

A comment in front of a block, or of a table, which nobody sees in what is rendered:

  <!-- headrace: slow -->        takes seconds: only with --slow
  <!-- headrace: measured -->    ran on some machine: times, rates, ratios and shares are any, the lines `limited by`,
                                 `why` and `waited for`, which go by them, are not looked at; all else is compared
  <!-- headrace: not run, WHY -->    its flags are known, that is all
  <!-- headrace: rows 2-4            in the table below each row's figures in columns 2 to 4 (the first is 1) are, as
  $ headrace ...                     far as their digits go, among those that the row's command prints (`$ cat FILE`:
  $ headrace ... -->                 that a file beside the page has; `$ -`: a row without). `slow` may stand behind the
                                     columns
  <!-- headrace: figures             each figure with a unit in the paragraph below is among those that these commands
  $ headrace ... -->                 print
  <!-- headrace: picture FILE        the picture in the next line is the FILE that these commands, or those above, write
  $ headrace ... -->

Commands in running text (`headrace ...` between backticks) have flags that there are.
"""
import argparse
import difflib
import filecmp
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "examples"))
sys.dont_write_bytecode = True
from harness import find_headrace  # noqa: E402

MARKER = re.compile(r"\s*<!-- headrace: (.*?)-->", re.DOTALL)
OWN = ("rows", "figures", "picture")  # markers that have commands of their own
MEASURED = re.compile(r"\b\d+(?:\.\d+)?(?= (?:ms|us|s|x)\b|%|/s|(?: output)? tokens/s)|"
                      r"(?<=\bin iteration )\d+|(?<=median of )\d+")
PROGRESS = re.compile(r"^headrace: .*  .*\b(?:so far|left)\b.*\n", re.MULTILINE)  # tools/commands/Progress.h
UNITS = {"ns": ("s", 1e-9), "us": ("s", 1e-6), "ms": ("s", 1e-3), "s": ("s", 1), "B": ("B", 1), "KiB": ("B", 2**10),
         "MiB": ("B", 2**20), "GiB": ("B", 2**30), "%": ("%", 1)}
FIGURE = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?)(?: ?(ns|us|ms|s|B|KiB|MiB|GiB|%)(?!\w))?")


class Block:
    """Lines that belong together, with the marker in front of them. `line` is that of the first, from 1 on."""

    def __init__(self, line, lines, marker):
        self.line, self.lines, self.marker = line, lines, marker
        self.slow = re.search(r"\bslow\b", marker.partition("\n")[0]) is not None

    def asked(self):
        """The commands that the marker itself has."""
        return re.findall(r"^ *\$ (.*)", re.sub(r"\\\n *", "", self.marker), flags=re.MULTILINE)


def blocks(text):
    """The fenced and indented blocks of a page, and what markers with commands of their own are about."""
    lines, found, marker, at = text.split("\n"), [], "", 0
    while at < len(lines):
        line = lines[at]
        comment = MARKER.match("\n".join(lines[at:])) if line.lstrip().startswith("<!-- headrace:") else None
        if comment:
            marker = comment[1].strip()
            at += comment[0].count("\n") + 1
            if marker.startswith(OWN):
                end = at
                while end < len(lines) and lines[end].strip():
                    end += 1
                found.append(Block(at + 1, lines[at:end], marker))
                at, marker = end, ""
        elif line.lstrip().startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].lstrip().startswith("```"))
            found.append(Block(at + 2, undented(lines[at + 1:end]), marker))
            at, marker = end + 1, ""
        elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip() or marker):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            found.append(Block(at + 1, undented(lines[at:end]), marker))
            at, marker = end, ""
        else:
            marker = marker if not line.strip() else ""
            at += 1
    return found


def undented(lines):
    left = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[left:] for line in lines]


def commands(block):
    """(line, command, what is shown below it or None) of a block."""
    found, at = [], 0
    while at < len(block.lines):
        line = block.lines[at]
        if not re.match(r"\$ (headrace|cat|cd) |headrace ", line):
            at += 1
            continue
        begin, command = at, line
        while command.endswith("\\"):
            at += 1
            command = command[:-1] + " " + block.lines[at].strip()
        at += 1
        shown = None
        if command.startswith("$ "):
            command, end = command[2:], at
            while end < len(block.lines) and not block.lines[end].startswith("$ "):
                end += 1
            shown, at = "\n".join(block.lines[at:end]).rstrip(), end
        found.append((block.line + begin, command, shown))
    return found


def words(text):
    return " ".join(text.split())


def pieces(shown):
    return re.split(r"\s*\.\.\.\s*|\s*\.\.\.$", shown)


def accepts(shown, printed):
    """Whether the words `printed` are what is shown: each piece between `...` in its order, the first at the beginning,
    the last at the end."""
    parts, at = [words(part) for part in pieces(shown)], 0
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if number == 0:
            found = 0 if printed.startswith(part) else -1
        else:
            found = printed.rfind(part) if last else printed.find(part, at)
        if found < at or last and found + len(part) != len(printed):
            return False
        at = found + len(part)
    return True


def masked(text):
    """Without what depends on how fast things went; lines that a page has cut to its width are one again."""
    text = re.sub(r"^(?:waited for|limited by|why) .*\n?(?:[ ]{2,}.*\n?)*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n[ ]{12,}(?=\S)", " ", text)
    return MEASURED.sub("#", text.replace(" (behind a change)", ""))


def changed(line):
    """The line with another digit; None if it has none that counts."""
    digits = [i for i, c in enumerate(line) if c.isdigit()]
    if not digits:
        return None
    at = digits[-1]
    return line[:at] + str((int(line[at]) + 1) % 10) + line[at + 1:]


class Page:
    """Of one file: `wrong` has what is stale, each with its line; `ran` how many commands ran."""

    def __init__(self, headrace, path, folder):
        self.headrace, self.path, self.folder, self.at = headrace, path, folder, folder
        self.flags, self.wrong, self.ran = {}, [], 0

    def fail(self, line, what):
        self.wrong.append(f"{os.path.relpath(self.path, ROOT)}:{line}: {what}")

    def run(self, line, command, refused=False):
        """What the command prints; None if it does not end as the page says."""
        self.ran += 1
        began = time.monotonic()
        done = subprocess.run([self.headrace] + shlex.split(command, comments=True)[1:], cwd=self.at, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "TERM": "dumb", "COLUMNS": "120", "HEADRACE_THREADS": "1"})
        print(f"{time.monotonic() - began:6.1f} s  {os.path.relpath(self.path, ROOT)}:{line}  {words(command)}")
        if done.returncode not in ((1, 2) if refused else (0,)):
            return self.fail(line, f"{words(command)}\nexit status {done.returncode}, which is not shown\n"
                                   f"{done.stdout}")
        return re.sub(PROGRESS, "", done.stdout)

    def known(self, line, command):
        """The command's flags are the subcommand's."""
        given = command.split("|")[0].split()[1:]
        taken = 2 if given[:2] in (["bench", "serve"], ["record", "show"]) else 1
        name = " ".join(given[:taken])
        if name not in self.flags:
            done = subprocess.run([self.headrace, *name.split(), "--help"], capture_output=True, text=True, check=False)
            self.flags[name] = re.findall(r"--?[a-z][a-z0-9-]*", done.stdout) if done.returncode == 0 else []
        for flag in ["--help"] + re.findall(r"(?<=\s)--?[a-z][a-z0-9-]*", " " + " ".join(given[taken:])):
            if flag not in self.flags[name]:
                self.fail(line, f"{command}\n{name} has no flag {flag}")

    def compare(self, line, command, shown, printed, measured):
        """Words of both, then that every line counts."""
        if measured:
            shown, printed = masked(shown), masked(printed)
        if not accepts(shown, words(printed)):
            said = list(difflib.unified_diff(shown.splitlines(), printed.splitlines(), "shown", "printed", lineterm=""))
            return self.fail(line, words(command) + "\n" + "\n".join(said[:60]))
        lines = shown.split("\n")
        for number, text in enumerate(lines):
            other = changed(text)
            if other and accepts("\n".join(lines[:number] + [other] + lines[number + 1:]), words(printed)):
                self.fail(line + number, f"not compared: {text}")

    def rows(self, block):
        first, last = (int(column) for column in re.match(r"rows (\d+)-(\d+)", block.marker).groups())
        table = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.lines[2:]]
        asked = block.asked()
        if len(asked) != len(table):
            return self.fail(block.line, f"{len(table)} rows, {len(asked)} commands")
        for line, (command, cells) in enumerate(zip(asked, table), block.line + 2):
            if command.startswith("cat "):
                with open(os.path.join(os.path.dirname(self.path), command[4:]), encoding="utf-8") as file:
                    printed = file.read()
            else:
                printed = self.run(line, command) if command != "-" else None
            for given in (figure for cell in cells[first - 1:last] for figure in figures(cell) if printed is not None):
                if not any(given.rounds(figure) for figure in figures(printed)):
                    self.fail(line, f"{command}\nhas no {given.text}:\n{printed}")

    def paragraph(self, block):
        printed = "\n".join(self.run(block.line, command) or "" for command in block.asked())
        for given in figures(" ".join(block.lines)):
            if given.base and not any(given.rounds(figure) for figure in figures(printed)):
                self.fail(block.line, f"no command prints {given.text}")

    def picture(self, block):
        for command in block.asked():
            self.run(block.line, command)
        written = os.path.join(self.at, block.marker.split()[1])
        committed = os.path.join(os.path.dirname(self.path), re.search(r"\]\((.*?)\)", block.lines[0])[1])
        if not os.path.exists(written) or not filecmp.cmp(written, committed, shallow=False):
            self.fail(block.line, f"{os.path.relpath(committed, ROOT)} is not what is drawn")

    def check(self, slow):
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        found = blocks(text)
        if slow and not any(block.slow for block in found):
            return
        for block in found:
            self.at = self.folder
            if block.marker.startswith(OWN):
                if slow == block.slow:
                    own = {"rows": self.rows, "figures": self.paragraph, "picture": self.picture}
                    own[block.marker.split()[0]](block)
                continue
            for line, command, shown in commands(block):
                if command.startswith("cat "):
                    with open(os.path.join(self.at, command[4:].strip()), "w", encoding="utf-8") as file:
                        file.write(shown + "\n")
                elif command.startswith("cd "):
                    self.at = os.path.join(self.folder, command.split()[1])
                elif "not run" in block.marker:
                    self.known(line, command)
                elif slow or not block.slow:  # a slow one may need what a quick one before it wrote
                    printed = self.run(line, command, "headrace: error:" in (shown or ""))
                    if printed is not None and shown is not None and slow == block.slow:
                        self.compare(line + 1, command, shown, printed, "measured" in block.marker)
        if slow:
            return
        prose = re.sub(r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
        for span in re.finditer(r"`(headrace [^`]*)`", prose):
            self.known(prose[:span.start()].count("\n") + 1, words(span[1]))


class Quantity:
    """A figure in a text, with its unit if it has one."""

    def __init__(self, number, unit):
        self.text, self.number = f"{number} {unit}".strip(), float(number)
        self.base, self.factor = UNITS.get(unit, ("", 1))
        self.half = 0.50001 * 10.0 ** -len(number.partition(".")[2])

    def rounds(self, other):
        """Whether it is the other with fewer digits, maybe in another unit, or with none (a list that has one at its
        end)."""
        if not self.base:
            return abs(self.number - other.number) <= self.half
        return self.base == other.base and abs(self.number - other.number * other.factor / self.factor) <= self.half


def figures(text):
    return [Quantity(*found) for found in FIGURE.findall(re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))]


def check(headrace, path, slow=False):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "tests"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        page = Page(headrace, path, folder)
        page.check(slow)
        return page


def pages():
    found = [os.path.join(ROOT, name) for name in ("README.md", "CONTRIBUTING.md")]
    for top in ("docs", "examples", "bench", "tests"):
        for folder, _, files in os.walk(os.path.join(ROOT, top)):
            found += [os.path.join(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


def self_test(headrace):
    """A page as it should be passes; of copies that are stale in one place none does."""
    command = "headrace compile tinyllama-1.1b --hardware a10 --batch 2 --context 16 --dry-run"
    done = subprocess.run([headrace] + command.split()[1:], capture_output=True, text=True, check=True)
    printed = done.stdout
    memory = re.search(r"device memory +(\S+ GiB)", printed)[1]
    decode = re.search(r"decode .*: (\S+ ms) predicted", printed)[1]
    good = "\n".join([
        "# A page", "", "```", f"$ {command}", printed + "```", "", f"    $ {command}", "    ...",
        f"    decode ...{decode}...", "", "```", "$ headrace compile tinyllama-1.1b --batch 0 --dry-run",
        "headrace: error: command line: --batch = 0: expected an integer ...", "```", "",
        "<!-- headrace: rows 2-3", f"$ {command} -->", "| | memory | decode |", "|---|---|---|",
        f"| none | {memory} | {decode} |", "", "`headrace compile MODEL --batch 4`", ""])
    stale = {
        "as it is": good,
        "a figure": good.replace(printed, changed(printed), 1),
        "a word": good.replace("model ", "modul ", 1),
        "a line too many": good.replace(printed, printed + "more\n", 1),
        "the last line": good.replace(printed, printed[:printed.rstrip().rindex("\n") + 1], 1),
        "behind ...": good.replace(f"...{decode}", f"...1{decode}"),
        "an error": good.replace("batch = 0", "batch = 1"),
        "a status": good.replace("--batch 0", "--batch 1"),
        "a cell": good.replace(f"| {decode}", f"| {changed(decode)}"),
        "a row without a command": good.replace(f"{decode} |", f"{decode} |\n| more | {memory} | {decode} |"),
        "a flag": good.replace("--batch 4", "--batches 4")}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "page.md")
        for what, text in stale.items():
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            found = check(headrace, path).wrong
            print(f"{what}: {len(found)} stale")
            if bool(found) != (text is not good) or text == good and what != "as it is":
                wrong.append(f"{what}:\n" + "\n".join(found))
    return "\n".join(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="default: all of the project's")
    parser.add_argument("--headrace", help="the binary")
    parser.add_argument("--slow", action="store_true", help="those that are marked slow, in place of the others")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="of all pages, every Nth")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    headrace = find_headrace(options.headrace)
    if options.self_test:
        wrong = self_test(headrace)
        return f"not as it should be: {wrong}" if wrong else 0
    part, parts = (int(number) for number in options.part.split("/"))
    paths = [os.path.abspath(path) for path in options.pages] or pages()[part - 1::parts]
    checked = [check(headrace, path, options.slow) for path in paths]
    wrong = [text for page in checked for text in page.wrong]
    print("\n\n".join(wrong + [f"{sum(page.ran for page in checked)} commands ran, {len(wrong)} places are stale"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
