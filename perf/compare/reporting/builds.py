# SPDX-License-Identifier: Apache-2.0
"""Before and after: what perf/compare/compare_builds.py measured of two builds, in turns."""

import math
import statistics
from dataclasses import dataclass

from .documents import PLACES
from .markdown import GENERATED, figures_over, format_size, head_of_times, row
from .series import TUTTI

SCHEMA = "tutti-compare-builds/1"
TITLES = {
    "all": "one process, eager",
    "ranks-all": "a process per device, eager",
    "ranks-replayed": "a process per device, replayed from graphs",
}
FACTS = ("before", "after", "driver", "cuda", "peer", "system", "runs", "processors")
PAGE = "before-and-after.md"


@dataclass(frozen=True)
class Comparison:
    """One table of a file, both sides."""

    file: str
    table: str
    facts: dict
    before: dict  # as `fastest` has them
    after: dict
    peer: dict

    @property
    def machine(self):
        """Such as "2x H100 80GB HBM3"."""
        return self.facts["devices"].replace(" x NVIDIA ", "x ").replace(" x ", "x ")


def times_of(documents, is_wanted=lambda by: by == TUTTI):
    """{(operation, size, place): {contender: [µs, of each run]}}, of the contenders that are wanted; what a peer got
    wrong is left out."""
    times = {}
    for document in documents:
        for line in document["rows"]:
            by = line.get("by", TUTTI)
            for place in PLACES:
                if not is_wanted(by) or line[place] is None or (by != TUTTI and line[place].get("wrong")):
                    continue
                sides = times.setdefault((line["operation"], line["size"], place), {})
                sides.setdefault((by, line.get("mode")), []).append(line[place]["time_us"])
    return times


def fastest(times):
    """{(operation, size, place): [µs, of each run]}, of the contender with the lowest median"""
    return {key: min(contenders.values(), key=statistics.median) for key, contenders in times.items()}


def joined(before, after):
    """[(key, µs before of each run, µs after, ratio of the medians)], of what both have."""
    return [
        (key, times, after[key], statistics.median(after[key]) / statistics.median(times))
        for key, times in before.items()
        if key in after
    ]


def is_slower(line, tolerance):
    """Whether a line of `joined` is slower by more than so many per cent."""
    return line[3] > 1 + tolerance / 100


def counts(rows, tolerance):
    """A sentence on how many of the rows are faster and slower."""
    faster = sum(ratio < 1 - tolerance / 100 for *_, ratio in rows)
    slower = sum(is_slower(line, tolerance) for line in rows)
    mean = math.exp(statistics.fmean(math.log(ratio) for *_, ratio in rows))
    return (
        f"{len(rows)} figures; after over before {mean:.3f} in the geometric mean; "
        f"more than {tolerance:g} % faster {faster}, slower {slower}."
    )


def beside_peer(rows, tolerance):
    """A sentence on how many of the rows, in which the peer's times are those before, are slower."""
    behind = sum(is_slower(line, tolerance) for line in rows)
    return (
        f"{behind or 'None'} of {len(rows)} with a peer's beside them {'are' if behind > 1 else 'is'} "
        f"more than {tolerance:g} % slower than the fastest of its modes."
    )


def comparisons_in(file, value):
    """Those of a file of perf/compare/compare_builds.py; none of any other."""
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return []
    return [
        Comparison(
            file,
            table,
            {name: value[name] for name in ("date", "devices", *FACTS) if value.get(name)},
            fastest(times_of(sides["before"])),
            fastest(times_of(sides["after"])),
            fastest(times_of(sides["after"], lambda by: by != TUTTI)),
        )
        for table, sides in value["tables"].items()
    ]


def latest_of(comparisons):
    """Those that have what no later one has, of the same table and machine; the latest first."""
    shown, found = {}, []
    for one in sorted(comparisons, key=lambda one: one.facts["date"], reverse=True):
        keys = shown.setdefault((one.machine, one.table), set())
        if not set(one.after) <= keys:
            found.append(one)
        keys.update(one.after)
    return found


def table_of(comparison, place):
    """Times over sizes: for each operation after, before and the peer's."""
    sides = (("{}", comparison.after), ("before", comparison.before), ("fastest peer", comparison.peer))
    keys = [key for key in comparison.after if key[2] == place]
    sizes = sorted({size for _, size, _ in keys})
    if not sizes:
        return ""
    text = head_of_times(list(map(format_size, sizes)))
    for operation in dict.fromkeys(operation for operation, _, _ in keys):
        for title, times in sides:
            own = {
                key[1]: statistics.median(own) for key, own in times.items() if (key[0], key[2]) == (operation, place)
            }
            if any(size in own for size in sizes):
                text += row([title.format(f"`{operation}`"), *figures_over(sizes, own)])
    return f"### {place.replace('_', ' ').capitalize()}\n\n{text}\n"


def section_of(comparison, tolerance=3):
    title = TITLES.get(comparison.table, comparison.table)
    facts = "; ".join(f"{name} {comparison.facts[name]}" for name in FACTS if name in comparison.facts)
    text = f"## {comparison.machine}: {title}\n\n`{comparison.file}`; {comparison.facts['date']}; {facts}.\n\n"
    text += "".join(table_of(comparison, place) for place in PLACES)
    if rows := joined(comparison.before, comparison.after):
        text += counts(rows, tolerance) + "\n"
    if rows := joined(comparison.peer, comparison.after):
        text += beside_peer(rows, tolerance) + "\n"
    return text + "\n"


def pages_of(comparisons):
    """{file name: text}: one page, or none."""
    if not comparisons:
        return {}
    text = f"{GENERATED}# Before and after\n\nTwo builds by turns on the same devices, medians of their runs in µs; the"
    text += " peer's, in the fastest of its modes, are of the runs after.\n\n"
    return {PAGE: (text + "".join(map(section_of, latest_of(comparisons)))).rstrip() + "\n"}
