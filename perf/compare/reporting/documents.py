# SPDX-License-Identifier: Apache-2.0
"""Reads results: what tutti-perf -J, scripts/gpu-check and the comparisons wrote, plain or compressed by gzip."""

import gzip
import json
import statistics
from dataclasses import dataclass, replace

TORCH = "torch"  # the table of a comparison with PyTorch, in which several runs are of one go
PLACES = ("out_of_place", "in_place")  # of a row, which has either or both
# What tells a row from others of a run.
ROW = (
    "operation", "by", "mode", "size", "tensor_list", "dtype", "redop", "root", "dim", "launch", "results", "destination",
)  # fmt: skip
FACTS = ("date", "commit", "gpus", "host", "cpu", "processor", "driver", "cuda", "compiler", "system")


@dataclass(frozen=True)
class Run:
    """One tutti-perf document and where it comes from."""

    file: str
    table: str  # its name within the file; empty if the file is the document
    facts: dict
    document: dict
    repetitions: int = 1  # of which it has the medians

    def beside_tutti(self):
        """The run with the rows of tutti that belong beside a peer's."""
        beside = self.document.get("beside", [])
        return replace(self, document={**self.document, "rows": beside + self.document["rows"]}) if beside else self

    @property
    def machine(self):
        """The devices of all members, such as "2x H100 80GB HBM3"."""
        names = [device["name"] for device in self.document["devices"]]
        name = names[0].removeprefix("NVIDIA ") if names else "no device"
        return f"{self.document['devices_used']}x {name}"

    @property
    def name(self):
        """What tells it from other runs: its file, number of devices and commit."""
        commit = self.facts.get("commit") or f"version {self.document.get('version') or 'unknown'}"
        file = self.file.removeprefix("perf/results/").split(".json")[0]
        return f"{file}, {self.document['devices_used']} devices, {commit}"

    @property
    def mode(self):
        """ "one process", or "one process per device" and the like."""
        if self.document.get("mode") != "ranks":
            return "one process"
        each = self.document.get("devices_per_rank", 1)
        return "a process per device" if each == 1 else f"processes with {each} devices"

    @property
    def faults(self):
        """What keeps its figures from being taken for good."""
        summary = self.document.get("summary", {})
        found = [f"{summary['wrong']} wrong elements"] if summary.get("wrong") else []
        found += ["interrupted"] if summary.get("interrupted") else []
        return found + ([f"failed: {summary['failure']}"] if summary.get("failure") else [])


def read(path):
    """The JSON value in a file."""
    with (
        gzip.open(path, "rt", encoding="utf-8") if str(path).endswith(".gz") else open(path, encoding="utf-8") as stream
    ):
        return json.load(stream)


@dataclass(frozen=True)
class Check:
    """What scripts/gpu-check did in one run."""

    file: str
    facts: dict
    steps: list  # of {"name", "outcome", "seconds"}


def check_in(file, value):
    """The check a file is of, None if it is none."""
    if not isinstance(value, dict) or value.get("schema") != "tutti-gpu-check/1":
        return None
    return Check(file, facts_of(value, {}), value["steps"])


def facts_of(value, inherited):
    return inherited | {name: value[name] for name in FACTS if isinstance(value.get(name), str)}


def whole(document):
    """The document; KeyError if it lacks what pages are made of."""
    for name in ("devices", "devices_used", "settings", "rows"):
        document[name]
    document["settings"]["transport"]
    for row in document["rows"]:
        for name in ("operation", "by", "size", "tensor_list", "dtype", "root", "dim", "launch"):
            row[name]
    return document


def runs_in(file, value, table="", inherited=None):
    """Every run in a JSON value, however deep; `file` is its name, `table` that of what the value belongs to."""
    inherited = inherited or {}
    if isinstance(value, dict):
        inherited = facts_of(value, inherited)
        if value.get("schema") in ("tutti-perf/1", "tutti-perf/2"):
            yield Run(file, table, inherited, whole(value))
            return
        if value.get("schema") == "tutti-compare-torch/1":
            yield Run(file, TORCH, inherited, torch_document(value))
            for item in value.get("tutti_perf", {}).values():
                yield from runs_in(file, item, TORCH, inherited)
            return
        for key, item in value.items():
            yield from runs_in(file, item, table if key in ("tables", "documents") else key, inherited)
    elif isinstance(value, list):
        for item in value:
            yield from runs_in(file, item, table, inherited)


