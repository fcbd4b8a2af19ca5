#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures tutti's collectives on virtual devices beside MPI's own on equal buffers, and sums several runs up.

usage: perf/compare/compare_mpi.py [-n RANKS] [-r RUNS] [-b SIZE] [-e SIZE] [-f FACTOR] [--out DIR] [--program PATH]

Each run is `mpirun -np RANKS tutti-perf all --backend host --peer mpi`, and the same of `all_reduce -o min`, in which
both sides are measured in turns and every byte of every result is checked. Prints a Markdown table of MPI's time over
tutti's, out of place and in place, medians of all runs. With --out, DIR/<date>-virtual-<ranks>-ranks.md has the table
with the machine, versions and commit, and .json.gz all that was measured besides; earlier results of a day stay. Exits
with 1 if an element was wrong.

Figures are of one machine's cores, and worth something only if nothing else runs on them: a warning tells, and the results
keep, how busy the machine was before the runs.
"""

import argparse
import datetime
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from command import fail, must_take_files, write_files
from command import run as run_command
from compare_torch import find_program
from reporting.documents import PLACES

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
MEASURED = (["all"], ["all_reduce", "-o", "min"])  # in each run
BUSY = 0.1  # a share of the machine's time from which others are in the way


def number(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=number, default=2, metavar="RANKS", help="processes (default 2)")
    parser.add_argument("-r", type=number, default=5, metavar="RUNS", help="runs (default 5)")
    parser.add_argument("-b", default="4K", metavar="SIZE", help="smallest payload (default 4K)")
    parser.add_argument("-e", default="64M", metavar="SIZE", help="largest payload (default 64M)")
    parser.add_argument("-f", default="4", metavar="FACTOR", help="from one size to the next (default 4)")
    parser.add_argument("--out", metavar="DIR", help="where results go (default: nowhere)")
    parser.add_argument(
        "--program", metavar="PATH", help="tutti-perf (default: the newest under build/, or that on the PATH)"
    )
    return parser.parse_args()


def processor_time():
    """Of all processors since the start of the machine: (busy, in all)."""
    with open("/proc/stat", encoding="utf-8") as stream:
        user, nice, system, idle, waiting, *others = (int(word) for word in stream.readline().split()[1:9])
    return user + nice + system + sum(others), user + nice + system + idle + waiting + sum(others)


def share_of_others(seconds=0.5):
    """Of the processors' time, before a run begins: what others take. 0 where it cannot be told."""
    try:
        busy, total = processor_time()
        time.sleep(seconds)
        busy_after, total_after = processor_time()
    except (OSError, ValueError):
        return 0.0
    return (busy_after - busy) / max(total_after - total, 1)


def warning_of(share):
    """Empty where nothing is in the way."""
    if share <= BUSY:
        return ""
    return f"warning: the machine is busy: others take {share:.0%} of its processors' time, and the figures are worth little"


def launcher(ranks):
    """What starts a program on so many ranks: where there are the sources, by a script that needs no network."""
    script = os.path.join(ROOT, "tests", "mpi", "run_ranks")
    return [script, str(ranks)] if os.access(script, os.X_OK) else ["mpirun", "-np", str(ranks)]


def document_of(words, file, accepted):
    """What a run of tutti-perf, started by `words`, leaves in `file`, if it ends with one of the `accepted` statuses."""
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError as error:
        fail(f"{words[0]}: {error.strerror}")
    try:
        with open(file, encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError):
        document = None
    # Of wrong elements, the document tells.
    if document is None or done.returncode not in accepted:
        lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no output"]
        fail(f"{' '.join(words)}: exit status {done.returncode}: {lines[-1]}")
    return document


