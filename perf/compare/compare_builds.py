#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures two builds of tutti-perf in turns, on the same devices, and tells which figures have changed.

usage: perf/compare/compare_builds.py --base PROGRAM [--program PROGRAM] [-r RUNS] [-t TABLE]...
                              [-b SIZE] [-e SIZE] [-f FACTOR] [-n RANKS] [--peer NAME] [--backend NAME]
                              [--tolerance PERCENT] [--out DIR]

Tables: `all`, the collectives of one process, `ranks-all`, a process per device, and `ranks-replayed`, the same from graphs
of 20 calls; of each the ten collectives that all versions know. Every run takes both builds, one after the other, the first
of them first in every other run, so that neither has the warmer device; every byte of every result is checked on both
sides. --peer has the peer measured beside the build after, in the same runs, in each of its modes.

Prints a Markdown table for each: how many figures there are, the geometric mean of the times after over the times before,
and those whose median over all runs is slower than the tolerance; then those that are slower than the fastest of the peer's
modes. With --out, DIR/<date>-<devices>.md has that with machine, versions and commits, and .json.gz all that was measured
besides. Exits with 1 if an element was wrong, with 3 if a figure is slower than before.
"""

import argparse
import datetime
import gzip
import json
import os
import platform
import sys

from command import document_of, fail, find_program, launcher, must_take_files, write_files
from command import run as run_command
from reporting.builds import SCHEMA, beside_peer, comparisons_in, counts, is_slower, joined
from reporting.markdown import format_size, row

OPERATIONS = [
    "broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather", "all_reduce_add",
    "all_reduce_add_coalesced", "all_gather", "reduce_scatter_add",
]  # fmt: skip
# Of each table: whether there is a process per device, the largest payload, unless another is asked for, and arguments.
TABLES = {
    "all": (False, "256M", ()),
    "ranks-all": (True, "256M", ()),
    "ranks-replayed": (True, "4M", ("-G", "20")),
}
SLOWER = 3  # as an exit status, like tutti-perf's own


def number(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, metavar="PROGRAM", help="tutti-perf of the build before")
    parser.add_argument("--program", metavar="PROGRAM", help="of the build after (default: the newest under build/)")
    parser.add_argument("-r", type=number, default=3, metavar="RUNS", help="runs of each build (default 3)")
    parser.add_argument("-t", action="append", choices=TABLES, metavar="TABLE", help="only this table; may be repeated")
    parser.add_argument("-b", default="1K", metavar="SIZE", help="smallest payload (default 1K)")
    parser.add_argument("-e", metavar="SIZE", help="largest payload (default 256M, replayed 4M)")
    parser.add_argument("-f", default="4", metavar="FACTOR", help="from one size to the next (default 4)")
    parser.add_argument("-n", type=number, default=2, metavar="RANKS", help="ranks (default 2)")
    parser.add_argument("--peer", metavar="NAME", help="measured beside what is after, as tutti-perf takes it")
    parser.add_argument("--backend", default="cuda", choices=("cuda", "host"), help="default cuda")
    parser.add_argument("--tolerance", type=float, default=3, metavar="PERCENT", help="default 3")
    parser.add_argument("--out", metavar="DIR", help="where results go (default: nowhere)")
    given = parser.parse_args()
    given.t = given.t or list(TABLES)
    return given


def run(given, programs, table, side):
    """One document of tutti-perf."""
    are_ranks, largest, further = TABLES[table]
    words = launcher(given.n) if are_ranks else []
    words += [programs[side], *OPERATIONS, "--backend", given.backend]
    words += ["-b", given.b, "-e", given.e or largest, "-f", given.f, *further]
    words += ["--peer", given.peer] if given.peer and side == "after" else []
    return document_of(words, accepted=(0, 1))


def measure(given, programs, table):
    """The documents of all runs of both sides, which take turns in going first."""
    sides = {"before": [], "after": []}
    for done in range(given.r):
        print(f"{table}: run {done + 1} of {given.r}", file=sys.stderr)
        for side in ("before", "after") if done % 2 == 0 else ("after", "before"):
            sides[side].append(run(given, programs, table, side))
    return sides


def slower_of(rows, before, tolerance):
    """A table of the rows that are slower, if there are any; `before` names what is in their first column of times."""
    slower = sorted((line for line in rows if is_slower(line, tolerance)), key=lambda line: -line[3])
    if not slower:
        return ""
    text = row(["slower", "payload", "", f"{before}, µs", "after, µs", "ratio"]) + "|---|--:|---|---|---|--:|\n"
    for (operation, size, place), *times, ratio in slower:
        listed = (", ".join(f"{time:.4g}" for time in side) for side in times)
        text += row([f"`{operation}`", format_size(size), place.replace("_", " "), *listed, f"{ratio:.3f}"])
    return f"\n{text}"


def text_of(given, comparison):
    rows, peers = joined(comparison.before, comparison.after), joined(comparison.peer, comparison.after)
    text = f"### {comparison.table}\n\n{counts(rows, given.tolerance)}\n{slower_of(rows, 'before', given.tolerance)}"
    if peers:
        text += f"\n{beside_peer(peers, given.tolerance)}\n{slower_of(peers, given.peer, given.tolerance)}"
    return text


def facts_of(given, measured):
    before, after = (next(iter(measured.values()))[side][0] for side in ("before", "after"))
    devices = [device["name"] for device in after["devices"]]
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "before": f"commit {before.get('commit') or 'unknown'}, tutti {before.get('version')}",
        "after": f"commit {after.get('commit') or 'unknown'}, tutti {after.get('version')}",
        "devices": f"{len(devices)} x {devices[0]}",
        **{name: after.get(name) for name in ("driver", "cuda", "nccl", "peer")},
        "system": f"{platform.freedesktop_os_release().get('PRETTY_NAME', 'Linux')}, kernel {platform.release()}",
        "runs": f"{given.r} of each side, in turns",
    }


def base_of(folder, facts):
    """The first name of the day that is not taken yet, without its ending."""
    count, _, name = facts["devices"].partition(" x ")
    short = "".join(letter if letter.isalnum() else "-" for letter in name.removeprefix("NVIDIA "))
    first = os.path.join(folder, f"{facts['date'][:10]}-{count}x{short}")
    base, following = first, 2
    while os.path.exists(base + ".json.gz") or os.path.exists(base + ".md"):
        base, following = f"{first}-{following}", following + 1
    return base


def write(folder, facts, text, measured):
    os.makedirs(folder, exist_ok=True)
    base = base_of(folder, facts)
    document = json.dumps({"schema": SCHEMA, **facts, "tables": measured}) + "\n"
    head = "# Before and after\n\n" + "".join(f"- {key}: {value}\n" for key, value in facts.items())
    write_files("--out", {base + ".json.gz": gzip.compress(document.encode()), base + ".md": f"{head}\n{text}"})


def main():
    given = arguments()
    must_take_files("--out", given.out)
    programs = {"before": find_program(given.base), "after": find_program(given.program)}
    measured = {table: measure(given, programs, table) for table in given.t}
    facts = facts_of(given, measured)
    comparisons = comparisons_in("", {"schema": SCHEMA, **facts, "tables": measured})
    rows = {comparison.table: joined(comparison.before, comparison.after) for comparison in comparisons}
    for table in (table for table, own in rows.items() if not own):
        fail(f"{table}: the sides have no figures in common")
    text = "\n".join(text_of(given, comparison) for comparison in comparisons)
    print(text, end="")
    if given.out:
        write(given.out, facts, text, measured)
    documents = [document for sides in measured.values() for runs in sides.values() for document in runs]
    if wrong := sum(document["summary"]["wrong"] or 0 for document in documents):
        fail(f"{wrong} wrong elements")
    return SLOWER if any(is_slower(line, given.tolerance) for own in rows.values() for line in own) else 0


if __name__ == "__main__":
    run_command(main)
