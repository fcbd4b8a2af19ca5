# SPDX-License-Identifier: Apache-2.0
"""What the scripts that compare share: as commands, one line for what goes wrong, and exit statuses as a shell expects
them; and how they find and run tutti-perf."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INTERRUPTED = 130
ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def name():
    return os.path.basename(sys.argv[0])


def fail(message):
    sys.exit(f"{name()}: {message}")


class ResultFile:
    """A file that an option names, written at the end: fails before any work is done if it cannot be. None is none."""

    def __init__(self, option, path):
        self.option, self.path = option, path
        if path is not None:
            self.attempt(lambda: open(path, "ab").close())

    def write(self, content):
        if self.path is not None:
            content = content.encode() if isinstance(content, str) else content
            self.attempt(lambda: Path(self.path).write_bytes(content))

    def attempt(self, work):
        try:
            return work()
        except OSError as error:
            fail(f"{self.option}: '{self.path}' cannot be written: {error.strerror}")


def write_files(option, contents):
    """Writes a file for each path with its content, and names them."""
    for path, content in contents.items():
        ResultFile(option, path).write(content)
    print(", ".join(contents), file=sys.stderr)


def must_take_files(option, folder):
    """Fails before any work is done if `folder`, which is made, takes no files; None is none."""
    if folder is None:
        return
    try:
        os.makedirs(folder or ".", exist_ok=True)
        with tempfile.TemporaryFile(dir=folder or "."):
            pass
    except OSError as error:
        fail(f"{option}: no files can be written to '{folder}': {error.strerror}")


def run(main):
    """Ends with what `main` returns. An interrupt, or a reader of the output who has gone, is no failure of the script's."""
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        print(f"{name()}: interrupted", file=sys.stderr)
        status = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is flushed at the end goes nowhere
        status = 0
    sys.exit(status)


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
