# SPDX-License-Identifier: Apache-2.0
"""Markdown pages of results, one for each kind of machine, so that no table is typed."""

import re
from pathlib import Path

from . import builds
from .documents import TORCH, without_files
from .markdown import GENERATED, figures_over, format_figure, format_size, head_of_times, row
from .series import TUTTI, fastest_of, lists_of, right_of_peers, sweeps_of

BEHIND = 1.03  # what is slower than a peer by more than this is said


def provenance(run):
    """Where the figures come from, in one paragraph."""
    facts, document = run.facts, run.document
    peer = str(document.get("peer") or "")
    wrong = document.get("summary", {}).get("wrong")
    parts = [
        f"`{run.file}`" + (f" ({run.table})" if run.table else ""),
        run.repetitions > 1 and f"medians of {run.repetitions} runs",
        facts.get("date"),
        f"commit {facts.get('commit', 'unknown')}, tutti {document.get('version') or 'of that commit'}",
        *(f"{title} {facts[name]}" for name, title in (("driver", "driver"), ("cuda", "CUDA")) if facts.get(name)),
        document.get("backend") == "cuda" and document.get("nccl") and f"NCCL {document['nccl']}",
        not peer.startswith("NCCL") and peer,
        *(facts.get(name) for name in ("cpu", "processor", "system")),
        f"**{'; '.join(run.faults)}**" if run.faults else wrong == 0 and "every element checked, none wrong",
    ]
    return "; ".join(filter(None, parts)) + f". Command: `{' '.join(without_files(document.get('command_line', [])))}`"


def behind(operations, form):
    """A sentence on how many figures are slower than a peer's, of one in several modes the fastest's that is right."""
    every, slow = 0, []
    place = " in place" if form.endswith("in place") else ""
    for operation, contenders in operations.items():
        own = {size: time for size, (time, wrong) in contenders.get(TUTTI, {}).items() if not wrong}
        for modes in right_of_peers(contenders).values():
            ratios = {size: own[size] / time for size, time in fastest_of(modes).items() if size in own}
            every += len(ratios)
            slower = {size: ratio for size, ratio in ratios.items() if ratio > BEHIND}
            slow += [(ratio, f"`{operation}` {format_size(size)}{place}") for size, ratio in slower.items()]
    if not every:
        return ""
    if not slow:
        return f"None of the {every} figures with a peer's beside them is more than 3 % slower.\n\n"
    slow.sort(reverse=True)
    named = ", ".join(f"{name} ({(ratio - 1) * 100:.0f} %)" for ratio, name in slow)
    return f"Of {every} figures with a peer's beside them, {len(slow)} are more than 3 % slower: {named}.\n\n"


def sweep(operations, form):
    """The table of one run and form: a line for each contender of each operation, and of each of its reductions."""
    measured = (size for contenders in operations.values() for figures in contenders.values() for size in figures)
    sizes = sorted(set(measured))
    if len(sizes) < 3:
        return ""
    text = head_of_times(list(map(format_size, sizes)))
    for operation, contenders in operations.items():
        for contender, figures in sorted(contenders.items(), key=lambda pair: pair[0] != TUTTI):
            cells = {size: format_figure(time) + (" wrong" if wrong else "") for size, (time, wrong) in figures.items()}
            name = f"`{operation}`" if contender == TUTTI else f"{contender}, same run"
            text += row([name, *(cells.get(size, "") for size in sizes)])
        for peer, modes in right_of_peers(contenders).items():
            if len(modes) > 1:
                text += row([f"fastest {peer}, same run", *figures_over(sizes, fastest_of(modes))])
    return f"{text}\n{behind(operations, form)}"


def lists_table(runs):
    """Lists of tensors, of all runs of one page."""
    text = ""
    for (mode, operation), lines in lists_of(runs).items():
        names = list(dict.fromkeys(name for _, times in lines.values() for name in times))
        text += f"### `{operation}`, lists of tensors, {mode}\n\n"
        text += head_of_times(names)
        for (contender, _), (file, times) in lines.items():
            text += row([f"{contender} (`{file}`)", *figures_over(names, times)])
        text += "\n"
    return text


def page_of(machine, runs):
    text = f"{GENERATED}# {machine}\n\nTimes of a call in µs, medians. float32, root 0, dimension 0.\n\n"
    for run in runs:
        if run.document["settings"]["transport"] != "auto" or run.table == TORCH and run.document.get("schema"):
            continue
        sections = {form: sweep(operations, form) for form, operations in sweeps_of(run.beside_tutti()).items()}
        if not any(sections.values()):
            continue
        title = run.table or Path(run.file).name.split(".json")[0]
        text += f"## {run.mode[0].upper()}{run.mode[1:]}: {title}\n\n{provenance(run)}.\n\n"
        for form, table in sections.items():
            text += f"### {form[0].upper()}{form[1:]}\n\n{table}" if table else ""
    return (text + lists_table(runs)).rstrip() + "\n"


def file_name(machine):
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") + ".md"


def shown_steps(check):
    """Returns the steps of a run that pages show: none of a run without tests."""
    shown = [step for step in check.steps if re.search(r"tests|memcheck|racecheck|sanitizers|build", step["name"])]
    return shown if any(not step["name"].startswith("build") for step in shown) else []


def step_of(check, step, reasons):
    """Describes a step of a run; if it did not end well, with the reason."""
    text = f"{step['name']}: {step['outcome']}, {step['seconds']} s"
    reason = reasons.get(check.file, {}).get(step["name"])
    return f"{text} ({reason})" if reason else text


def suites(checks, reasons):
    """What the test suite did on GPUs, the latest first."""
    lines = []
    for check in sorted(checks, key=lambda check: check.facts.get("date", ""), reverse=True):
        tests = [step_of(check, step, reasons) for step in shown_steps(check)]
        if tests:
            facts = check.facts
            named = (facts.get(name, "unknown") for name in ("gpus", "date", "commit"))
            lines.append(row([*named, "; ".join(tests), f"`{check.file}`"]))
    if not lines:
        return ""
    head = row(["GPUs", "date", "commit", "steps", "file"]) + row(["---"] * 5)
    return f"\n## The test suite on GPUs\n\n{head}{''.join(lines)}"


def latest_of(runs):
    """Of each table on each machine, what the latest file has; the latest first."""
    files, found = {}, []
    for run in sorted(runs, key=lambda run: run.facts.get("date", ""), reverse=True):
        if files.setdefault((run.machine, run.mode, run.table), run.file) == run.file:
            found.append(run)
    return found


def pages_of(runs, checks, comparisons, reasons):
    """{file name: text} of all pages; `reasons` is {file: {step: why it did not end well}}."""
    machines = {}
    for run in latest_of(runs):
        machines.setdefault(run.machine, []).append(run)
    index = f"{GENERATED}# Results\n\n| machine | measured | commits |\n|---|---|---|\n"
    pages = {}
    for machine, own in sorted(machines.items()):
        pages[file_name(machine)] = page_of(machine, own)
        dates = sorted({run.facts.get("date", "unknown")[:10] for run in own})
        commits = ", ".join(dict.fromkeys(run.facts.get("commit", "unknown") for run in own))
        measured = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        index += row([f"[{machine}]({file_name(machine)})", measured, commits])
    pages |= builds.pages_of(comparisons)
    if builds.PAGE in pages:
        index += f"\n[Before and after]({builds.PAGE}): two builds by turns.\n"
    index += suites(checks, reasons)
    index += "\n`perf/compare/report.py` makes such pages of your files, too.\n"
    return pages | {"README.md": index}
