# SPDX-License-Identifier: Apache-2.0
"""The Python of the pages runs; where there is no torch, what needs it compiles."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = ("python.md", "testing-distributed-code.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_TESTS = """
import unittest, page
for name, test in list(vars(page).items()):
    if name.startswith("test_"):
        test()
"""


def can_run(block):
    return "torch" not in re.sub(r"torch\.cuda", "", block) or importlib.util.find_spec("torch") is not None


class Pages(unittest.TestCase):
    def test_blocks(self):
        for page in PAGES:
            blocks = BLOCK.findall((DOCS / page).read_text())
            self.assertGreaterEqual(len(blocks), 3, page)
            for block in blocks:
                compile(block, page, "exec")
                if can_run(block):
                    with self.subTest(page=page, begins=block[:60]):
                        self.run_block(block)

    def run_block(self, block):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "page.py").write_text(block)
            (pathlib.Path(folder) / "run.py").write_text(
                'if __name__ == "__main__":' + RUN_TESTS.replace("\n", "\n    ")
            )
            subprocess.run([sys.executable, "run.py"], cwd=folder, check=True, timeout=100)


if __name__ == "__main__":
    unittest.main()
