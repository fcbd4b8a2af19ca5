# SPDX-License-Identifier: Apache-2.0
"""An array on the host that other libraries take by DLPack, for tests without numpy."""

import tutti


class Array:
    """A stand-in for another library's array: `from_dlpack` of this module makes it."""

    def __init__(self, values, dtype="float32"):
        self.tensor = values if isinstance(values, tutti.Tensor) else tutti.tensor(values, dtype=dtype)

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def tolist(self):
        return self.tensor.tolist()


def from_dlpack(array):
    """What results in the kind of `Array` are made by."""
    return Array(tutti.from_dlpack(array))
