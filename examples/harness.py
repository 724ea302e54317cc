# SPDX-License-Identifier: Apache-2.0
"""Runs headrace for one figure and keeps what it printed, the pictures, and what was found."""
import json
import os
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def find_headrace(given):
    built = os.path.join(HERE, "..", "build", "release", "tools", "headrace")
    for path in (given, os.environ.get("HEADRACE"), built, shutil.which("headrace")):
        if path and os.access(path, os.X_OK):
            return os.path.abspath(path)
    sys.exit("no headrace binary: expected --headrace FILE, or a release build")


class Figure:
    """One finding: its text is every command with its output, then what follows from them. `anew`: nothing that was
    kept of earlier runs is taken."""

    def __init__(self, name, title, headrace, folder, anew=False):
        self.name, self.folder, self.headrace, self.anew = name, folder, headrace, anew
        self.text = title + "\n"
        self.findings = []  # (what, paper, here)
        self.pictures = []

    def say(self, text=""):
        self.text += text + "\n"

    def found(self, what, paper, here):
        self.findings.append((what, paper, here))

    def run(self, command, show=True, status=0):
        """Runs `headrace COMMAND` in a scratch folder; gives what it printed."""
        done = subprocess.run([self.headrace] + shlex.split(command), cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "TERM": "dumb", "COLUMNS": "120", "HEADRACE_THREADS": "1"})
        if done.returncode != status:
            raise SystemExit(f"headrace {command}: exit status {done.returncode}, expected {status}\n{done.stderr}")
        printed = done.stdout if status == 0 else done.stderr
        if show:
            self.say(f"\n$ headrace {command}\n{printed.rstrip()}")
        return printed

    def bench(self, command, picture=None, show=True):
        """`headrace bench` with its table in the text; gives its rows: {policy, batch, prefill, decode}."""
        drawn = f" --svg {picture}.svg" if picture else ""
        data = "bench.json"
        done = self.run(f"bench {command}{drawn} -o {data}", show=False)
        if show:
            self.say(f"\n$ headrace bench {command}{drawn}\n{done.rstrip()}")
        if picture:
            self.pictures.append(picture + ".svg")
        with open(os.path.join(self.folder, data), encoding="utf-8") as file:
            return json.load(file)["rows"]

    def compile(self, command):
        """`headrace compile --dry-run` with its words in the text; gives its JSON."""
        self.run(f"compile {command} --dry-run")
        return json.loads(self.run(f"compile {command} --dry-run --json", show=False))

    def draw(self, picture, title, subtitle, categories, series, panels, columns=1):
        with open(os.path.join(self.folder, picture + ".svg"), "w", encoding="utf-8") as file:
            file.write(bars(title, subtitle, categories, series, panels, columns))
        self.pictures.append(picture + ".svg")

    def table(self, header, rows):
        cells = [[str(c) for c in row] for row in [header] + rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        for row in cells:
            self.say("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip())

    def whole(self):
        text = self.text
        if self.findings:
            text += "\nfound\n"
            for what, paper, here in self.findings:
                text += f"  {what}\n    paper: {paper}\n    here:  {here}\n"
        return text


def gib(amount):
    return f"{amount / 2**30:.2f}"


def spread(values):
    """"1.2" or "1.2 to 3.4"."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


COLOURS = ["#7d8590", "#d64545", "#e08a2c", "#c4a03b", "#3b76c4", "#2e9b6b", "#8b5cc4", "#1f9aa8"]
KNOWN = {"none": 0, "deepspeed": 1, "flexgen": 2, "flexgen-nobus": 6, "select-n": 3, "headrace": 4}


def round_up(value):
    power = 1e-12
    while power * 10 <= value:
        power *= 10
    for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10):
        if factor * power >= value * (1 - 1e-12):
            return factor * power
    return 10 * power


def short(value):
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def bars(title, subtitle, categories, series, panels, columns):
    """Grouped bars as `headrace bench --svg` draws them. A panel is (title, values[category][series], limit)."""
    left, right, height, gap, top = 62, 22, 150, 66, 108
    plot = 834 if columns == 1 else 440
    rows = (len(panels) + columns - 1) // columns
    width = columns * (left + plot + right)
    out = []

    def text(x, y, what, more):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escaped(what)}</text>')

    colour = [COLOURS[KNOWN.get(name, i) % len(COLOURS)] for i, name in enumerate(series)]
    text(16, 26, title, 'font-size="17" font-weight="600" fill="#1f2328"')
    text(16, 45, subtitle, 'font-size="12" fill="#57606a"')
    at = 16
    for name, fill in zip(series, colour):
        if len(series) > 1:
            out.append(f'<rect x="{at:.1f}" y="58" width="12" height="12" rx="2" fill="{fill}"/>')
            text(at + 17, 68, name, 'fill="#1f2328"')
        at += 36 + 6.4 * len(name)
    for number, (panel, values, limit) in enumerate(panels):
        x0 = (number // rows) * (left + plot + right) + left
        y0 = top + (number % rows) * (height + gap)
        bottom = y0 + height
        most = max([v for group in values for v in group if v is not None] + [limit[0] if limit else 0])
        scale = round_up(most or 1)
        text(x0 - left + 16, y0 - 14, panel, 'font-size="12" font-weight="600" fill="#1f2328"')
        for tick in range(5):
            y = bottom - height * tick / 4
            stroke = "#57606a" if tick == 0 else "#e6e8eb"
            out.append(f'<line x1="{x0:.1f}" y1="{y:.1f}" x2="{x0 + plot:.1f}" y2="{y:.1f}" stroke="{stroke}"/>')
            text(x0 - 6, y + 4, short(scale * tick / 4), 'text-anchor="end" fill="#57606a"')
        if limit:
            y = bottom - height * limit[0] / scale
            out.append(f'<line x1="{x0:.1f}" y1="{y:.1f}" x2="{x0 + plot:.1f}" y2="{y:.1f}" stroke="#1f2328" '
                       'stroke-dasharray="5 4"/>')
            text(x0 + plot, y0 - 14, "- - " + limit[1], 'text-anchor="end" fill="#1f2328"')
        group = plot / len(categories)
        bar = min(34, group * 0.8 / len(series))
        for c, category in enumerate(categories):
            middle = x0 + group * (c + 0.5)
            x = middle - bar * len(series) / 2
            for s in range(len(series)):
                value = values[c][s]
                if value is None:
                    text(x + bar / 2, bottom - 4, "×", 'text-anchor="middle" fill="#d64545"')
                else:
                    tall = height * min(value / scale, 1)
                    out.append(f'<rect x="{x + 1:.1f}" y="{bottom - tall:.1f}" width="{bar - 2:.1f}" '
                               f'height="{tall:.1f}" fill="{colour[s]}"/>')
                    if 5 * len(short(value)) <= bar + 4:
                        text(x + bar / 2, bottom - tall - 3, short(value),
                             'text-anchor="middle" font-size="9" fill="#24292f" stroke="#ffffff" stroke-width="2.5" '
                             'paint-order="stroke"')
                x += bar
            text(middle, bottom + 16, category, 'text-anchor="middle" fill="#1f2328"')
    tall = top + rows * (height + gap) - 30
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall}" viewBox="0 0 {width} {tall}" '
            'font-family="system-ui, sans-serif" font-size="11">\n'
            f'<rect width="{width}" height="{tall}" fill="#ffffff"/>\n' + "\n".join(out) + "\n</svg>\n")
