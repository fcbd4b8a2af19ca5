# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: what it needs, its version, its errors."""

import ast
import pathlib
import subprocess
import sys
import unittest

import tutti
import tutti.errors


class Package(unittest.TestCase):
    def test_imports_without_other_libraries(self):
        code = """
import sys
for name in ("numpy", "torch", "mpi4py", "cupy"):
    sys.modules[name] = None  # whose import fails
import tutti, tutti.testing
tutti.virtual_devices.start(devices=2)
total = tutti.comm.reduce_add([tutti.ones([2], device=0), tutti.ones([2], device=1)])
assert total.tolist() == [2.0, 2.0], total
"""
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_has_stubs_that_parse_and_name_every_function(self):
        stubs = pathlib.Path(tutti.__file__).with_name("_tutti") / "__init__.pyi"
        names = {node.name for node in ast.parse(stubs.read_text()).body if hasattr(node, "name")}
        for name in ("Communicator", "Tensor", "Stream", "synchronize", "memory_stats", "manual_seed"):
            self.assertIn(name, names)
        self.assertNotIn("std::", stubs.read_text())

    def test_errors_have_codes_and_are_python_errors_too(self):
        with self.assertRaises(tutti.InvalidArgumentError) as raised:
            tutti.get_device_name(1000)
        self.assertEqual(raised.exception.code, "invalid_argument")
        self.assertIsInstance(raised.exception, ValueError)
        self.assertIsInstance(raised.exception, tutti.Error)
        self.assertIn("1000", str(raised.exception))

    def test_exhausted_memory_has_figures(self):
        with self.assertRaises(tutti.OutOfMemoryError) as raised:
            tutti.empty([1 << 40], device=0)
        self.assertEqual(raised.exception.requested, 4 << 40)
        self.assertGreater(raised.exception.total, 0)
        self.assertIsInstance(raised.exception, MemoryError)

    def test_documents_every_public_function(self):
        bare = [
            name
            for name, value in vars(tutti.comm).items()
            if callable(value) and name in tutti.comm.__all__ and not value.__doc__
        ]
        self.assertEqual(bare, [])


if __name__ == "__main__":
    unittest.main()
