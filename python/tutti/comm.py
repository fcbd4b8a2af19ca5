# SPDX-License-Identifier: Apache-2.0
"""The collectives of one process, with the names, signatures and results of `torch.cuda.comm`.

Tensors are of any library that speaks DLPack: torch, CuPy, or `tutti.Tensor`. They are used without a copy, on the current
streams of their library, and results are of the kind that was given. (On virtual devices, whose memory no other library can
hold, results are `tutti.Tensor`.) Calls check everything first, queue, and return; bad arguments raise
`tutti.InvalidArgumentError`, a ValueError, and nothing is queued then.
"""

import sys

from tutti import _words
from tutti._tutti import collectives as _collectives
from tutti.errors import InvalidArgumentError

__all__ = ["broadcast", "broadcast_coalesced", "gather", "last_plan", "reduce_add", "reduce_add_coalesced", "scatter"]

_buffer_size = _collectives.default_buffer_size
last_plan = _collectives.last_plan


def _refuse(message):
    raise InvalidArgumentError(message, "invalid_argument")


def _explain(error, words, *arguments):
    """Raises `error` with torch's words for what is wrong added, if `words` finds them."""
    said = words(*arguments)
    if said is not None:
        raise InvalidArgumentError(f"{error}. {said}", error.code) from None


# Sparse tensors of torch are pairs of dense ones, and a sum of them is their entries behind one another.


def _is_sparse(tensor):
    return getattr(tensor, "is_sparse", False) is True


def _dense_parts(tensor):
    return [tensor._indices(), tensor._values()] if _is_sparse(tensor) else [tensor]


def _sparse(indices, values, like, is_coalesced):
    return sys.modules["torch"].sparse_coo_tensor(indices, values, like.size(), is_coalesced=is_coalesced)


def _copy_of(tensor, parts):
    """Puts the copies of `_dense_parts(tensor)` together, the next of the iterator `parts`."""
    if not _is_sparse(tensor):
        return next(parts)
    indices, values = next(parts), next(parts)
    if values.device == tensor.device:
        return tensor
    return _sparse(indices, values, tensor, tensor.is_coalesced())


def _broadcast_sparse(tensors, devices, buffer_size):
    dense = [part for tensor in tensors for part in _dense_parts(tensor)]
    rows = _collectives.broadcast_coalesced(dense, devices, buffer_size)
    return [[_copy_of(tensor, parts) for tensor in tensors] for parts in map(iter, rows)]


def _sum_sparse(inputs, destination):
    indices = _collectives.gather([tensor._indices() for tensor in inputs], 1, destination)
    values = _collectives.gather([tensor._values() for tensor in inputs], 0, destination)
    return _sparse(indices, values, inputs[0], False)


def broadcast(tensor, devices=None, *, out=None):
    """Copies `tensor`, on a device or the host, to every device of `devices`, or into every tensor of `out`.

    Returns a tuple with one tensor per device, in order, or `out`. An entry equal to the source's device gives `tensor`
    itself. Tensors of `out` have the source's sizes and element type.
    """
    if (devices is None) == (out is None):
        given = "neither" if out is None else "both"
        _refuse(f"broadcast: Exactly one of 'devices' and 'out' must be given, but {given} are")
    if out is not None:
        try:
            _collectives.broadcast_into(tensor, out)
        except InvalidArgumentError as error:
            _explain(error, _words.of_broadcast, tensor, out)
            raise
        return tuple(out)
    if _is_sparse(tensor):
        return tuple(row[0] for row in _broadcast_sparse([tensor], devices, _buffer_size))
    return _collectives.broadcast(tensor, devices)


def broadcast_coalesced(tensors, devices, buffer_size=_buffer_size):
    """Broadcasts many tensors, all on one device or on the host, as one operation.

    Returns a list for each device, with a tensor for each of `tensors`. `buffer_size` bounds staging memory in bytes.
    """
    tensors = list(tensors)
    if any(map(_is_sparse, tensors)):
        return _broadcast_sparse(tensors, devices, buffer_size)
    return _collectives.broadcast_coalesced(tensors, devices, buffer_size)


def reduce_add(inputs, destination=None):
    """Sums `inputs`, of one shape and element type on any devices, in ascending order of inputs.

    Returns a tensor on `destination`, the current device unless given. The bits depend on the inputs alone.
    """
    if len(inputs) > 0 and _is_sparse(inputs[0]):
        return _sum_sparse(inputs, destination)
    return _collectives.reduce(inputs, destination, None)


def reduce_add_coalesced(inputs, destination=None, buffer_size=_buffer_size):
    """Sums each column of `inputs[device][tensor]` as one operation; returns a tuple of sums on `destination`."""
    rows = [list(row) for row in inputs]
    sparse = [index for index, tensor in enumerate(rows[0]) if _is_sparse(tensor)] if rows else []
    dense = [[tensor for tensor in row if not _is_sparse(tensor)] for row in rows]
    sums = list(_collectives.reduce_coalesced(dense, destination, buffer_size, None))
    for index in sparse:
        sums.insert(index, _sum_sparse([row[index] for row in rows], destination))
    return tuple(sums)


def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """Splits `tensor` along `dim` into one chunk per device, of the given sizes or of equal ones, the last smaller.

    With `out`, its tensors' sizes along `dim` give the chunks, and `devices` and `chunk_sizes` are None. `streams` has a
    stream for each output, or None, which takes the place of its device's current stream. Returns a tuple of chunks.
    """
    if out is None:
        try:
            return _collectives.scatter(tensor, devices, chunk_sizes, dim, streams)
        except InvalidArgumentError as error:
            _explain(error, _words.of_scatter, devices, chunk_sizes)
            raise
    for name, value in (("devices", devices), ("chunk_sizes", chunk_sizes)):
        if value is not None:
            _refuse(f"scatter: '{name}' must not be specified when 'out' is given, but got {value!r}")
    try:
        _collectives.scatter_into(tensor, out, dim, streams)
    except InvalidArgumentError as error:
        _explain(error, _words.of_scatter_into, tensor, out, dim)
        raise
    return tuple(out)


def gather(tensors, dim=0, destination=None, *, out=None):
    """Joins `tensors`, on any devices, along `dim`; their other sizes and element types are equal.

    `destination` is a device, the current one unless given, or the host ('cpu' or -1). With `out`, on a device or the
    host, it is None. Returns the joined tensor.
    """
    if out is None:
        try:
            return _collectives.gather(tensors, dim, destination)
        except InvalidArgumentError as error:
            _explain(error, _words.of_gather, tensors, dim)
            raise
    if destination is not None:
        _refuse(f"gather: 'destination' must not be specified when 'out' is given, but got {destination!r}")
    try:
        _collectives.gather_into(tensors, out, dim)
    except InvalidArgumentError as error:
        _explain(error, _words.of_gather, tensors, dim)
        raise
    return out
