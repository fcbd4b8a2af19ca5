# SPDX-License-Identifier: Apache-2.0
"""The backend "tutti" of `torch.distributed`, for CUDA tensors, and for CPU tensors on virtual devices.

    torch.distributed.init_process_group("tutti")

torch 2.14 and later find it by themselves; before, import this module first. Virtual devices use CPU tensors, in place
where possible: that is for tests with real numbers and without GPUs. A call waits for late ranks as long as the group's
timeout; errors name the rank that is late or lost. Sums have the same bits in every run, and for any number of ranks those
of adding in ascending order of ranks. Messages between the same two ranks match in order; tags are not looked at.
"""

import contextlib
import datetime
import functools
import os
import queue
import threading

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

import tutti
from tutti import _tutti

# The class `Backend` can be derived from since 2.14; before, only `ProcessGroup` can.
_derives_backend = hasattr(c10d.Backend, "all_gather_single")
_Base = c10d.Backend if _derives_backend else c10d.ProcessGroup

_operations = {
    c10d.ReduceOp.SUM: "sum",
    c10d.ReduceOp.AVG: "avg",
    c10d.ReduceOp.PRODUCT: "prod",
    c10d.ReduceOp.MIN: "min",
    c10d.ReduceOp.MAX: "max",
    c10d.ReduceOp.BAND: "band",
    c10d.ReduceOp.BOR: "bor",
    c10d.ReduceOp.BXOR: "bxor",
}


def _operation(op):
    kind = getattr(op, "op", op)
    if kind == c10d.ReduceOp.PREMUL_SUM:
        return tutti.ReduceOp.premul_sum(float(op.factor))
    if kind not in _operations:
        raise tutti.InvalidArgumentError(
            f"op is {op}, expected one of {sorted(map(str, _operations))}", "invalid_argument"
        )
    return _operations[kind]


def _call(method):
    """Marks a call of a process group: if it fails between `start_coalescing` and `end_coalescing`, so has the batch."""

    @functools.wraps(method)
    def checked(self, *arguments, **options):
        try:
            return method(self, *arguments, **options)
        except BaseException as error:
            self._drop_batch(error)
            raise

    return checked


class _Completions:
    """A thread that completes futures when their work is done, in the order in which it was queued."""

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._lock = threading.Lock()

    def add(self, work, future):
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="tutti futures", daemon=True)
                self._thread.start()
        self._queue.put((work, future))

    def _run(self):
        while True:
            work, future = self._queue.get()
            work.complete(future)


_completions = _Completions()
_with_messages = set()  # backends that have messages to move
_kept_device = None  # that of this rank, once `shrink` has numbered ranks anew


class _Work(c10d.Work):
    """A call on CPU tensors: done when results are in host memory."""

    def __init__(self, calls, results, finish=()):
        super().__init__()
        self._calls = calls
        self._results = results
        self._finish = list(finish)
        self._lock = threading.Lock()
        self._error = None

    def wait(self, timeout=None):
        try:
            self._calls.wait()
        except Exception as error:
            self._error = error
            raise
        with self._lock:
            while self._finish:
                self._finish.pop(0)()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._error is not None or (self._calls.is_done() and not self._finish)

    def is_success(self):
        return self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._results

    def get_future(self):
        done = torch.futures.Future()
        # What a callback raises reaches those who wait in C++, as DDP does; an exception that is set on a future does not.
        future = done.then(lambda _: self._outcome())
        if self._calls.is_done():
            self.complete(done)
        else:
            _completions.add(self, done)
        return future

    def _outcome(self):
        self.wait()
        return self._results

    def complete(self, done):
        with contextlib.suppress(Exception):  # `_outcome` raises it again
            self.wait()
        done.set_result(None)


