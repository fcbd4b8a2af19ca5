# SPDX-License-Identifier: Apache-2.0
"""One HTML page of charts and tables, with everything in it: it needs no network."""

import html
import json
from importlib import resources

from .figures import COLORS, SYMBOLS, Palette, chart_key, figure, figures_of, is_shown, value_axis
from .series import charts_of, format_figure, format_size, lists_of, matrices_of


def escape(value):
    return html.escape(str(value))


def ratio_table(chart):
    """tutti's and its peers' times, where they were measured in one go."""
    parts = []
    for peer, own, shared in chart.ratios():
        own_points = {point.size: point for point in own.points}
        peer_points = {point.size: point for point in peer.points}
        head = "".join(f"<th>{format_size(size)}</th>" for size, _ in shared)
        rows = [
            (f"{own.contender}, median µs", [format_figure(own_points[size].time) for size, _ in shared]),
            ("p99", [p99_text(own_points[size]) for size, _ in shared]),
            (f"{peer.contender}, median µs", [format_figure(peer_points[size].time) for size, _ in shared]),
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
        drawn = page.place("Time of a call: median", spec)
        page.section(f"{operation}, lists of tensors", mode, f'<div class="figures">{drawn}</div>')


def add_matrices(page, runs):
    """One section for each way of starting, in which all but the first run are folded away."""
    sections = {}
    for run, by, size, dtype, figures in matrices_of(runs):
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
        title = f"<h4>{escape(f'{format_size(size)} of {dtype} by {by}: {run.name}')}</h4>"
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
