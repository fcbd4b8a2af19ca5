# SPDX-License-Identifier: Apache-2.0
"""Finds and runs tutti-perf for the scripts that compare."""

import glob
import json
import os
import shutil
import subprocess
import tempfile

from command import fail

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def find_program(path):
    """The tutti-perf that a user has named, else the newest that is built, else the one on the PATH."""
    if path is None:
        built = glob.glob(os.path.join(ROOT, "build", "*", "perf", "tutti-perf"))
        path = max(built, key=os.path.getmtime) if built else shutil.which("tutti-perf")
        if path is None:
            fail("no build/*/perf/tutti-perf, nor tutti-perf on the PATH: build it first, or name it with --program")
    if not os.access(path, os.X_OK):
        fail(f"'{path}' is not a program")
    return path


def launcher(ranks):
    """The words that start a program on so many ranks: where the sources are, a script that needs no network."""
    script = os.path.join(ROOT, "tests", "mpi", "run_ranks")
    return [script, str(ranks)] if os.access(script, os.X_OK) else ["mpirun", "-np", str(ranks)]


def document_of(words, accepted=(0,)):
    """The JSON document of a run of tutti-perf, started by `words`, which ends with one of the `accepted` statuses."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "run.json")
        try:
            done = subprocess.run([*words, "-J", file], capture_output=True, text=True)
        except OSError as error:
            fail(f"{words[0]}: {error.strerror}")
        try:
            with open(file, encoding="utf-8") as stream:
                document = json.load(stream)
        except (OSError, ValueError):
            document = None
    if document is None or done.returncode not in accepted:
        lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["no output"]
        fail(f"{' '.join(words)}: exit status {done.returncode}: {lines[-1]}")
    return document


def commit_of_sources():
    words = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
