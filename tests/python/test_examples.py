# SPDX-License-Identifier: Apache-2.0
"""The examples run: as two ranks that torchrun would have started."""

import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
import unittest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def run_ranks(example, ranks=2):
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / example)],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    return outputs, [process.returncode for process in processes]


class Examples(unittest.TestCase):
    def test_all_reduce(self):
        outputs, codes = run_ranks("all_reduce.py")
        self.assertEqual(codes, [0, 0])
        self.assertEqual(outputs[1].strip(), "rank 1 of 2: [0.5, 0.5, 0.5, 0.5]")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch here")
    def test_ddp(self):
        outputs, codes = run_ranks("ddp.py")
        self.assertEqual(codes, [0, 0])
        losses = [float(line.split()[-1]) for line in outputs[0].splitlines()]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0])


if __name__ == "__main__":
    unittest.main()