def run(given, program, measured):
    """One document of tutti-perf."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "ranks.json")
        words = [
            *launcher(given.n),
            program,
            *measured,
            "--backend",
            "host",
            "--peer",
            "mpi",
            "-b",
            given.b,
            "-e",
            given.e,
            "-f",
            given.f,
            "-c",
            "1",
            "-J",
            file,
        ]
        return document_of(words, file, (0, 1, 4))


def name_of(row):
    """The operation, and what it reduces by if that is no sum."""
    redop = row.get("redop", "none")
    return row["operation"] if redop in ("none", "sum") else f"{row['operation'].removesuffix('_add')} {redop}"


def ratios_of(documents):
    """{operation: {size: {place: [MPI's time over tutti's, of each run]}}}"""
    ratios = {}
    for document in documents:
        own = {(name_of(row), row["size"]): row for row in document["rows"] if row["by"] == "tutti"}
        for row in document["rows"]:
            beside = own.get((name_of(row), row["size"]))
            if row["by"] == "tutti" or beside is None:
                continue
            for place in PLACES:
                if row[place] is None or beside[place] is None:
                    continue
                ratio = row[place]["back_to_back_us"]["median"] / beside[place]["back_to_back_us"]["median"]
                ratios.setdefault(name_of(row), {}).setdefault(row["size"], {}).setdefault(place, []).append(ratio)
    return ratios


def format_size(size):
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size} B"


def cell(places):
    return " / ".join(f"{statistics.median(places[place]):.2f}" for place in PLACES if place in places) or "-"


def table(ratios):
    sizes = sorted({size for by_size in ratios.values() for size in by_size if size > 0})
    without_sizes = {operation: by_size[0] for operation, by_size in ratios.items() if list(by_size) == [0]}
    lines = [
        "| MPI's time over tutti's, out of place / in place | "
        + " | ".join(format_size(size) for size in sizes)
        + " |",
        "|---|" + "--:|" * len(sizes),
    ]
    for operation, by_size in ratios.items():
        if operation in without_sizes:
            continue
        lines.append(f"| `{operation}` | " + " | ".join(cell(by_size.get(size, {})) for size in sizes) + " |")
    lines += [f"\n`{operation}`: {cell(places)}" for operation, places in without_sizes.items()]
    return "\n".join(lines)


def output_of(*words):
    try:
        return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            names = [line.partition(":")[2].strip() for line in stream if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def facts_of(given, wrong, busy):
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": os.environ.get("TUTTI_COMMIT") or output_of("git", "describe", "--always", "--dirty"),
        "processor": f"{processor()}, {len(os.sched_getaffinity(0))} cores for all ranks",
        "mpi": output_of(os.environ.get("MPIRUN", "mpirun"), "--version").splitlines()[0],
        "compiler": output_of("c++", "--version").splitlines()[0],
        "system": f"{platform.freedesktop_os_release().get('PRETTY_NAME', 'Linux')}, kernel {platform.release()}",
        "ranks": given.n,
        "runs": given.r,
        "wrong": wrong,
        "others": f"{busy:.0%} of the processors' time before a run, at most",
    }


def base_of(folder, facts):
    first = os.path.join(folder, f"{facts['date'][:10]}-virtual-{facts['ranks']}-ranks")
    base, next_number = first, 2
    while os.path.exists(base + ".json.gz") or os.path.exists(base + ".md"):
        base, next_number = f"{first}-{next_number}", next_number + 1
    return base


def main():
    given = arguments()
    must_take_files("--out", given.out)
    program = find_program(given.program)
    documents = []
    busy = 0.0
    for done in range(given.r):
        share = share_of_others()
        if busy <= BUSY and warning_of(share):
            print(warning_of(share), file=sys.stderr)
        busy = max(busy, share)
        print(f"run {done + 1} of {given.r}", file=sys.stderr)
        documents += [run(given, program, measured) for measured in MEASURED]
    ratios = ratios_of(documents)
    if not ratios:
        fail("no figures of both sides: was tutti-perf built with MPI?")
    wrong = sum(document["summary"]["wrong"] or 0 for document in documents)
    text = table(ratios)
    print(text)
    if given.out:
        facts = facts_of(given, wrong, busy)
        os.makedirs(given.out, exist_ok=True)
        base = base_of(given.out, facts)
        document = json.dumps({"schema": "tutti-compare-mpi/1", **facts, "documents": documents}) + "\n"
        head = "# Virtual devices beside MPI\n\n" + "".join(f"- {key}: {value}\n" for key, value in facts.items())
        contents = {base + ".json.gz": gzip.compress(document.encode()), base + ".md": f"{head}\n{text}\n"}
        write_files("--out", contents)
    if wrong:
        fail(f"{wrong} wrong elements")


if __name__ == "__main__":
    run_command(main)
