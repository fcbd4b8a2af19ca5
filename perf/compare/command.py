# SPDX-License-Identifier: Apache-2.0
"""What the scripts share as commands: one line for what goes wrong, and exit statuses as a shell expects them."""

import os
import sys
import tempfile
from pathlib import Path

INTERRUPTED = 130


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