class _CudaWork(c10d.Work):
    """A call on CUDA tensors: `wait` makes the current stream wait for it, not the host.

    Once the communicator has ended, as when a rank is lost, `wait` raises the reason and the work counts as failed: its
    results may be undefined. A work that the host has not waited for may be under way when that happens.
    """

    def __init__(self, backend, stream, results, is_barrier=False):
        super().__init__()
        self._backend = backend
        self._stream = stream
        self._event = stream.record_event()
        self._results = results
        self._is_barrier = is_barrier

    def wait(self, timeout=None):
        self._backend.check()
        current = torch.cuda.current_stream(self._stream.device)
        current.wait_event(self._event)
        if self._is_barrier:
            current.synchronize()
            self._backend.check()
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._event.query() or self.exception() is not None

    def is_success(self):
        return self.exception() is None

    def exception(self):
        try:
            self._backend.check()
        except tutti.Error as error:
            return error
        return None

    def result(self):
        return self._results

    def get_future(self):
        future = torch.futures.Future(devices=[self._stream.device])
        with torch.cuda.stream(self._stream):  # whose work the future's users then wait for
            future.set_result(self._results)
        return future


class _MessageWork(c10d.Work):
    """A message that moves with the others of its rank when one of them is waited for, or another call is made.

    So two ranks may both send first and then receive, as other backends allow.
    """

    def __init__(self, backend, results):
        super().__init__()
        self._backend = backend
        self._results = results
        self.batch = None  # the work of the messages that it moves with
        self.error = None

    def _moved(self):
        self._backend.move_messages()
        if self.error is not None:
            raise self.error
        if self.batch is None:
            raise RuntimeError("a message of a batch is waited for before the batch is ended")
        return self.batch

    def wait(self, timeout=None):
        return self._moved().wait(timeout)

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._moved().is_completed()

    def is_success(self):
        return self._moved().is_success()

    def exception(self):
        return self._moved().exception()

    def result(self):
        return self._results

    def get_future(self):
        return self._moved().get_future()


class _Output:
    """A contiguous tensor in place of an output that is not; `finish` copies it there."""

    def __init__(self, tensor, reads=False):
        self.target = tensor.detach()
        is_whole = tensor.is_contiguous()
        self.tensor = self.target if is_whole else self._dense(reads)
        self.finish = () if is_whole else (lambda: self.target.copy_(self.tensor),)

    def _dense(self, reads):
        if reads:
            return self.target.contiguous()
        return torch.empty_like(self.target, memory_format=torch.contiguous_format)


def _inputs(tensors):
    return [tensor.detach().contiguous() for tensor in tensors]


def _split_to(flat, targets):
    """Returns a function that copies the parts of a flat tensor to `targets`, one after another."""

    def copy():
        start = 0
        for target in targets:
            target.detach().copy_(flat.narrow(0, start, target.numel()).view(target.shape))
            start += target.numel()

    return (copy,)


def _finishing(outputs):
    return [step for output in outputs for step in output.finish]


def _used(inputs, outputs):
    """All tensors that a call works on, copies of outputs included, so that a side stream can be named to their owner."""
    return [*inputs, *(tensor for output in outputs for tensor in (output.target, output.tensor))]


