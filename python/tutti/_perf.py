# SPDX-License-Identifier: Apache-2.0
"""The command `tutti-perf`, whose program is in the package."""

import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).with_name("bin") / "tutti-perf"
    os.execv(program, [str(program), *sys.argv[1:]])
