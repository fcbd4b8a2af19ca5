# SPDX-License-Identifier: Apache-2.0
"""Orders the rows of runs: by form, operation and contender, over payload sizes or lists of tensors."""

import statistics

from .documents import PLACES

TUTTI = "tutti"


def contender_of(row):
    """Who, and of a peer that was used in several ways, which."""
    return f"{row['by']} {row['mode']}" if row.get("mode") else row["by"]


def variant_of(row):
    parts = [f"dimension {row['dim']}"] if row["dim"] else []
    if row.get("redop", "none") not in ("none", "sum"):
        parts.append(row["redop"])
    return ", ".join(parts + ([f"root {row['root']}"] if row["root"] > 0 else []))


def form_of(run, row, place):
    """How a call was made: "eager", "persistent, in place" and the like."""
    parts = [row["launch"]]
    if run.document["settings"].get("determinism") == "bitwise":
        parts.append("bitwise")
    if row.get("results") == "new":
        parts.append("results returned")
    memory = run.document["settings"].get("memory", TUTTI)
    if memory != TUTTI:
        parts.append(f"{memory} memory")
    return ", ".join(parts + (["in place"] if place == "in_place" else []))


def sweeps_of(run):
    """{form: {operation: {contender: {size: (µs, wrong elements)}}}} of float32, root 0 and dimension 0; reductions other
    than sums are operations of their own."""
    found = {}
    for row in run.document["rows"]:
        if row["tensor_list"] or "destination" in row or row["size"] == 0:
            continue
        if row["dtype"] != "float32" or row["dim"] or row["root"] > 0:
            continue
        operation = ", ".join(filter(None, (row["operation"], variant_of(row))))
        for place in (place for place in PLACES if row.get(place)):
            contenders = found.setdefault(form_of(run, row, place), {}).setdefault(operation, {})
            figures = (row[place]["time_us"], row[place].get("wrong") or 0)
            contenders.setdefault(contender_of(row), {})[row["size"]] = figures
    return found


def right_of_peers(contenders):
    """{peer: [{size: µs}, of each of its modes]}, without what is wrong."""
    peers = {}
    for contender, figures in contenders.items():
        if contender != TUTTI:
            times = {size: time for size, (time, wrong) in figures.items() if not wrong}
            peers.setdefault(contender.split()[0], []).append(times)
    return peers


def fastest_of(modes):
    """{size: µs} of the fastest of [{size: µs}]"""
    return {size: min(times[size] for times in modes if size in times) for times in modes for size in times}


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