def _sizes_of_rows(tensor, splits, size):
    """Numbers of elements of the parts, of so many rows each; without splits, of equal parts."""
    if not splits:
        return [tensor.numel() // size] * size
    row = tensor.numel() // tensor.size(0) if tensor.size(0) else 0
    return [rows * row for rows in splits]


class TuttiBackend(_Base):
    """A process group whose calls are those of a `tutti.Communicator`."""

    def __init__(self, store, rank, size, timeout, device=None):
        super().__init__(rank, size)
        self._rank = rank
        self._size = size
        self._patience = timeout.total_seconds()
        self._given_patience = self._patience
        self._store = store
        self._side_stream = None
        self._batch = None
        self._coalesced = []  # works of collectives that were made together with messages of a batch
        self._unmoved = []
        self._is_shut_down = False
        self._device = self._device_of_rank(rank) if device is None else device
        self.communicator = tutti.Communicator.from_store(
            store,
            rank,
            size,
            prefix="tutti",
            devices=[self._device],
            patience=self._patience,
            timeout=min(60.0, self._patience),
        )

    @staticmethod
    def _device_of_rank(rank):
        # Virtual devices promise memory without taking it.
        os.environ.setdefault("TUTTI_VIRTUAL_MEMORY", "64G")
        number = dist.get_rank() if dist.is_initialized() else rank
        local = int(os.environ.get("LOCAL_RANK", number)) % tutti.device_count()
        if tutti.backend() == "cuda" and torch.cuda.current_device() != 0:
            return torch.cuda.current_device()  # which the program has set
        return local

    # Descriptions

    def getBackendName(self):  # noqa: N802
        return "tutti"

    def name(self):
        return "tutti"

    @property
    def supports_splitting(self):
        return False

    @property
    def supports_coalescing(self):
        return True

    def set_timeout(self, timeout):
        self._patience = timeout.total_seconds()

    # Every call passes here.

    def _run(self, call, tensors, results, finish=(), is_async=True):
        for backend in list(_with_messages):
            backend.move_messages()
        work = self._run_now(call, tensors, results, finish, is_async)
        if self._batch is not None:
            self._coalesced.append(work)
        return work

    def _run_now(self, call, tensors, results, finish=(), is_async=True):
        if self._patience == self._given_patience:
            return self._queue(call, tensors, results, finish, is_async)
        with _tutti.patience(self._patience):
            return self._queue(call, tensors, results, finish, is_async)

    def _queue(self, call, tensors, results, finish, is_async):
        if any(tensor.is_cuda for tensor in tensors):
            return self._queue_cuda(call, tensors, results, finish, is_async)
        calls = _tutti.Work()
        with calls:
            call()
        return _Work(calls, results, finish)

    def _queue_cuda(self, call, tensors, results, finish, is_async):
        stream = torch.cuda.current_stream(self._device)
        if is_async:
            stream = self._side(stream)
            for tensor in tensors:
                tensor.record_stream(stream)
        with torch.cuda.stream(stream):
            call()
            for step in finish:
                step()
        return _CudaWork(self, stream, results)

    def _side(self, current):
        """A stream beside the caller's, so that its work goes on while ranks communicate."""
        if self._side_stream is None:
            self._side_stream = torch.cuda.Stream(self._device)
        self._side_stream.wait_stream(current)
        return self._side_stream

    # Collectives

    @_call
    def broadcast(self, tensors, opts):
        outputs = [_Output(tensor, reads=True) for tensor in tensors]

        def call():
            for output in outputs:
                self.communicator.broadcast_(output.tensor, opts.rootRank)

        return self._run(call, _used(tensors, outputs), tensors, _finishing(outputs))

    @_call
    def allreduce(self, tensors, opts):
        op = _operation(opts.reduceOp)
        outputs = [_Output(tensor, reads=True) for tensor in tensors]
        dense = [output.tensor for output in outputs]

        def call():
            if len(dense) == 1:
                self.communicator.all_reduce(dense[0], out=dense[0], op=op)
            else:
                self.communicator.all_reduce_coalesced(dense, out=dense, op=op)

        return self._run(call, _used(tensors, outputs), tensors, _finishing(outputs))

    @_call
    def allreduce_coalesced(self, tensors, opts):
        return self.allreduce(tensors, opts)

    @_call
    def reduce(self, tensors, opts):
        op = _operation(opts.reduceOp)
        outputs = [_Output(tensor, reads=True) for tensor in tensors]

        def call():
            for output in outputs:
                self.communicator.reduce(output.tensor, opts.rootRank, out=output.tensor, op=op)

        return self._run(call, _used(tensors, outputs), tensors, _finishing(outputs))

    @_call
    def allgather(self, outputs, inputs, opts=None):
        sources = _inputs(inputs)
        flats = [source.new_empty(source.numel() * self._size) for source in sources]

        def call():
            for source, flat in zip(sources, flats, strict=True):
                self.communicator.all_gather(source, out=flat)

        finish = [step for flat, list_ in zip(flats, outputs, strict=True) for step in _split_to(flat, list_)]
        return self._run(call, [*sources, *flats, *(part for list_ in outputs for part in list_)], outputs, finish)

    @_call
    def all_gather_single(self, output, input, opts=None):
        return self.all_gather_single_coalesced([output], [input], opts)

    @_call
    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        sources = _inputs(inputs)
        targets = [_Output(output) for output in outputs]
        dense = [target.tensor for target in targets]

        def call():
            self.communicator.all_gather_coalesced(sources, out=dense)

        return self._run(call, _used(sources, targets), outputs, _finishing(targets))

    @_call
    def reduce_scatter(self, outputs, inputs, opts):
        op = _operation(opts.reduceOp)
        sources = [torch.cat([part.detach().reshape(-1) for part in list_]) for list_ in inputs]
        targets = [_Output(output) for output in outputs]

        def call():
            for source, target in zip(sources, targets, strict=True):
                self.communicator.reduce_scatter(source, out=target.tensor, op=op)

        return self._run(call, _used(sources, targets), outputs, _finishing(targets))

    @_call
    def reduce_scatter_single(self, output, input, opts):
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    @_call
    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        op = _operation(opts.reduceOp)
        sources = _inputs(inputs)
        targets = [_Output(output) for output in outputs]
        dense = [target.tensor for target in targets]

        def call():
            self.communicator.reduce_scatter_coalesced(sources, out=dense, op=op)

        return self._run(call, _used(sources, targets), outputs, _finishing(targets))

    @_call
    def all_to_all_single(self, output, input, output_splits, input_splits, opts=None):
        source = _inputs([input])[0]
        target = _Output(output)

        def call():
            if not output_splits and not input_splits:
                self.communicator.all_to_all(source, out=target.tensor)
            else:
                self.communicator.all_to_all(
                    source,
                    out=target.tensor,
                    input_sizes=_sizes_of_rows(input, input_splits, self._size),
                    out_sizes=_sizes_of_rows(output, output_splits, self._size),
                )

        return self._run(call, _used([source], [target]), [output], target.finish)

    @_call
    def alltoall(self, outputs, inputs, opts=None):
        source = torch.cat([part.detach().reshape(-1) for part in inputs])
        flat = source.new_empty(sum(output.numel() for output in outputs))

        def call():
            self.communicator.all_to_all(
                source,
                out=flat,
                input_sizes=[part.numel() for part in inputs],
                out_sizes=[output.numel() for output in outputs],
            )

        return self._run(call, [source, flat, *outputs], outputs, _split_to(flat, outputs))

    @_call
    def gather(self, outputs, inputs, opts):
        source = inputs[0].detach().reshape(-1)
        is_root = self._rank == opts.rootRank
        flat = source.new_empty(source.numel() * self._size) if is_root else None

        def call():
            self.communicator.gather(source, opts.rootRank, out=source if flat is None else flat)

        if not is_root:
            return self._run(call, [source], outputs)
        return self._run(call, [source, flat, *outputs[0]], outputs, _split_to(flat, outputs[0]))

    @_call
    def scatter(self, outputs, inputs, opts):
        target = _Output(outputs[0].detach())
        flat = target.tensor.view(-1)
        source = None
        if self._rank == opts.rootRank:
            source = torch.cat([part.detach().reshape(-1) for part in inputs[0]])

        def call():
            self.communicator.scatter(source, opts.rootRank, out=flat)

        return self._run(call, _used([] if source is None else [source], [target]), outputs, target.finish)

    @_call
    def barrier(self, opts=None):
        if tutti.backend() == "cuda":
            self.move_messages()
            stream = self._side(torch.cuda.current_stream(self._device))
            self.communicator.barrier(streams=[stream])
            return _CudaWork(self, stream, [], is_barrier=True)
        return self._run(self.communicator.barrier, [], [])

    def monitored_barrier(self, opts=None, wait_all_ranks=False):
        self.barrier().wait()

    # Messages

    @_call
    def send(self, tensors, dst, tag=0):
        sources = _inputs(tensors)
        return self._send_or_receive([("send", source, dst) for source in sources], sources, ())

    @_call
    def recv(self, tensors, src, tag=0):
        targets = [_Output(tensor) for tensor in tensors]
        messages = [("recv", target.tensor, src) for target in targets]
        return self._send_or_receive(messages, _used(tensors, targets), _finishing(targets))

    def _send_or_receive(self, messages, tensors, finish):
        work = _MessageWork(self, tensors)
        messages = (messages, tensors, finish, work)
        if self._batch is not None:
            self._batch.append(messages)
        else:
            self._unmoved.append(messages)
            _with_messages.add(self)
        return work

    def move_messages(self):
        """Moves all messages whose calls have been made so far, as one batch."""
        _with_messages.discard(self)
        unmoved, self._unmoved = self._unmoved, []
        if unmoved:
            self._move(unmoved)

    def _move(self, batch, then=()):
        messages = [message for one in batch for message in one[0]]
        tensors = [tensor for one in batch for tensor in one[1]]
        finish = [*(step for one in batch for step in one[2]), *then]
        try:
            work = self._run_now(lambda: self.communicator.batch_send_recv(messages), tensors, tensors, finish)
        except Exception as error:
            for one in batch:
                one[3].error = error
            raise
        for one in batch:
            one[3].batch = work
        return work

    def start_coalescing(self, device=None):
        self._drop_batch(RuntimeError("the batch of this message was never ended"))
        self._batch = []

    @_call
    def end_coalescing(self, device=None):
        self.move_messages()
        batch, self._batch = self._batch or [], None
        works, self._coalesced = self._coalesced, []
        return self._move(batch, [work.wait for work in works])

    def _drop_batch(self, error):
        """Forgets a batch in which a call has failed: its messages do not move."""
        batch, self._batch, self._coalesced = self._batch or [], None, []
        for message in batch:
            message[3].error = error

    # The end

    def abort(self):
        self.communicator.abort("the process group was aborted")

    def check(self):
        """Raises the error that has ended the communicator, if any but `shutdown`."""
        if not self._is_shut_down:
            self.communicator.check()

    def shutdown(self):
        self._is_shut_down = True
        if self.communicator.is_running():
            self.move_messages()
        _with_messages.discard(self)
        self.communicator.close()

    # Names that other versions of torch call these by

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """Gathers inputs[t] of rank r into outputs[r][t]."""
        return self.allgather([list(column) for column in zip(*outputs, strict=True)], inputs, opts)


if not _derives_backend:
    # A process group of torch asks a backend for its name, but this class is both.
    TuttiBackend.group_name = property(lambda self: dist.distributed_c10d._world.pg_names[self])


def _make(store, rank, size, timeout):
    return TuttiBackend(store, rank, size, timeout, _kept_device)


def _default_backend():
    group = dist.distributed_c10d._get_default_group()
    if isinstance(group, TuttiBackend):
        return group
    device = torch.device("cuda" if tutti.backend() == "cuda" else "cpu")
    return group._get_backend(device)


def shrink(leaving=(), late="fail", timeout=None):
    """Makes torch's default group anew, of the ranks that are left when some are lost or `leaving`.

    All ranks that are left call it; arguments are those of `Communicator.shrink`. Ranks are numbered anew, in their old
    order, and keep their devices. Returns False to a rank that leaves, which has no default group then. All other groups are
    destroyed; models are wrapped anew, as by `DistributedDataParallel(model.module)`, which gives all ranks the parameters
    of rank 0. The store must still be there: torchrun's is. If another rank is lost meanwhile, this raises, and there may be
    no default group any more.
    """
    global _kept_device
    old = _default_backend()
    with contextlib.suppress(tutti.Error):  # of messages that no longer move
        old.move_messages()
    rest = old.communicator.shrink(list(leaving), late, timeout)
    store, seconds = dist.PrefixStore("shrunk", old._store), old._patience
    dist.destroy_process_group()
    _with_messages.clear()  # of groups that have ended
    if rest is None:
        return False
    _kept_device = old._device
    with rest:
        rank, size = rest.rank, rest.rank_count
        limit = datetime.timedelta(seconds=seconds)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=size, timeout=limit)
    return True


def register():
    """Makes the backend known to torch, which calls this by the entry point `torch.distributed.backends`."""
    if not hasattr(dist.Backend, "TUTTI"):
        dist.Backend.register_backend("tutti", _make, devices=["cpu", "cuda"])


register()
