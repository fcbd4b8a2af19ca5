#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what tutti-perf measured: one HTML page of charts and tables that needs no network.

usage: perf/compare/report.py FILE... [-o report.html]
       perf/compare/report.py FILE... --pages DIR [--check] [--reasons TOML]

Takes files that `tutti-perf -J` wrote, and any other JSON that contains such documents (the results of
scripts/gpu-check and of the comparisons with PyTorch, MPI and other builds), plain or compressed (.gz). The page has a
line for each file, contender and form of call, so that two files of one command are before and after. With --pages it
writes Markdown tables instead: a page for each kind of machine, and one of the comparisons of builds. Each step of
scripts/gpu-check that did not end well needs its reason in the file of --reasons, if one is given.
"""

import argparse
import json
import tomllib
from pathlib import Path

from command import ResultFile, fail, run
from reporting import builds, documents, page, tables


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-o", metavar="PAGE", default="report.html", help="the page to write (default: report.html)")
    parser.add_argument("--pages", metavar="DIR", help="write Markdown pages there, and no HTML")
    parser.add_argument("--check", action="store_true", help="with --pages: write nothing; fail if a page would change")
    parser.add_argument("--reasons", metavar="TOML", help="with --pages: a table for each file, a key for each step")
    parser.add_argument(
        "--plotly",
        metavar="FILE",
        help="plotly.min.js, to embed (default: the one of the Python package plotly)",
    )
    given = parser.parse_args()
    if given.check and not given.pages:
        parser.error("--check goes with --pages")
    if given.reasons and not given.pages:
        parser.error("--reasons goes with --pages")
    return given


def plotly_source(file):
    """The library that draws."""
    if file:
        try:
            return Path(file).read_text(encoding="utf-8")
        except OSError as error:
            fail(f"--plotly: '{file}' cannot be read: {error.strerror}")
        except ValueError as error:
            fail(f"--plotly: '{file}' is no text: {error}")
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        fail("it needs plotly to draw: `pip install plotly` (or apt-get install python3-plotly), or --plotly FILE")
    return get_plotlyjs()


def read(files):
    """All runs of tutti-perf, all runs of scripts/gpu-check and all comparisons of builds in the files."""
    runs, checks, comparisons = [], [], []
    for file in files:
        try:
            value = documents.read(file)
            found = list(documents.runs_in(file, value))
            check = documents.check_in(file, value)
            comparisons += builds.comparisons_in(file, value)
        except OSError as error:
            fail(f"{file}: {error.strerror or error}")
        except json.JSONDecodeError as error:
            fail(f"{file}: no JSON, as `tutti-perf -J` writes it: {error}")
        except (EOFError, ValueError) as error:
            fail(f"{file}: {error}")
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            fail(f"{file}: not a whole document of tutti-perf: {type(error).__name__} {error}")
        if not found and not check:
            fail(f"{file}: no results of tutti-perf in it")
        runs += found
        checks += [check] if check else []
    return documents.combined(runs), checks, comparisons


def file_in_folder(option, path):
    """Makes the folder of a file that is to be written, and opens the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{option}: '{path}' cannot be written: {error.strerror}")
    return ResultFile(option, path)


def reasons_in(file, checks):
    """Reads {file of results: {step: why it did not end well}}: of each failed step of `checks`, and of no other."""
    try:
        with open(file, "rb") as stream:
            reasons = tomllib.load(stream)
    except OSError as error:
        fail(f"--reasons: '{file}' cannot be read: {error.strerror}")
    except ValueError as error:  # no text, or no TOML
        fail(f"--reasons: '{file}' is no TOML: {error}")
    failed = {
        (check.file, step["name"]) for check in checks for step in tables.shown_steps(check) if step["outcome"] != "ok"
    }
    given = {(path, step) for path, steps in reasons.items() for step in steps}
    for path, step in sorted(failed - given):
        fail(f"{file} has no reason why the step {step} of {path} did not end well")
    for path, step in sorted(given - failed):
        fail(f"{file} has a reason for the step {step} of {path}, which is not among the failed ones of these files")
    return reasons


def write_pages(runs, checks, comparisons, reasons, folder, check):
    of_builds = {comparison.file for comparison in comparisons}  # which have a page of their own
    pages = tables.pages_of([run for run in runs if run.file not in of_builds], checks, comparisons, reasons)
    if check:
        for path in sorted(folder.glob("*.md")):
            if path.name not in pages:
                fail(f"{path} is of no results: remove it")
    for name, text in pages.items():
        path = folder / name
        if not check:
            file_in_folder("--pages", path).write(text)
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            fail(f"{path} is not what the results say: run perf/compare/report.py --pages {folder} with the same files")
    print(f"{folder}: {len(pages)} pages, {'as they should be' if check else 'written'}")


def main():
    given = arguments()
    target = Path(given.o)
    file = ResultFile("-o", given.o) if not given.pages and target.parent.exists() else None
    runs, checks, comparisons = read(given.files)
    if given.pages:
        reasons = reasons_in(given.reasons, checks) if given.reasons else {}
        write_pages(runs, checks, comparisons, reasons, Path(given.pages), given.check)
        return
    text = page.page_of(runs, plotly_source(given.plotly))
    if text is None:
        fail("nothing to draw in these files: no row has a time")
    (file or file_in_folder("-o", target)).write(text)
    print(f"{given.o}: {len(runs)} run(s)")


if __name__ == "__main__":
    run(main)
