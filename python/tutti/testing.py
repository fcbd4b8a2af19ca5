# SPDX-License-Identifier: Apache-2.0
"""Runs a function as several ranks: on virtual devices, with an order drawn from a seed and slow links, or on GPUs; ranks
may be lost.

    def train(rank, ranks):
        communicator = tutti.testing.communicator()
        ...

    values = [outcome.value for outcome in tutti.testing.run(train, ranks=4, seed=7)]

`run` starts processes, so the function and its arguments must be picklable: functions of a module, not closures. With
torch, `tutti.testing.init_process_group()` in a rank makes its default process group.
"""

import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import signal
import tempfile
import time
import traceback

import tutti

_forever = 2**62


@dataclasses.dataclass
class Outcome:
    """What became of a rank: the `value` that it returned, the `error` that it raised, or the signal that ended it.

    A value that cannot be pickled is an error, and so is an end by `os._exit`.
    """

    rank: int
    value: object = None
    error: BaseException | None = None
    traceback: str = ""
    signal: int | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the process ended, or was stopped, without a word."""
        return self.signal is not None


class RankFailed(RuntimeError):  # noqa: N818
    """A rank has failed; `outcomes` has what became of all of them."""

    def __init__(self, message, outcomes):
        super().__init__(message)
        self.outcomes = outcomes


class _Store:
    """A store in a folder, for ranks of one machine: needs no port."""

    def __init__(self, folder):
        self._folder = pathlib.Path(folder)

    def _file(self, key):
        return self._folder / key.replace("/", "%")

    def set(self, key, value):
        file = self._file(key)
        new = file.with_suffix(".new")
        new.write_bytes(value)
        new.rename(file)

    def check(self, keys):
        return all(self._file(key).exists() for key in keys)

    def get(self, key):
        return self._file(key).read_bytes()


_rank: "_Rank | None" = None


@dataclasses.dataclass
class _Rank:
    """This process as a rank of `run`."""

    rank: int
    ranks: int
    folder: str
    patience: float
    kill_at: int | None
    stop_at: int | None
    steps: int = 0
    communicators: int = 0


def _this_rank() -> _Rank:
    if _rank is None:
        raise tutti.InvalidArgumentError("this process is no rank of tutti.testing.run", "invalid_argument")
    return _rank


def communicator(ranks=None, **options):
    """A communicator of all ranks, or of the first `ranks`; the others may be spares, and call `Communicator.join`.

    `options` are those of `tutti.Communicator`.
    """
    rank = _this_rank()
    rank.communicators += 1
    options.setdefault("devices", [rank.rank % tutti.device_count()])
    options.setdefault("patience", rank.patience)
    options.setdefault("timeout", rank.patience)
    prefix = f"communicator{rank.communicators}"
    store = _Store(rank.folder)
    return tutti.Communicator.from_store(store, rank.rank, ranks or rank.ranks, prefix=prefix, **options)


def init_process_group(backend="tutti"):
    """Makes torch's default process group of all ranks, with a file for a store."""
    import datetime

    import torch.distributed as dist

    import tutti.distributed  # noqa: F401

    rank = _this_rank()
    store = dist.FileStore(os.path.join(rank.folder, "torch"), rank.ranks)
    timeout = datetime.timedelta(seconds=rank.patience)
    dist.init_process_group(backend, store=store, rank=rank.rank, world_size=rank.ranks, timeout=timeout)


def step() -> int:
    """Counts a step of this rank, at which it may be killed or stopped; returns the number of steps before."""
    rank = _this_rank()
    now = rank.steps
    rank.steps += 1
    if now == rank.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if now == rank.stop_at:
        os.kill(os.getpid(), signal.SIGSTOP)
    return now


def _start_devices(backend, devices, topology, memory_bytes, seed, slow):
    os.environ["TUTTI_BACKEND"] = backend
    if backend == "cuda":
        return
    tutti.virtual_devices.start(devices, topology, memory_bytes)
    if seed is not None:
        tutti.virtual_devices.set_interleaving_seed(seed)
    if slow:
        tutti.virtual_devices.inject("kernel", "delay", count=_forever, delay_microseconds=slow)
        tutti.virtual_devices.inject("copy", "delay", count=_forever, delay_microseconds=slow)


def _packed(outcome):
    """Pickles an outcome, without what this process shares with none (which multiprocessing's own pickling may refer to)."""
    try:
        packed = pickle.dumps(outcome)
        pickle.loads(packed)
    except Exception as error:
        return pickle.dumps(_told(outcome, error))
    return packed


