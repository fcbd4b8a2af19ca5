# SPDX-License-Identifier: Apache-2.0
"""The figures of charts, as plotly draws them: axes, lines and their looks."""

from .series import TUTTI, format_size

# Colours that differ in hue and lightness, and can be told apart by most of those who see few colours.
COLORS = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#a5aa00",
    "#f2545b", "#3d5a80", "#80ba5a", "#8c564b", "#17becf", "#b07aa1", "#6b4c9a", "#999999",
]  # fmt: skip
SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "star-diamond", "hourglass", "bowtie"]
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
        return COLORS[number % len(COLORS)], SYMBOLS[number // len(COLORS) % len(SYMBOLS)]


def size_axis(sizes):
    first, last = min(sizes).bit_length() - 1, max(sizes).bit_length() - 1
    ticks = [1 << power for power in range(first, last + 1, -(-(last - first + 1) // MOST_TICKS))]
    labels = [format_size(size) for size in ticks]
    return {"type": "log", "title": {"text": "payload (bytes)"}, "tickvals": ticks, "ticktext": labels}


def value_axis(title, values):
    """Marked at 1, 2 and 5 of each decade, unless there are many of these, or not one."""
    axis = {"type": "log", "title": {"text": title}, "exponentformat": "none"}
    above = [value for value in values if value > 0]
    if above and 10 < max(above) / min(above) < 1e6:
        axis["dtick"] = "D2"
    return axis


def trace(line, name, look, values, unit):
    """One line; `values` are (point, figure, p99 or None)."""
    color, symbol = look
    details = [[format_size(p.size), p.how, "" if p99 is None else f"<br>p99 {p99:.4g} {unit}"] for p, _, p99 in values]
    drawn = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "legendgroup": f"{line.contender}, {line.form}: {line.run.name}, {line.run.table}",
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
    }
    if any(p99 is not None for _, _, p99 in values):
        whiskers = [max(0, (p99 or value) - value) for _, value, p99 in values]
        drawn["error_y"] = {"type": "data", "symmetric": False, "array": whiskers, "arrayminus": [0] * len(values)}
    return drawn


def panels_of(chart):
    """[(title, unit, [(line, its name, [(point, figure, p99 or None)])])]: time, bandwidth, peers over tutti."""
    times = [(line, line.name, [(p, p.time, p.p99) for p in line.points]) for line in chart.lines]
    rates = [
        (line, line.name, [(p, p.bandwidth, None) for p in line.points if p.bandwidth > 0]) for line in chart.lines
    ]
    ratios = []
    for peer, own, shared in chart.ratios():
        points = {point.size: point for point in peer.points}
        name = f"{peer.contender} over {own.contender}, {peer.form}: {peer.run.name}"
        ratios.append((peer, name, [(points[size], ratio, None) for size, ratio in shared]))
    panels = [
        ("Time of a call, back to back: median, whiskers to p99 (µs)", "µs", times),
        ("Bus bandwidth (GB/s)", "GB/s", rates),
        ("A peer's time over tutti's", "x", ratios),
    ]
    return [panel for panel in panels if any(values for _, _, values in panel[2])]


def side_by_side(count, **more):
    return {"grid": {"rows": 1, "columns": count, "pattern": "independent", "xgap": 0.2}, **more}


def axis_of(number):
    return "" if number == 0 else str(number + 1)


def figure_of_chart(chart, palette):
    """Its panels side by side. Lines in place are a click in the legend away, unless there is nothing else."""
    sizes = [point.size for line in chart.lines for point in line.points]
    only_in_place = all(line.in_place for line in chart.lines)
    panels = panels_of(chart)
    legend = {"orientation": "h", "y": -0.25, "yanchor": "top"}
    data, layout = [], side_by_side(len(panels), height=400 + 20 * len(chart.lines), legend=legend)
    for number, (title, unit, lines) in enumerate(panels):
        axes = {"xaxis": f"x{axis_of(number)}", "yaxis": f"y{axis_of(number)}", "showlegend": number == 0}
        for line, name, values in lines:
            visible = True if only_in_place or not line.in_place else "legendonly"
            data.append(trace(line, name, palette.of(line), values, unit) | axes | {"visible": visible})
        values = [value for _, _, own in lines for _, value, _ in own]
        layout |= {f"xaxis{axis_of(number)}": size_axis(sizes), f"yaxis{axis_of(number)}": value_axis(title, values)}
        if unit == "GB/s" and chart.roof:
            data.append(roof(chart.roof, sizes) | axes)
    return {"data": data, "layout": layout}


def roof(rate, sizes):
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"link limit: {rate:g} GB/s, nominal",
        "x": [min(sizes), max(sizes)],
        "y": [rate] * 2,
        "line": {"dash": "dash", "width": 1, "color": "#888888"},
        "hoverinfo": "name",
    }


def figure_of_list(times):
    """Bars; `times` are {name: {tensor list: µs}}."""
    bars = [
        {"type": "bar", "name": name, "marker": {"color": COLORS[number % len(COLORS)]},
         "x": list(own), "y": list(own.values())}
        for number, (name, own) in enumerate(times.items())
    ]  # fmt: skip
    axis = value_axis("time of a call: median (µs)", [time for own in times.values() for time in own.values()])
    return {
        "data": bars,
        "layout": {"xaxis": {"title": {"text": "list of tensors"}}, "yaxis": axis, "showlegend": True},
    }


def figure_of_pairs(pairs):
    """Latency and bandwidth from each device to each other; pairs[source][destination] is (µs, GB/s) or None."""
    names = [f"device {device}" for device in range(len(pairs))]
    data, layout = [], side_by_side(2, height=400)
    for index, title in enumerate(("latency (µs)", "bandwidth (GB/s)")):
        values = [[cell and cell[index] for cell in line] for line in pairs]
        axes = {"xaxis": f"x{axis_of(index)}", "yaxis": f"y{axis_of(index)}"}
        data.append(
            {"type": "heatmap", "z": values, "zmin": 0, "x": names, "y": names, "colorscale": "Viridis",
             "showscale": False, "texttemplate": "%{z:.3g}"} | axes
        )  # fmt: skip
        layout[f"xaxis{axis_of(index)}"] = {"title": {"text": f"destination, {title}"}}
        layout[f"yaxis{axis_of(index)}"] = {"title": {"text": "source"}, "autorange": "reversed"}
    return {"data": data, "layout": layout}
