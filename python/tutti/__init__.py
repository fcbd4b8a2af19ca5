# SPDX-License-Identifier: Apache-2.0
"""Collectives between the devices of one process or of many, on GPUs and on virtual devices.

`tutti.comm` has the functions of `torch.cuda.comm`, `tutti.Communicator` the collectives between processes, this module
devices, streams, events, memory and random numbers under the names of `torch.cuda`. None of it needs torch, numpy or MPI.
"""

from tutti import _tutti, comm
from tutti._tutti import *  # noqa: F403
from tutti._tutti import DType, __version__, virtual_devices
from tutti.errors import (
    AbortedError,
    Error,
    InvalidArgumentError,
    OutOfMemoryError,
    PeerUnavailableError,
    TimeoutError,  # noqa: A004
)

bool = DType.bool  # noqa: A001

__all__ = [name for name in dir(_tutti) if not name.startswith("_")] + [
    "AbortedError",
    "Error",
    "InvalidArgumentError",
    "OutOfMemoryError",
    "PeerUnavailableError",
    "TimeoutError",
    "__version__",
    "bool",
    "comm",
    "virtual_devices",
]