def torch_document(comparison):
    """The rows of torch.cuda.comm, in the shape of tutti-perf's; `beside`: the same of tutti, from the same turns."""
    gpus = comparison["gpus"]
    return {
        "mode": "single_process",
        "version": "",
        "command_line": ["perf/compare/compare_torch.py"],
        "devices_used": gpus,
        "devices": [{"name": comparison["gpu"]}],
        "settings": {"transport": "auto", "determinism": "fastest"},
        "peer": f"PyTorch {comparison['torch']}",
        "rows": [compared_row(row, "torch", "torch.cuda.comm", gpus) for row in comparison["rows"]],
        "beside": [compared_row(row, "eager", "tutti", gpus) for row in comparison["rows"] if "eager" in row],
    }


def compared_row(row, side, by, gpus):
    """One side of a row of a comparison with PyTorch, of calls that return their results."""
    measured = row[side]
    time = measured["back_to_back_us"]
    factor = (gpus - 1) / gpus if row["operation"] in ("scatter", "gather") else 1.0
    figures = {
        "time_us": time,
        "busbw_gbps": row["size"] / time * 1e-3 * factor,
        "back_to_back_us": {"median": time, "p99": measured.get("max_us", time)},
        "latency_us": {"median": measured["latency_us"], "p99": measured["latency_p99_us"]},
    }
    return {
        "operation": row["operation"], "by": by, "size": row["size"], "tensor_list": row["tensor_list"],
        "dtype": "float32", "root": 0, "dim": 0, "launch": "eager", "results": "new",
        "transport": measured.get("transport", ""), "algorithm": measured.get("algorithm", ""),
        "out_of_place": figures, "in_place": None,
    }  # fmt: skip


def combined(runs):
    """The runs, with those of one command in one file made one: medians of the times, the worst of the rest."""
    groups = {}
    for run in runs:
        key = (run.file, run.table, tuple(without_files(run.document.get("command_line", []))))
        groups.setdefault(key, []).append(run)
    return [own[0] if len(own) == 1 else median_of(own) for own in groups.values()]


def without_files(words):
    """A command line without where its results went."""
    return [word for before, word in zip(["", *words], words, strict=False) if "-J" not in (before, word)]


def median_of(runs):
    rows = {}
    for run in runs:
        for row in run.document["rows"]:
            rows.setdefault(tuple(row.get(name) for name in ROW), []).append(row)
    merged = [
        own[0] | {place: median_of_places([row[place] for row in own if row.get(place)]) for place in PLACES}
        for own in rows.values()
    ]
    summaries = [run.document.get("summary", {}) for run in runs]
    summary = {
        "wrong": None if any(s.get("wrong") is None for s in summaries) else sum(s["wrong"] for s in summaries),
        "interrupted": any(s.get("interrupted") for s in summaries),
        "failure": next((s["failure"] for s in summaries if s.get("failure")), None),
    }
    return replace(runs[0], document=runs[0].document | {"rows": merged, "summary": summary}, repetitions=len(runs))


def median_of_places(measured):
    """The figures of one row in one placement, of several runs; None of none. Older files have fewer figures."""
    if not measured:
        return None
    time = statistics.median(one["time_us"] for one in measured)
    typical = min(measured, key=lambda one: abs(one["time_us"] - time))
    wrong = [one["wrong"] for one in measured if one.get("wrong") is not None]
    found = typical | {"time_us": time, "wrong": max(wrong) if wrong else None}
    for name in ("back_to_back_us", "latency_us"):
        shared = [
            figure for figure in typical[name] if figure != "each" and all(figure in one[name] for one in measured)
        ]
        found[name] = {figure: statistics.median(one[name][figure] for one in measured) for figure in shared}
    return found
