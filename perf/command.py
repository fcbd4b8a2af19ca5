# SPDX-License-Identifier: Apache-2.0
"""What the scripts share as commands: one line for what goes wrong, and exit statuses as a shell expects them."""

import os
import sys
import tempfile

INTERRUPTED = 130


def name():
    return os.path.basename(sys.argv[0])


def fail(message):
    sys.exit(f"{name()}: {message}")


def must_take_a_file(option, path):
    """Fails before any work is done if no file can be written at `path`; None is none."""
    if path is None:
        return
    is_new = not os.path.lexists(path)
    try:
        with open(path, "ab"):
            pass
        if is_new:
            os.remove(path)
    except OSError as error:
        fail(f"{option}: '{path}' cannot be written: {error.strerror}")


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
