# SPDX-License-Identifier: Apache-2.0
"""The figures of charts, as plotly draws them: axes, lines and their looks."""

from .series import TUTTI, format_size

# Colours that differ in hue and lightness, and can be told apart by most of those who see few colours.
COLORS = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#a5aa00",
    "#f2545b", "#3d5a80", "#80ba5a", "#8c564b", "#17becf", "#b07aa1", "#6b4c9a", "#999999",
]  # fmt: skip
# Plotly's names, and how a legend draws them around (14, 5).
SYMBOLS = {
    "circle": "M11 5a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z",
    "square": "M11 2h6v6h-6Z",
    "diamond": "M14 1l4 4-4 4-4-4Z",
    "triangle-up": "M14 1l4 7h-8Z",
    "triangle-down": "M14 9l4-7h-8Z",
    "star-diamond": "M14 0l1 4 4 1-4 1-1 4-1-4-4-1 4-1Z",
    "hourglass": "M11 1h6l-6 8h6Z",
    "bowtie": "M10 2v6l8-6v6Z",
}
MOST_TICKS = 8


class Palette:
    """A colour and a symbol for each contender and form of each run: the same in all charts, and of one chart no two."""

    def __init__(self, charts):
        beside = {}  # what a line shares a chart with
        for chart in charts:
            keys = dict.fromkeys(self.key(line) for line in chart.lines)
            for key in keys:
                beside.setdefault(key, {}).update(keys)
        self.numbers = {}
        for key, others in beside.items():
            taken = {self.numbers.get(other) for other in others}
            self.numbers[key] = next(number for number in range(len(beside)) if number not in taken)

    @staticmethod
    def key(line):
        return line.run.name, line.contender, line.form.removesuffix(", in place")

    def of(self, line):
        number = self.numbers[self.key(line)]
        return COLORS[number % len(COLORS)], list(SYMBOLS)[number // len(COLORS) % len(SYMBOLS)]


def size_axis(sizes):
    first, last = min(sizes).bit_length() - 1, max(sizes).bit_length() - 1
    ticks = [1 << power for power in range(first, last + 1, -(-(last - first + 1) // MOST_TICKS))]
    return {
        "type": "log",
        "title": {"text": "payload (bytes)"},
        "tickvals": ticks,
        "ticktext": [format_size(size) for size in ticks],
        "tickangle": 0,
        "automargin": True,
    }


def value_axis(title, values):
    """Marked at 1, 2 and 5 of each decade, unless there are many of these, or not one."""
    axis = {"type": "log", "title": {"text": title}, "automargin": True, "exponentformat": "none"}
    above = [value for value in values if value > 0]
    if above and 10 < max(above) / min(above) < 1e6:
        axis["dtick"] = "D2"
    return axis


def chart_key(line):
    """What the lines of one contender in the figures of a chart have in common: its entry in the legend shows or hides
    them all."""
    return f"{line.contender}, {line.form}: {line.run.name}, {line.run.table}"


def trace(line, palette, values, unit, visible):
    """One line; `values` are (point, figure, p99 or None)."""
    color, symbol = palette.of(line)
    details = [[format_size(p.size), p.how, "" if p99 is None else f"<br>p99 {p99:.4g} {unit}"] for p, _, p99 in values]
    result = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": line.name,
        "meta": chart_key(line),
        "x": [point.size for point, _, _ in values],
        "y": [value for _, value, _ in values],
        "customdata": details,
        "hovertemplate": f"%{{customdata[0]}}: %{{y:.4g}} {unit}%{{customdata[2]}}<br>%{{customdata[1]}}"
        "<extra>%{fullData.name}</extra>",
        "line": {
            "color": color,
            "width": 2.5 if line.by == TUTTI else 1.5,
            "dash": "dot" if line.in_place else "solid",
        },
        "marker": {"color": color, "symbol": symbol, "size": 6},
        "visible": True if visible else "legendonly",
    }
    if any(p99 is not None for _, _, p99 in values):
        result["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [max(0, (p99 or value) - value) for _, value, p99 in values],
            "arrayminus": [0] * len(values),
            "thickness": 0.8,
            "width": 2,
        }
    return result


def figure(data, horizontal, vertical, more=None):
    return {"data": data, "layout": {"xaxis": horizontal, "yaxis": vertical} | (more or {})}


def is_shown(line, chart):
    """Lines in place are a click away, unless there is nothing else."""
    return not line.in_place or all(other.in_place for other in chart.lines)


def time_in_words(chart):
    """Names the time that the lines of a chart show."""
    kinds = {line.run.document["settings"]["time"] for line in chart.lines}
    if len(kinds) > 1:
        return "Time of a call, back to back or, where the legend says so, latency"
    return "Latency of a call" if kinds == {"latency"} else "Time of a call, back to back"


def figures_of(chart, palette):
    """[(title, figure)]: time, bandwidth, and peers' times over tutti's."""
    sizes = [point.size for line in chart.lines for point in line.points]
    time = [
        trace(line, palette, [(p, p.time, p.p99) for p in line.points], "µs", is_shown(line, chart))
        for line in chart.lines
    ]
    bandwidth = [
        trace(
            line,
            palette,
            [(p, p.bandwidth, None) for p in line.points if p.bandwidth > 0],
            "GB/s",
            is_shown(line, chart),
        )
        for line in chart.lines
    ]
    if chart.roof:
        bandwidth.append(
            {
                "type": "scatter",
                "mode": "lines+text",
                "text": [f"link: {chart.roof:g} GB/s", ""],
                "textposition": "top right",
                "textfont": {"size": 10},
                "name": f"link limit: {chart.roof:g} GB/s, nominal",
                "x": [min(sizes), max(sizes)],
                "y": [chart.roof] * 2,
                "line": {"dash": "dash", "width": 1, "color": "#888888"},
                "hoverinfo": "name",
            }
        )
    found = [
        (
            f"{time_in_words(chart)}: median, whiskers to p99",
            figure(
                time, size_axis(sizes), value_axis("time (µs)", [p.time for line in chart.lines for p in line.points])
            ),
        ),
        (
            "Bus bandwidth",
            figure(
                bandwidth,
                size_axis(sizes),
                value_axis("bus bandwidth (GB/s)", [p.bandwidth for line in chart.lines for p in line.points]),
            ),
        ),
    ]
    ratios = []
    for peer, own, shared in chart.ratios():
        points = {point.size: point for point in peer.points}
        line = trace(peer, palette, [(points[size], ratio, None) for size, ratio in shared], "x", is_shown(peer, chart))
        line["name"] = f"{peer.contender} over {own.contender}, {peer.form}: {peer.run.name}"
        ratios.append(line)
    if ratios:
        one = {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": 1,
            "y1": 1,
            "line": {"width": 1, "color": "#888888"},
        }
        axis = value_axis("ratio", [ratio for _, _, shared in chart.ratios() for _, ratio in shared])
        found.append(
            (
                "A peer's time over tutti's: above 1, tutti is faster",
                figure(ratios, size_axis(sizes), axis, {"shapes": [one]}),
            )
        )
    return found