def _told(outcome, reason):
    """Puts into words what cannot be pickled."""
    if outcome.error is not None:
        told = RuntimeError(f"{type(outcome.error).__name__}: {outcome.error}")
        return dataclasses.replace(outcome, error=told)
    kind = type(outcome.value).__qualname__
    words = (
        f"rank {outcome.rank} returned a value of type {kind} that cannot be pickled: {type(reason).__name__}: {reason}"
    )
    return Outcome(outcome.rank, error=TypeError(words), traceback=words)


def _main(pipe, rank, machine, function, arguments):
    """What a rank's process does."""
    global _rank
    _rank = rank
    os.environ.update(RANK=str(rank.rank), WORLD_SIZE=str(rank.ranks), LOCAL_RANK=str(rank.rank))
    try:
        _start_devices(*machine)
        outcome = Outcome(rank.rank, value=function(rank.rank, rank.ranks, *arguments))
    except BaseException as error:
        outcome = Outcome(rank.rank, error=error, traceback=traceback.format_exc())
    pipe.send_bytes(_packed(outcome))
    pipe.close()


def _collect(processes, pipes, deadline, may_stop):
    """Waits for all ranks, or until all that may still speak have."""
    outcomes = {}
    while waiting := [rank for rank in range(len(pipes)) if rank not in outcomes]:
        if may_stop and set(waiting) <= may_stop:
            break
        ready = multiprocessing.connection.wait([pipes[rank] for rank in waiting], deadline - time.monotonic())
        if not ready:
            break
        for rank in waiting:
            if pipes[rank] in ready:
                outcomes[rank] = _received(pipes[rank], processes[rank], rank)
    return outcomes


def _received(pipe, process, rank):
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        process.join()
        return _ended(rank, process.exitcode)


def _ended(rank, status):
    if status < 0:
        return Outcome(rank, signal=-status)
    words = f"rank {rank} exited with status {status} before its function returned"
    return Outcome(rank, error=RuntimeError(words), traceback=words)


def run(
    function,
    ranks=2,
    *arguments,
    seed=None,
    devices=8,
    topology="island",
    memory_bytes=1 << 36,
    patience=30.0,
    slow=None,
    kill=None,
    stop=None,
    check=None,
    timeout=120.0,
    backend="host",
):
    """Calls `function(rank, ranks, *arguments)` in `ranks` processes; returns an Outcome for each.

    `seed` draws the order in which each rank's streams run. `slow` maps ranks to microseconds that each of their kernels
    and copies takes longer. `kill` and `stop` map ranks to the step (`step()` counts them) at which the process is killed,
    or stopped as by a debugger. `patience` bounds waits for late and stopped ranks, `timeout` the whole, in seconds. Unless
    `check` is False, or faults are given, raises RankFailed if a rank fails. With `backend="cuda"`, the ranks use the
    machine's GPUs, and share them if there are fewer; virtual devices' options then say nothing, and `seed` and `slow` are
    refused.
    """
    slow, kill, stop = slow or {}, kill or {}, stop or {}
    if backend not in ("host", "cuda"):
        raise tutti.InvalidArgumentError(f"backend is {backend!r}, expected 'host' or 'cuda'", "invalid_argument")
    if backend == "cuda" and (seed is not None or slow):
        given = f"seed is {seed}" if seed is not None else f"slow is {slow}"
        raise tutti.InvalidArgumentError(f"{given}, expected none with backend 'cuda'", "invalid_argument")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="tutti-") as folder:
        processes, pipes = [], []
        try:
            for number in range(ranks):
                rank = _Rank(number, ranks, folder, patience, kill.get(number), stop.get(number))
                own_seed = None if seed is None else seed * 1000 + number
                machine = (backend, devices, topology, memory_bytes, own_seed, slow.get(number))
                ours, theirs = context.Pipe(duplex=False)
                pipes.append(ours)
                process = context.Process(target=_main, args=(theirs, rank, machine, function, arguments))
                process.start()
                processes.append(process)
                theirs.close()
            found = _collect(processes, pipes, time.monotonic() + timeout, set(stop))
        finally:
            _end(processes)
    outcomes = [found.get(rank) or Outcome(rank, signal=int(signal.SIGSTOP)) for rank in range(ranks)]
    if check or (check is None and not kill and not stop):
        _require_success(outcomes)
    return outcomes


def _end(processes):
    """Lets processes that have spoken end by themselves, and ends the others, stopped ones too."""
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


def _require_success(outcomes):
    for outcome in outcomes:
        if outcome.error is not None:
            raise RankFailed(f"rank {outcome.rank} failed:\n{outcome.traceback}", outcomes) from outcome.error
        if outcome.is_lost:
            raise RankFailed(f"rank {outcome.rank} ended by signal {outcome.signal}", outcomes)
