# SPDX-License-Identifier: Apache-2.0
"""One HTML page of charts and tables, with everything in it: it needs no network."""

import html
import json
from importlib import resources

from .series import TUTTI, charts_of, format_figure, format_size, lists_of, matrices_of

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


def escape(value):
    return html.escape(str(value))


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
            "Time of a call: p50, whiskers to p99",
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


def ratio_table(chart):
    """tutti's and its peers' times, where they were measured in one go."""
    parts = []
    for peer, own, shared in chart.ratios():
        own_points = {point.size: point for point in own.points}
        peer_points = {point.size: point for point in peer.points}
        head = "".join(f"<th>{format_size(size)}</th>" for size, _ in shared)
        rows = [
            (f"{own.contender}, p50 µs", [format_figure(own_points[size].time) for size, _ in shared]),
            ("p99", [p99_text(own_points[size]) for size, _ in shared]),
            (f"{peer.contender}, p50 µs", [format_figure(peer_points[size].time) for size, _ in shared]),
            ("p99", [p99_text(peer_points[size]) for size, _ in shared]),
            ("peer over tutti", [f'<span class="{"good" if r >= 0.97 else "bad"}">{r:.2f}</span>' for _, r in shared]),
        ]
        body = "".join(
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for name, cells in rows
        )
        parts.append(
            f"<table><caption>{escape(own.form)}: {escape(own.run.name)}</caption>"
            f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
    if not parts:
        return ""
    return f"<details><summary>Figures beside peers</summary><div class=scroll>{''.join(parts)}</div></details>"


def p99_text(point):
    return "" if point.p99 is None else format_figure(point.p99)


class Page:
    """Collects sections and their figures."""

    def __init__(self):
        self.figures = []
        self.sections = []  # (anchor, title, group, html)

    def place(self, title, spec):
        self.figures.append(spec)
        return (
            f"<figure><figcaption>{escape(title)}</figcaption>"
            f'<div class="figure" data-figure="{len(self.figures) - 1}"></div></figure>'
        )

    def section(self, title, group, body):
        anchor = f"s{len(self.sections)}"
        self.sections.append((anchor, title, group, f'<section id="{anchor}"><h3>{escape(title)}</h3>{body}</section>'))


def swatch(color, symbol, is_dotted):
    dots = ' stroke-dasharray="3"' if is_dotted else ""
    return (
        f'<svg viewBox="0 0 28 10" aria-hidden="true"><path d="M0 5H28" stroke="{color}" stroke-width="2"{dots}/>'
        f'<path d="{SYMBOLS[symbol]}" fill="{color}"/></svg>'
    )


def legend(chart, palette):
    entries = "".join(
        f'<li><button type=button data-line="{escape(chart_key(line))}" '
        f'aria-pressed="{str(is_shown(line, chart)).lower()}">'
        f"{swatch(*palette.of(line), line.in_place)}{escape(line.name)}</button></li>"
        for line in chart.lines
    )
    return f'<ul class="legend">{entries}</ul>'


def chart_body(page, chart, palette):
    figures = "".join(page.place(title, spec) for title, spec in figures_of(chart, palette))
    return f'<div class="chart"><div class="figures">{figures}{legend(chart, palette)}</div>{ratio_table(chart)}</div>'


def add_charts(page, runs):
    charts = charts_of(runs)
    palette = Palette(charts)
    grouped = {}
    for chart in charts:
        grouped.setdefault((chart.mode, chart.title), []).append(chart)
    for (mode, title), charts in grouped.items():
        charts.sort(key=lambda chart: chart.dtype != "float32")
        first, others = charts[0], charts[1:]
        body = f"<p>{escape(first.dtype)}</p>" if first.dtype != "float32" else ""
        body += chart_body(page, first, palette)
        if others:
            inner = "".join(f"<h4>{escape(chart.dtype)}</h4>{chart_body(page, chart, palette)}" for chart in others)
            body += f"<details><summary>{len(others)} more element types</summary>{inner}</details>"
        page.section(title, mode, body)


def add_lists(page, runs):
    for (mode, operation), lines in lists_of(runs).items():
        bars = [
            {"type": "bar", "name": f"{contender}: {run}", "marker": {"color": COLORS[number % len(COLORS)]},
             "hovertemplate": "%{x}: %{y:.4g} µs<extra>%{fullData.name}</extra>",
             "x": list(times), "y": list(times.values())}
            for number, ((contender, run), (_, times)) in enumerate(lines.items())
        ]  # fmt: skip
        spec = figure(
            bars,
            {"title": {"text": "list of tensors"}, "automargin": True},
            value_axis("time of a call (µs)", [time for _, times in lines.values() for time in times.values()]),
        )
        page.section(f"{operation}, lists of tensors", mode, f'<div class="figures">{page.place("Time", spec)}</div>')


def add_matrices(page, runs):
    """One section for each way of starting, in which all but the first run are folded away."""
    sections = {}
    for run, by, size, figures in matrices_of(runs):
        parts = []
        for index, title, unit in ((0, "Latency", "µs"), (1, "Bandwidth", "GB/s")):
            values = [[cell and cell[index] for cell in row] for row in figures]
            highest = max(cell for row in values for cell in row if cell is not None)
            names = [f"device {device}" for device in range(len(figures))]
            heat = {
                "type": "heatmap", "z": values, "zmin": 0, "zmax": highest, "x": names, "y": names,
                "colorscale": "Viridis", "colorbar": {"title": {"text": unit}},
                "texttemplate": "%{z:.3g}", "hovertemplate": f"from %{{y}} to %{{x}}: %{{z:.4g}} {unit}<extra></extra>",
            }  # fmt: skip
            vertical = {"title": {"text": "source"}, "autorange": "reversed", "automargin": True}
            horizontal = {"title": {"text": "destination"}, "automargin": True}
            parts.append(page.place(title, figure([heat], horizontal, vertical)))
        title = f"<h4>{escape(f'{format_size(size)} by {by}: {run.name}')}</h4>"
        sections.setdefault(run.mode, {}).setdefault(run.name, []).append(
            f'{title}<div class="figures">{"".join(parts)}</div>'
        )
    for mode, own in sections.items():
        first, *others = ("".join(bodies) for bodies in own.values())
        if others:
            first += f"<details><summary>{len(others)} more runs</summary>{''.join(others)}</details>"
        page.section("sendrecv: from every device to every other", mode, first)


def state_of(run):
    if run.faults:
        return f'<strong class="bad">{escape("; ".join(run.faults))}</strong>'
    checked = run.document.get("summary", {}).get("wrong") is not None
    state = "complete, no wrong element" if checked else "complete, elements not checked"
    return state + (f"; medians of {run.repetitions} runs" if run.repetitions > 1 else "")


def about_file(runs):
    """What machine and versions the runs of one file are of."""
    first = runs[0]
    facts, document = first.facts, first.document
    parts = [facts.get("date", "date unknown"), first.machine]
    parts += [facts[name] for name in ("host", "cpu", "processor", "system") if facts.get(name)]
    named = (
        ("tutti", document.get("version")),
        ("commit", facts.get("commit")),
        ("driver", facts.get("driver")),
        ("CUDA", facts.get("cuda")),
        ("NCCL", document.get("nccl")),
    )
    parts += [f"{title} {value}" for title, value in named if value]
    peers = dict.fromkeys(run.document["peer"] for run in runs if run.document.get("peer"))
    return " · ".join(map(escape, [*parts, *(f"beside {peer}" for peer in peers)]))


def runs_text(runs):
    files = {}
    for run in runs:
        files.setdefault(run.file, []).append(run)
    parts = []
    for file, own in files.items():
        rows = "".join(
            f"<tr><td>{escape(run.table)}</td><td><code>{escape(' '.join(run.document.get('command_line', [])))}</code>"
            f"</td><td>{state_of(run)}</td></tr>"
            for run in own
        )
        faulty = sum(1 for run in own if run.faults)
        warning = f' <strong class="bad">{faulty} with faults</strong>' if faulty else ""
        parts.append(
            f"<h4>{escape(file)}{warning}</h4><p class=facts>{about_file(own)}</p>"
            f"<details><summary>{len(own)} {'run' if len(own) == 1 else 'runs'}: commands and states</summary>"
            f'<div class="scroll"><table class="runs"><tbody>{rows}</tbody></table></div></details>'
        )
    return "".join(parts)


def contents(page):
    groups = {}
    for anchor, title, group, _ in page.sections:
        groups.setdefault(group, []).append(f'<li><a href="#{anchor}">{escape(title)}</a></li>')
    return "".join(f"<li>{escape(group)}<ul>{''.join(items)}</ul></li>" for group, items in groups.items())


def body_of(page):
    parts, last = [], None
    for _, _, group, body in page.sections:
        if group != last:
            parts.append(f"<h2>{escape(group[0].upper() + group[1:])}</h2>")
            last = group
        parts.append(body)
    return "".join(parts)


def asset(name):
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def page_of(runs, plotly):
    """The page; `plotly` is the source of plotly.js. None if nothing in the runs can be drawn."""
    page = Page()
    add_charts(page, runs)
    add_lists(page, runs)
    add_matrices(page, runs)
    if not page.sections:
        return None
    page.sections.sort(key=lambda section: section[2])
    dates = sorted({run.facts["date"] for run in runs if run.facts.get("date")})
    machines = sorted({run.machine for run in runs})
    about = f"{', '.join(machines)}{f'; measured {dates[0]} to {dates[-1]}' if dates else ''}"
    figures = json.dumps(page.figures, separators=(",", ":")).replace("</", "<\\/")
    return asset("page.html").format(
        style=asset("page.css"),
        about=escape(about),
        contents=contents(page),
        runs=runs_text(runs),
        body=body_of(page),
        figures=figures,
        plotly=plotly,
        script=asset("page.js"),
    )
