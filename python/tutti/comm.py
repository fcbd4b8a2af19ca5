# SPDX-License-Identifier: Apache-2.0
"""The collectives of one process, with the names, signatures and results of `torch.cuda.comm`.

Tensors are of any library that speaks DLPack: torch, CuPy, or `tutti.Tensor`. They are used without a copy, on the current
streams of their library, and results are of the kind that was given. (On virtual devices, whose memory no other library can
hold, results are `tutti.Tensor`.) Calls check everything first, queue, and return; bad arguments raise
`tutti.InvalidArgumentError`, a ValueError, and nothing is queued then.
"""

from tutti._tutti import collectives as _collectives
from tutti.errors import InvalidArgumentError

__all__ = ["broadcast", "broadcast_coalesced", "gather", "last_plan", "reduce_add", "reduce_add_coalesced", "scatter"]

_buffer_size = _collectives.default_buffer_size
last_plan = _collectives.last_plan


def _exactly_one(function, devices, out):
    if (devices is None) == (out is None):
        given = "neither" if devices is None else "both"
        raise InvalidArgumentError(
            f"{function}: {given} of 'devices' and 'out' given, expected exactly one of them", "invalid_argument"
        )


def broadcast(tensor, devices=None, *, out=None):
    """Copies `tensor`, on a device or the host, to every device of `devices`, or into every tensor of `out`.

    Returns a tuple with one tensor per device, in order, or `out`. An entry equal to the source's device gives `tensor`
    itself. Tensors of `out` have the source's sizes and element type.
    """
    _exactly_one("broadcast", devices, out)
    if devices is not None:
        return _collectives.broadcast(tensor, devices)
    _collectives.broadcast_into(tensor, out)
    return tuple(out)


def broadcast_coalesced(tensors, devices, buffer_size=_buffer_size):
    """Broadcasts many tensors, all on one device or on the host, as one operation.

    Returns a list for each device, with a tensor for each of `tensors`. `buffer_size` bounds staging memory in bytes.
    """
    return _collectives.broadcast_coalesced(list(tensors), devices, buffer_size)


def reduce_add(inputs, destination=None):
    """Sums `inputs`, of one shape and element type on any devices, in ascending order of inputs.

    Returns a tensor on `destination`, the current device unless given. The bits depend on the inputs alone.
    """
    return _collectives.reduce(inputs, destination, None)


def reduce_add_coalesced(inputs, destination=None, buffer_size=_buffer_size):
    """Sums each column of `inputs[device][tensor]` as one operation; returns a tuple of sums on `destination`."""
    return _collectives.reduce_coalesced([list(row) for row in inputs], destination, buffer_size, None)


def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """Splits `tensor` along `dim` into one chunk per device, of the given sizes or of equal ones, the last smaller.

    With `out`, its tensors' sizes along `dim` give the chunks, and `devices` and `chunk_sizes` are None. `streams` has a
    stream for each output, or None, which takes the place of its device's current stream. Returns a tuple of chunks.
    """
    if out is None:
        return _collectives.scatter(tensor, devices, chunk_sizes, dim, streams)
    for name, value in (("devices", devices), ("chunk_sizes", chunk_sizes)):
        if value is not None:
            raise InvalidArgumentError(
                f"scatter: '{name}' is {value!r}, expected None when 'out' is given", "invalid_argument"
            )
    _collectives.scatter_into(tensor, out, dim, streams)
    return tuple(out)


def gather(tensors, dim=0, destination=None, *, out=None):
    """Joins `tensors`, on any devices, along `dim`; their other sizes and element types are equal.

    `destination` is a device, the current one unless given, or the host ('cpu' or -1). With `out`, on a device or the
    host, it is None. Returns the joined tensor.
    """
    if out is None:
        return _collectives.gather(tensors, dim, destination)
    if destination is not None:
        raise InvalidArgumentError(
            f"gather: 'destination' is {destination!r}, expected None when 'out' is given", "invalid_argument"
        )
    _collectives.gather_into(tensors, out, dim)
    return out
