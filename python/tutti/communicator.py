# SPDX-License-Identifier: Apache-2.0
"""Makers of communicators that need no C++: by mpi4py, and by a store of `torch.distributed` or the like."""

import time

from tutti import _tutti
from tutti.errors import TimeoutError  # noqa: A004


class _StoreExchange:
    """Exchanges bytes through a store with `set`, `get` and, to wait so that Ctrl-C works, `check`."""

    def __init__(self, store, rank, size, prefix):
        self._store = store
        self._rank = rank
        self._size = size
        self._prefix = prefix
        self._round = 0
        self._timeout = 60.0

    def limit_waits(self, seconds):
        self._timeout = seconds

    def all_gather(self, mine):
        number, self._round = self._round, self._round + 1
        keys = [f"{self._prefix}/{number}/{rank}" for rank in range(self._size)]
        self._store.set(keys[self._rank], mine)
        self._wait(keys)
        return [bytes(self._store.get(key)) for key in keys]

    def _wait(self, keys):
        deadline = time.monotonic() + self._timeout
        pause = 0.0002
        missing = list(range(self._size))
        while missing := [rank for rank in missing if not self._store.check([keys[rank]])]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"from_store: ranks {missing} have not come within {self._timeout:g} s", "timeout")
            time.sleep(pause)
            pause = min(2 * pause, 0.01)


def from_store(store, rank, size, *, prefix="tutti", **options):
    """A communicator of `size` processes that share a store, as `torch.distributed`'s TCPStore, FileStore or HashStore.

    `prefix` tells apart communicators that are made with one store. Raises TimeoutError with the ranks that have not come.
    """
    exchange = _StoreExchange(store, rank, size, prefix)
    return _tutti.Communicator.from_exchange(rank, size, exchange.all_gather, exchange.limit_waits, **options)


def from_mpi4py(comm, **options):
    """A communicator of the processes of an mpi4py communicator, which may be freed right away.

    The device is the process's number on its host modulo the number of devices, unless `devices` is given.
    """
    if options.get("devices") is None:
        from mpi4py import MPI

        local = comm.Split_type(MPI.COMM_TYPE_SHARED)
        options["devices"] = [local.Get_rank() % _tutti.device_count()]
        local.Free()
    copy = comm.Dup()
    try:
        return _tutti.Communicator.from_exchange(copy.Get_rank(), copy.Get_size(), copy.allgather, **options)
    finally:
        copy.Free()
