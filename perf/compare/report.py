#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes pages of what tutti-perf measured: Markdown tables.

usage: perf/compare/report.py FILE... --pages DIR [--check] [--reasons TOML]

Takes files that `tutti-perf -J` wrote, and any other JSON that contains such documents (the results of
scripts/gpu-check and of the comparisons with PyTorch, MPI and other builds), plain or compressed (.gz). Writes a page
for each kind of machine, and one of the comparisons of builds. Each step of scripts/gpu-check that did not end well
needs its reason in the file of --reasons, if one is given.
"""

import argparse
import json
import tomllib
from pathlib import Path

from command import ResultFile, fail, must_take_files, run
from reporting import builds, documents, tables


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--pages", metavar="DIR", required=True, help="write the pages there")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page would change")
    parser.add_argument("--reasons", metavar="TOML", help="a table for each file, a key for each step")
    return parser.parse_args()


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
    else:
        must_take_files("--pages", folder)
    for name, text in pages.items():
        path = folder / name
        if not check:
            ResultFile("--pages", path).write(text)
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            fail(f"{path} is not what the results say: run perf/compare/report.py --pages {folder} with the same files")
    print(f"{folder}: {len(pages)} pages, {'as they should be' if check else 'written'}")


def main():
    given = arguments()
    runs, checks, comparisons = read(given.files)
    reasons = reasons_in(given.reasons, checks) if given.reasons else {}
    write_pages(runs, checks, comparisons, reasons, Path(given.pages), given.check)


if __name__ == "__main__":
    run(main)
