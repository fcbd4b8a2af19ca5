# SPDX-License-Identifier: Apache-2.0
"""What pages of results are written with."""

GENERATED = "<!-- Made by perf/compare/report.py --pages; do not edit. -->\n"


def row(cells):
    return f"| {' | '.join(cells)} |\n"


def head_of_times(columns):
    """The head of a table of times in µs, whose first column has names."""
    return row(["µs", *columns]) + row(["---", *["--:"] * len(columns)])


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


def figures_over(columns, times):
    """A cell for each column: the time that {column: µs} has for it, or nothing."""
    return (format_figure(times[column]) if column in times else "" for column in columns)
