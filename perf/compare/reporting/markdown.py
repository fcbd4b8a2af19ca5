# SPDX-License-Identifier: Apache-2.0
"""What pages of results are written with."""

GENERATED = "<!-- Made by perf/compare/report.py --pages; do not edit. -->\n"


def row(cells):
    return f"| {' | '.join(cells)} |\n"
