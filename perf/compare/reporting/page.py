# SPDX-License-Identifier: Apache-2.0
"""One HTML page of charts, with everything in it: it needs no network."""

import html
import json
from importlib import resources

from .figures import Palette, figure_of_chart, figure_of_list, figure_of_pairs
from .series import charts_of, format_size, lists_of, matrices_of
from .tables import provenance


def escape(value):
    return html.escape(str(value))


class Page:
    """Collects sections and their figures."""

    def __init__(self):
        self.figures = []
        self.sections = []  # (group, title, html)

    def place(self, figure):
        self.figures.append(figure)
        return f'<div data-figure="{len(self.figures) - 1}"></div>'

    def section(self, group, title, parts, what):
        """Adds a section of titled parts, of which all but the first are folded away."""
        first, *others = (f"<h4>{escape(name)}</h4>{body}" for name, body in parts)
        more = f"<details><summary>{len(others)} more {what}</summary>{''.join(others)}</details>" if others else ""
        self.sections.append((group, title, first + more))


def add_charts(page, runs):
    charts = charts_of(runs)
    palette = Palette(charts)
    grouped = {}
    for chart in charts:
        grouped.setdefault((chart.mode, chart.title), []).append(chart)
    for key, own in grouped.items():
        own.sort(key=lambda chart: chart.dtype != "float32")
        parts = [(chart.dtype, page.place(figure_of_chart(chart, palette))) for chart in own]
        page.section(*key, parts, "element types")


def add_lists(page, runs):
    for (mode, operation), lines in lists_of(runs).items():
        times = {f"{contender}: {run}": own for (contender, run), (_, own) in lines.items()}
        page.section(mode, f"{operation}, lists of tensors", [("", page.place(figure_of_list(times)))], "")


def add_matrices(page, runs):
    sections = {}
    for run, by, size, dtype, pairs in matrices_of(runs):
        title = f"{format_size(size)} of {dtype} by {by}: {run.name}"
        sections.setdefault(run.mode, []).append((title, page.place(figure_of_pairs(pairs))))
    for mode, parts in sections.items():
        page.section(mode, "sendrecv: from every device to every other", parts, "matrices")


def about_run(run):
    marked = ' class="bad"' if run.faults else ""
    text = provenance(run).replace("`", "").replace("**", "")
    return f"<li{marked}>{escape(run.machine)}: {escape(text)}</li>"


def page_of(runs, plotly):
    """The page; `plotly` is the source of plotly.js. None if nothing in the runs can be drawn."""
    page = Page()
    add_charts(page, runs)
    add_lists(page, runs)
    add_matrices(page, runs)
    if not page.sections:
        return None
    contents, body = "", ""
    for number, (group, title, own) in enumerate(sorted(page.sections, key=lambda section: section[0])):
        name = f"{escape(title)}, {escape(group)}"
        contents += f'<li><a href="#s{number}">{name}</a></li>'
        body += f'<section id="s{number}"><h2>{name}</h2>{own}</section>'
    dates = sorted({run.facts["date"] for run in runs if run.facts.get("date")})
    measured = f"; measured {dates[0]} to {dates[-1]}" if dates else ""
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return template.format(
        about=escape(", ".join(sorted({run.machine for run in runs})) + measured),
        contents=contents,
        runs="".join(map(about_run, runs)),
        body=body,
        figures=json.dumps(page.figures, separators=(",", ":")).replace("</", "<\\/"),
        plotly=plotly,
    )
