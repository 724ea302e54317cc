# SPDX-License-Identifier: Apache-2.0
"""What `examples/*/reproduce` have in common: makes a paper's figures, or compares them with what is committed.

`--check` of all figures also refuses what lies in results/ and no figure makes, but for what was measured: on a machine
of its own, by a command of its own, so that no other gives the same.
"""
import argparse
import difflib
import json
import os
import sys
import tempfile

from harness import Figure, find_headrace

BEGIN, END = "<!-- what reproduce found -->\n", "<!-- end -->\n"


class Reproduction:
    """Of one folder: its README.md with the table of findings, its results/, its figures by name, and which files of
    results/ were measured."""

    def __init__(self, folder, figures, measured=()):
        self.folder, self.figures, self.measured = folder, figures, measured
        self.results = os.path.join(folder, "results")

    def make(self, name, headrace, anew):
        """The figure's files, by name."""
        title, function = self.figures[name]
        with tempfile.TemporaryDirectory() as folder:
            figure = Figure(name, title, headrace, folder, anew)
            function(figure)
            files = {name + ".txt": figure.whole()}
            for picture in figure.pictures:
                with open(os.path.join(folder, picture), encoding="utf-8") as file:
                    files[picture] = file.read()
        files[name + ".json"] = json.dumps(figure.findings, indent=1, ensure_ascii=False) + "\n"
        return files

    def differs(self, name, text):
        path = os.path.join(self.results, name)
        committed = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if committed == text:
            return False
        for line in list(difflib.unified_diff(committed.splitlines(), text.splitlines(), "committed/" + name,
                                              "now/" + name, lineterm=""))[:40]:
            print(line)
        return True

    def table(self):
        """All findings, from the committed files."""
        rows = ["| | finding | paper | here |", "|---|---|---|---|"]
        for name in self.figures:
            path = os.path.join(self.results, name + ".json")
            if os.path.exists(path):
                for what, paper, here in json.load(open(path, encoding="utf-8")):
                    rows.append(f"| [{name}](results/{name}.txt) | {what} | {paper} | {here} |")
        return "\n".join(rows) + "\n"

    def main(self, doc):
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(self.figures))
        parser.add_argument("--check", action="store_true", help="compare, write nothing")
        parser.add_argument("--anew", action="store_true", help="ask for cells that are kept, too")
        parser.add_argument("--headrace", help="the binary")
        options = parser.parse_args()
        for name in options.figures:
            if name not in self.figures:
                parser.error(f"{name}: expected some of {', '.join(self.figures)}")
        headrace = find_headrace(options.headrace)
        wrong, made = [], set(self.measured)
        for name in options.figures or self.figures:
            print(name, file=sys.stderr)
            files = self.make(name, headrace, options.anew)
            made |= set(files)
            for file, text in files.items():
                if options.check:
                    wrong += [file] if self.differs(file, text) else []
                else:
                    os.makedirs(self.results, exist_ok=True)
                    with open(os.path.join(self.results, file), "w", encoding="utf-8") as out:
                        out.write(text)
        readme = os.path.join(self.folder, "README.md")
        text = open(readme, encoding="utf-8").read()
        new = text[: text.index(BEGIN) + len(BEGIN)] + self.table() + text[text.index(END):]
        if options.check and not options.figures:
            wrong += [name for name in sorted(os.listdir(self.results)) if name not in made]
        if options.check and new != text:
            wrong.append("README.md")
        elif not options.check:
            open(readme, "w", encoding="utf-8").write(new)
        if wrong:
            sys.exit("differs from what is committed: " + ", ".join(wrong) + "\nrun " +
                     os.path.relpath(os.path.join(self.folder, "reproduce")) + " and look at what changed")
