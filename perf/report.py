#!/usr/bin/env python3
"""Draws what tutti-perf measured: one self-contained HTML page with time and bus bandwidth over size.

usage: perf/report.py FILE.json... [-o report.html]

Takes files that `tutti-perf -J` wrote, and any other JSON that contains such documents (the results of scripts/gpu-check
or of perf/compare_torch.py). One pair of plots per operation, one line per transport, form of launch and peer.
"""

import argparse
import html
import json
import math
import sys

WIDTH, HEIGHT = 520, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 28, 40
COLORS = ["#1b6ca8", "#d1495b", "#3a7d44", "#8d5a97", "#e08e2b", "#2a9d8f", "#6c757d", "#9c6644"]


def fail(message):
    sys.exit(f"report.py: {message}")


def documents_in(value):
    """Every tutti-perf document in a JSON value, however deep."""
    if isinstance(value, dict):
        if value.get("schema") in ("tutti-perf/1", "tutti-perf/2"):
            yield value
            return
        if value.get("schema") == "tutti-compare-torch/1":
            yield torch_document(value)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from documents_in(item)


def torch_document(comparison):
    """The rows of torch.cuda.comm, in the shape of tutti-perf's."""
    gpus = comparison["gpus"]
    rows = []
    for row in comparison["rows"]:
        seconds = row["torch"]["back_to_back_us"] * 1e-6
        factor = (gpus - 1) / gpus if row["operation"] in ("scatter", "gather") else 1.0
        rows.append({"operation": row["operation"], "size": row["size"], "tensor_list": row["tensor_list"],
                     "by": "torch.cuda.comm", "launch": "eager", "transport": "", "dtype": "float32", "root": 0,
                     "dim": 0, "out_of_place": {"time_us": seconds * 1e6,
                                                "busbw_gbps": row["size"] / seconds * 1e-9 * factor}})
    return {"backend": "cuda", "devices_used": gpus, "devices": [{"name": comparison["gpu"]}], "version": "",
            "settings": {"transport": "", "time": "back_to_back"}, "rows": rows}


def series_of(documents):
    """{operation: {line's name: {size: (time, busbw)}}}, the best of several measurements of one point."""
    plots = {}
    for document in documents:
        headline = "" if document["settings"]["time"] == "back_to_back" else ", latency"
        for row in document["rows"]:
            measured = row["out_of_place"] or row.get("in_place")
            if row["tensor_list"] or row["operation"] == "sendrecv" or not measured:
                continue
            if row["root"] > 0 or row["size"] == 0:
                continue
            who = row["by"]
            if who == "tutti":
                forced = document["settings"]["transport"]
                who += " " + (row["transport"] if forced != "auto" else "automatic")
            if document.get("mode") == "ranks":
                who += " between ranks"
            name = f"{who}, {row['launch']}{headline}"
            operation = row["operation"] + (f", dimension {row['dim']}" if row["dim"] else "")
            if row["dtype"] != "float32":
                operation += f", {row['dtype']}"
            point = (measured["time_us"], measured["busbw_gbps"])
            points = plots.setdefault(operation, {}).setdefault(name, {})
            if row["size"] not in points or point < points[row["size"]]:
                points[row["size"]] = point
    return plots


def format_size(size):
    for shift, letter in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g}{letter}" if size % (1 << shift) == 0 else f"{size / (1 << shift):.1f}{letter}"
    return str(size)


class Axis:
    """A logarithmic scale from data to picture coordinates."""

    def __init__(self, values, start, end, base):
        self.low, self.high = min(values), max(values)
        if self.low == self.high:
            self.low, self.high = self.low / base, self.high * base
        self.start, self.end, self.base = start, end, base

    def place(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most):
        first = math.ceil(round(math.log(self.low, self.base), 9))
        last = math.floor(round(math.log(self.high, self.base), 9))
        step = max(1, math.ceil((last - first + 1) / most))
        return [self.base**exponent for exponent in range(first, last + 1, step)]


def plot(title, unit, lines, index):
    """An SVG of one figure (0: time, 1: bandwidth) of every line over size, both axes logarithmic."""
    values = [point[index] for points in lines.values() for point in points.values() if point[index] > 0]
    if not values:
        return ""
    sizes = [size for points in lines.values() for size in points]
    x = Axis(sizes, LEFT, WIDTH - RIGHT, 2)
    y = Axis(values, HEIGHT - BOTTOM, TOP, 10)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">',
             f'<text x="{LEFT}" y="16" class="title">{html.escape(title)} ({unit})</text>']
    for tick in x.ticks(9):
        at = x.place(tick)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="grid"/>'
                     f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" class="tick middle">{format_size(int(tick))}</text>')
    for tick in y.ticks(6):
        at = y.place(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4:.1f}" class="tick end">{tick:g}</text>')
    for number, (name, points) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        placed = [(x.place(size), y.place(point[index]), size, point[index])
                  for size, point in sorted(points.items()) if point[index] > 0]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _, _ in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        for a, b, size, value in placed:
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}">'
                         f"<title>{html.escape(name)}: {format_size(size)}, {value:.4g} {unit}</title></circle>")
    parts.append("</svg>")
    return "\n".join(parts)


def legend(lines):
    items = [f'<li><span style="background:{COLORS[number % len(COLORS)]}"></span>{html.escape(name)}</li>'
             for number, name in enumerate(lines)]
    return f"<ul>{''.join(items)}</ul>"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
svg { width: 49%; min-width: 420px; font: 11px system-ui, sans-serif }
.grid { stroke: #e4e4e4 } .tick { fill: #555 } .middle { text-anchor: middle } .end { text-anchor: end }
.title { font-size: 13px; font-weight: 600 }
ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1.5em }
li span { display: inline-block; width: 1.2em; height: .25em; margin-right: .4em; vertical-align: middle }
"""


def page(documents):
    machines = {f"{document['devices_used']} x {document['devices'][0]['name']} ({document['backend']})"
                for document in documents}
    sections = []
    for operation, lines in series_of(documents).items():
        sections.append(f"<h2>{html.escape(operation)}</h2>{legend(lines)}"
                        + plot("time per operation", "µs", lines, 0) + plot("bus bandwidth", "GB/s", lines, 1))
    if not sections:
        fail("no sweep over sizes in these files")
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>tutti-perf</title><style>{STYLE}</style>'
            f"<h1>tutti-perf</h1><p>{html.escape(', '.join(sorted(machines)))}; out of place (in place where that is all), root 0. "
            f"Hover over a point for its value.</p>{''.join(sections)}</html>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE.json")
    parser.add_argument("-o", default="report.html", metavar="FILE", help="the page (default report.html)")
    given = parser.parse_args()
    documents = []
    for name in given.files:
        try:
            with open(name, encoding="utf-8") as stream:
                found = list(documents_in(json.load(stream)))
        except (OSError, ValueError) as error:
            fail(f"{name}: {error}")
        if not found:
            fail(f"{name}: no document of schema tutti-perf/2 in it")
        documents += found
    text = page(documents)
    with open(given.o, "w", encoding="utf-8") as stream:
        stream.write(text)
    print(f"{given.o}: {len(documents)} run(s)")


if __name__ == "__main__":
    main()
