# SPDX-License-Identifier: Apache-2.0
"""Orders the rows of runs: charts of one operation, lines of one run and one contender over payload sizes."""

import statistics
from dataclasses import dataclass, field

from .documents import TORCH

TUTTI = "tutti"


@dataclass(frozen=True)
class Point:
    size: int
    time: float  # µs, back to back
    wrong: int  # elements


@dataclass
class Line:
    """One contender's figures in one run."""

    run: object
    by: str  # "tutti", "nccl R0", "torch.cuda.comm" …
    form: str  # how it was called: "eager", "persistent, in place" …
    points: list = field(default_factory=list)

    @property
    def contender(self):
        transport = self.run.document["settings"]["transport"]
        return f"{TUTTI} by {transport}" if self.by == TUTTI and transport != "auto" else self.by

    @property
    def in_place(self):
        return self.form.endswith("in place")


@dataclass
class Chart:
    """One operation's lines: of one mode, element type, dimension, reduction and root."""

    mode: str
    operation: str
    dtype: str
    variant: str  # "dimension 1", "min, root 3" or empty
    lines: list = field(default_factory=list)

    @property
    def title(self):
        return ", ".join(part for part in (self.operation, self.variant) if part)

    def ratios(self):
        """(line of a peer, tutti's, [(size, the peer's time over tutti's)]) wherever both are of one run and form, and
        right."""
        found = []
        for peer in self.lines:
            if peer.by == TUTTI:
                continue
            for own in self.lines:
                if own.by == TUTTI and own.form == peer.form and are_comparable(own.run, peer.run):
                    times = {point.size: point.time for point in own.points if not point.wrong}
                    right = [point for point in peer.points if not point.wrong]
                    shared = [(p.size, p.time / times[p.size]) for p in right if times.get(p.size)]
                    if shared:
                        found.append((peer, own, shared))
        return found


def contender_of(row):
    """Who, and of a peer that was used in several ways, which."""
    return f"{row['by']} {row['mode']}" if row.get("mode") else row["by"]


def are_comparable(one, other):
    """Whether they were measured in one go on one machine."""
    return one is other or (one.file == other.file and one.table == other.table == TORCH)


def variant_of(row):
    parts = [f"dimension {row['dim']}"] if row["dim"] else []
    if row.get("redop", "none") not in ("none", "sum"):
        parts.append(row["redop"])
    return ", ".join(parts + ([f"root {row['root']}"] if row["root"] > 0 else []))


def form_of(run, row, place):
    parts = [row["launch"]]
    if run.document["settings"].get("determinism") == "bitwise":
        parts.append("bitwise")
    if row.get("results") == "new":
        parts.append("results returned")
    return ", ".join(parts + (["in place"] if place == "in_place" else []))


def charts_of(runs):
    """Charts of all that was measured over sizes, in the order of the runs."""
    charts, lines = {}, {}
    for run in runs:
        for row in run.document["rows"]:
            if row["tensor_list"] or "destination" in row or row["size"] == 0:
                continue
            key = (run.mode, row["operation"], row["dtype"], variant_of(row))
            for place in ("out_of_place", "in_place"):
                measured = row.get(place)
                if not measured:
                    continue
                chart = charts.setdefault(key, Chart(*key))
                form = form_of(run, row, place)
                by = contender_of(row)
                line_key = (key, id(run), by, form)
                if line_key not in lines:
                    lines[line_key] = Line(run, by, form)
                    chart.lines.append(lines[line_key])
                lines[line_key].points.append(Point(row["size"], measured["time_us"], measured.get("wrong") or 0))
    for line in lines.values():
        line.points.sort(key=lambda point: point.size)
    return list(charts.values())


def lists_of(runs):
    """{(mode, operation): {(contender, run's name): (file, {tensor list: µs})}} of what was measured on lists of tensors.

    A contender is named with how it was called, and on what. What a file has of one in several tables is one figure,
    their median.
    """
    found = {}
    for run in runs:
        for row in run.document["rows"]:
            place = "out_of_place" if row.get("out_of_place") else "in_place"
            measured = row.get(place)
            if row["tensor_list"] and measured:
                lines = found.setdefault((run.mode, row["operation"]), {})
                about = [row["dtype"] if row["dtype"] != "float32" else "", variant_of(row)]
                words = [contender_of(row), form_of(run, row, place), *filter(None, about)]
                key = (", ".join(words), run.name)
                times = lines.setdefault(key, (run.file, {}))[1]
                times.setdefault(row["tensor_list"], []).append(measured["time_us"])
    return {
        key: {
            line: (file, {name: statistics.median(several) for name, several in times.items()})
            for line, (file, times) in lines.items()
        }
        for key, lines in found.items()
    }


def format_size(size):
    for shift, letter in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << shift:
            return f"{size >> shift}{letter}" if size % (1 << shift) == 0 else f"{size / (1 << shift):.1f}{letter}"
    return str(size)


def format_figure(value):
    """Three significant digits, as a person writes them."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
