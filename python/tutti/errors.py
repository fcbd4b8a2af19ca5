# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the library. All are `tutti.Error`; `code` says what kind of failure it is."""


class Error(RuntimeError):
    """A failure. `code` is one of the names below, `native_code` the number that the underlying system returned, or 0.

    invalid_argument, out_of_memory, unsupported, peer_unavailable, device_failure, transport_failure, timeout,
    aborted, internal.
    """

    def __init__(self, message: str, code: str = "internal", native_code: int = 0):
        super().__init__(message)
        self.code = code
        self.native_code = native_code


class InvalidArgumentError(Error, ValueError):
    """The caller passed something that the contract forbids; nothing was enqueued."""


class OutOfMemoryError(Error, MemoryError):
    """Memory is exhausted. All figures are bytes; `free` to `allocated` describe the device that refused."""

    requested = 0
    free = 0
    total = 0
    reserved = 0
    allocated = 0


class TimeoutError(Error, TimeoutError):  # noqa: A001
    """Something did not finish in the time allowed; the message names the ranks that are late."""


class PeerUnavailableError(Error, ConnectionError):
    """Another device or process cannot be reached; the message names the rank."""


class AbortedError(Error):
    """The operation was abandoned on request."""


_classes = {
    "invalid_argument": InvalidArgumentError,
    "out_of_memory": OutOfMemoryError,
    "timeout": TimeoutError,
    "peer_unavailable": PeerUnavailableError,
    "aborted": AbortedError,
}


def from_code(code: str, message: str, native_code: int = 0) -> Error:
    """Makes the exception of a kind of failure."""
    return _classes.get(code, Error)(message, code, native_code)
