# SPDX-License-Identifier: Apache-2.0
"""The backend "tutti" of torch.distributed on CPU tensors: every call, and training with the bits of one process.

test_gpus.py has its ranks do the same on GPUs.
"""

import functools
import inspect
import os
import types
import unittest
import unittest.mock

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.parallel.comm
import tutti
import tutti.distributed
import tutti.testing

STEPS = 4
BATCH = 4
RANKS = int(os.environ.get("TUTTI_TEST_RANKS", 2))
SEEDS = int(os.environ.get("TUTTI_TEST_SEEDS", 2))


def join_group(rank):
    """Makes torch's default process group, and tensors on this rank's GPU unless devices are virtual."""
    torch.set_num_threads(1)
    if tutti.backend() == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
        torch.set_default_device(device)
    tutti.testing.init_process_group()


def in_group(function):
    """Runs the function of a rank within torch's default process group."""

    @functools.wraps(function)
    def run(rank, ranks, *arguments):
        join_group(rank)
        try:
            return function(rank, ranks, *arguments)
        finally:
            dist.destroy_process_group()

    return run


def require(condition, what):
    if not condition:
        raise AssertionError(what)


def collectives(rank, n):
    def filled(value, size=2):
        return torch.full((size,), float(value))

    total = sum(range(n))
    tensor = torch.arange(6.0) + rank
    dist.all_reduce(tensor)
    require(tensor.tolist() == [n * i + total for i in range(6)], "all_reduce")
    for op, expected in (("AVG", total / n), ("MAX", n - 1), ("MIN", 0)):
        tensor = filled(rank)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        require(tensor.tolist() == [expected] * 2, op)
    tensor = filled(rank)
    dist.broadcast(tensor, 1)
    require(tensor.tolist() == [1, 1], "broadcast")
    gathered = [filled(-1) for _ in range(n)]
    dist.all_gather(gathered, filled(rank))
    require([part[0].item() for part in gathered] == list(range(n)), "all_gather")
    whole = torch.zeros(2 * n)
    dist.all_gather_into_tensor(whole, filled(rank))
    require(whole.view(n, 2)[:, 1].tolist() == list(range(n)), "all_gather_into_tensor")
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * n))
    require(part.tolist() == [n * 2 * rank, n * (2 * rank + 1)], "reduce_scatter_tensor")
    dist.reduce_scatter(part, [filled(i) for i in range(n)])
    require(part.tolist() == [n * rank] * 2, "reduce_scatter")
    parts = torch.zeros(n)
    dist.all_to_all_single(parts, torch.arange(float(n)) + 10 * rank)
    require(parts.tolist() == [10 * i + rank for i in range(n)], "all_to_all_single")
    ragged = torch.zeros(sum(range(1, n + 1)))
    dist.all_to_all_single(ragged, filled(rank, n * (rank + 1)), [i + 1 for i in range(n)], [rank + 1] * n)
    require(ragged.tolist() == [float(i) for i in range(n) for _ in range(i + 1)], "all_to_all_single with splits")
    parts = [torch.zeros(1) for _ in range(n)]
    dist.all_to_all(parts, [filled(10 * rank + i, 1) for i in range(n)])
    require([part.item() for part in parts] == [10 * i + rank for i in range(n)], "all_to_all")
    tensor = filled(1)
    dist.reduce(tensor, 0)
    require(rank != 0 or tensor.tolist() == [n, n], "reduce")
    gathered = [filled(-1) for _ in range(n)] if rank == 0 else None
    dist.gather(filled(rank), gathered, 0)
    require(rank != 0 or [part[0].item() for part in gathered] == list(range(n)), "gather")
    dist.scatter(tensor, [filled(i) for i in range(n)] if rank == 0 else None, 0)
    require(tensor.tolist() == [rank, rank], "scatter")
    dist.barrier()


def forms(rank, n):
    objects = [None] * n
    dist.all_gather_object(objects, {"rank": rank})
    require(objects == [{"rank": i} for i in range(n)], "all_gather_object")
    strided = torch.zeros(4, 4).t()[:, :2]
    strided += rank
    dist.all_reduce(strided)
    require(strided.unique().tolist() == [float(sum(range(n)))], "a strided tensor")
    work = dist.all_reduce(torch.ones(8), async_op=True)
    require(work.get_future().wait()[0].tolist() == [n] * 8, "a future")
    subgroup = dist.new_group([0, 1])
    if rank < 2:
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=subgroup)
        require(tensor.item() == 2, "a subgroup")
    if rank == 0:
        dist.send(torch.ones(3), 1)
    if rank == 1:
        tensor = torch.zeros(3)
        dist.recv(tensor, 0)
        require(tensor.tolist() == [1, 1, 1], "send and recv")


def messages_to_the_next(rank, n):
    size = 100_000  # more than a window takes unasked
    received = torch.zeros(size)
    messages = [
        dist.P2POp(dist.isend, torch.full((size,), float(rank)), (rank + 1) % n),
        dist.P2POp(dist.irecv, received, (rank - 1) % n),
    ]
    for request in dist.batch_isend_irecv(messages):
        request.wait()
    require(received.unique().tolist() == [(rank - 1) % n], "batch_isend_irecv")
    received.zero_()
    for request in [  # one after another: all send before they receive
        dist.isend(torch.full((size,), float(rank)), (rank + 1) % n),
        dist.irecv(received, (rank - 1) % n),
    ]:
        request.wait()
    require(received.unique().tolist() == [(rank - 1) % n], "isend and irecv")


def use_in_place(rank, n):
    """CPU tensors are used where they are, whatever is under way on them."""
    size = 1 << 20
    device = dist.get_rank()

    def broadcast(tensor, **options):
        return dist.broadcast(tensor, 0, **options)

    tutti.reset_peak_memory_stats(device)
    before = tutti.memory_allocated(device)
    tensor = torch.full((size,), float(rank))
    broadcast(tensor)
    require(tensor.unique().tolist() == [0], "a large broadcast")
    if n == 2 and rank == 1:  # of more ranks, each hands a part on
        taken = tutti.max_memory_allocated(device) - before
        require(taken == 0, f"a copy of {taken} bytes is made")
    whole = torch.full((3 * size,), float(rank))
    parts = [whole[:size], whole[size // 2 : 2 * size], whole[size // 4 : size // 2], whole[:size], whole[1:]]
    for work in [broadcast(part, async_op=True) for part in parts]:
        work.wait()
    require(whole.unique().tolist() == [0], "broadcasts of parts that overlap")
    kept = [torch.full((size,), float(rank + i)) for i in range(8)]
    for tensor in kept:
        broadcast(tensor, async_op=True)  # which nobody waits for
        tensor.data = torch.empty(0)  # does not take the memory from under it
    dist.barrier()
    for _ in range(4):
        work = dist.all_reduce(whole, async_op=True)
        require(work.get_future().wait()[0] is whole, "a future")
    require(whole.unique().tolist() == [0], "sums in place")


def failing_batch(rank, n):
    """A call that fails in a batch ends it: its messages do not move, and later ones do."""
    try:
        with dist.distributed_c10d._coalescing_manager(device=torch.get_default_device(), async_ops=True):
            abandoned = dist.isend(torch.full((2,), 9.0), (rank + 1) % n)
            dist.isend(torch.eye(2).to_sparse(), (rank + 1) % n)
    except RuntimeError as error:
        failure = str(error)
    else:
        require(False, "the batch has not failed")
    dist.distributed_c10d._world.pg_coalesce_state.clear()  # where torch still looks for the rest of the batch
    try:
        abandoned.wait()
    except RuntimeError as error:
        require(str(error) == failure, "the failure of the batch")
    else:
        require(False, "a message of the failed batch has moved")
    messages_to_the_next(rank, n)


@in_group
def every_call(rank, n):
    for part in (use_in_place, collectives, forms, messages_to_the_next, failing_batch):
        part(rank, n)
    return True


def new_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))


def batches(ranks):
    torch.manual_seed(1)
    return list(zip(torch.randn(STEPS, ranks, BATCH, 16), torch.randn(STEPS, ranks, BATCH, 4), strict=True))


def loss_of(model, batch, rank):
    inputs, targets = batch
    return ((model(inputs[rank]) - targets[rank]) ** 2).mean()


def bits_of(parameters):
    return [parameter.detach().cpu().numpy().tobytes().hex() for parameter in parameters]


def train_in_one_process(ranks):
    """What data-parallel training computes: gradients and losses are averaged in ascending order of ranks."""
    torch.set_num_threads(1)
    model = new_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in batches(ranks):
        gradients, total = None, None
        for rank in range(ranks):
            optimizer.zero_grad()
            loss = loss_of(model, batch, rank)
            loss.backward()
            mine = [parameter.grad / ranks for parameter in model.parameters()]
            gradients = mine if gradients is None else [a + b for a, b in zip(gradients, mine, strict=True)]
            total = loss.detach() if total is None else total + loss.detach()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()
        losses.append((total / ranks).item())
    return losses, bits_of(model.parameters())


def train_steps(model, rank, ranks):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for batch in batches(ranks):
        tutti.testing.step()
        optimizer.zero_grad()
        loss = loss_of(model, batch, rank)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses


def train_ddp(rank, ranks):
    model = nn.parallel.DistributedDataParallel(new_model())
    return train_steps(model, rank, ranks), bits_of(model.parameters())


def train_fsdp(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = new_model()
    fully_shard(model, mesh=init_device_mesh(torch.get_default_device().type, (ranks,)))
    losses = train_steps(model, rank, ranks)
    return losses, bits_of(parameter.full_tensor() for parameter in model.parameters())


def use_dtensor(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(torch.get_default_device().type, (ranks,))
    torch.manual_seed(2)
    whole = torch.randint(-8, 8, (4 * ranks, 4 * ranks)).float()  # whose products are exact
    rows, columns = distribute_tensor(whole, mesh, [Shard(0)]), distribute_tensor(whole, mesh, [Shard(1)])
    require(torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole), "redistribute")
    require(torch.equal((rows @ columns).full_tensor(), whole @ whole), "rows by columns")
    require(torch.equal((columns @ rows).full_tensor(), whole @ whole), "columns by rows: a partial sum")


@in_group
def train(rank, ranks):
    use_dtensor(rank, ranks)
    return train_ddp(rank, ranks), train_fsdp(rank, ranks)


def train_until_lost(rank, ranks):
    """Trains until a rank is lost, and then with the ranks that are left; returns the error and the final parameters."""
    os.environ.pop("LOCAL_RANK", None)  # then a new group's device would be the rank's number
    join_group(rank)
    model, error = nn.parallel.DistributedDataParallel(new_model()), "none"
    try:
        train_steps(model, rank, ranks)
        dist.barrier()  # GPUs may have been given work that comes to nothing
    except Exception as lost:
        error = str(lost)
    if error != "none":  # outside, as the exception keeps the model, and so its hooks on the parameters
        device = tutti.distributed._default_backend()._device
        tutti.distributed.shrink()
        require(tutti.distributed._default_backend()._device == device, "a rank keeps its device")
        require(dist.get_world_size() == ranks - 1, "the default group is that of the ranks that are left")
        model = nn.parallel.DistributedDataParallel(model.module)
        train_steps(model, dist.get_rank(), ranks - 1)
    dist.destroy_process_group()
    return error, bits_of(model.parameters())


class Comm(unittest.TestCase):
    def test_has_the_signatures_of_torch(self):
        for name in ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather"):
            ours = inspect.signature(getattr(tutti.comm, name))
            theirs = inspect.signature(getattr(torch.nn.parallel.comm, name))
            self.assertEqual(str(ours), str(theirs.replace(return_annotation=inspect.Signature.empty)), name)

    def test_takes_tensors_of_torch_and_gives_them_back(self):
        source = torch.arange(6.0).view(2, 3)
        parts = tutti.comm.scatter(source, [0, 1], dim=1)
        self.assertEqual([part.shape for part in parts], [(2, 2), (2, 1)])
        out = torch.zeros(2, 3)
        self.assertIs(tutti.comm.gather(parts, 1, out=out), out)
        self.assertTrue(torch.equal(out, source))
        with tutti.Communicator.local([0, 1]) as communicator:
            sums = communicator.all_reduce([source, source.clone().requires_grad_()])
            self.assertIsInstance(sums[1], torch.Tensor)
            self.assertTrue(torch.equal(sums[1], 2 * source))
            half = [source.to(torch.bfloat16)] * 2
            self.assertEqual(communicator.all_gather(half)[0].dtype, torch.bfloat16)

    def test_takes_every_form_of_a_tensor(self):
        plain = torch.arange(6.0).view(2, 3)
        for tensor in (
            plain.t(),
            plain[:, ::2],
            plain[1, 1],
            plain[:0],
            plain.clone().requires_grad_(),
            nn.Parameter(plain),
            plain.to(torch.complex64),
            plain.to(torch.bool),
            plain[:1].expand(3, 3),
        ):
            copy = tutti.tensor(tensor)
            self.assertEqual((copy.shape, copy.tolist()), (tuple(tensor.shape), tensor.tolist()))
            self.assertEqual(tutti.from_dlpack(tensor).data_ptr(), tensor.data_ptr())

    def test_refuses_values_that_are_not_in_memory(self):
        conjugated = torch.tensor([1 + 2j, 3 - 1j]).conj()
        negated = conjugated.imag
        for tensor, words in (
            (conjugated, "conjugated"),
            (negated, "negated"),
            (negated[0], "negated"),
            (negated[:1].view(1), "negated"),
        ):
            for call in (tutti.tensor, tutti.from_dlpack, lambda given: tutti.comm.broadcast(given, [0, 1])):
                with self.assertRaisesRegex(tutti.InvalidArgumentError, words):
                    call(tensor)
            resolved = tensor.resolve_conj().resolve_neg()
            self.assertEqual(tutti.tensor(resolved).tolist(), tensor.tolist())


class Stream:
    """A stand-in for a stream of torch, whose work is never done until the test says so."""

    device = 0
    is_done = False

    def record_event(self):
        return types.SimpleNamespace(query=lambda: self.is_done)

    def wait_event(self, event):
        pass


class CudaWork(unittest.TestCase):
    def test_shows_that_the_communicator_has_ended(self):
        with tutti.Communicator.local([0]) as communicator, unittest.mock.patch("torch.cuda.current_stream") as current:
            backend = types.SimpleNamespace(check=communicator.check)
            current.return_value = Stream()
            work = tutti.distributed._CudaWork(backend, Stream(), [])
            self.assertTrue(work.wait())
            self.assertEqual((work.is_completed(), work.is_success(), work.exception()), (False, True, None))
            communicator.abort("rank 1 is lost")
            with self.assertRaisesRegex(tutti.AbortedError, "rank 1 is lost"):
                work.wait()
            self.assertEqual((work.is_completed(), work.is_success()), (True, False))
            self.assertIsInstance(work.exception(), tutti.AbortedError)


class Backend(unittest.TestCase):
    def values(self, function, ranks=RANKS, **options):
        return [outcome.value for outcome in tutti.testing.run(function, ranks, **options)]

    def test_every_call(self):
        self.assertEqual(self.values(every_call, seed=1), [True] * RANKS)

    def test_training_has_the_bits_of_one_process(self):
        """By DDP and by FSDP2, whatever the order of work; with DTensor's products beside."""
        expected = train_in_one_process(RANKS)
        for seed in range(1, SEEDS + 1):
            self.assertEqual(self.values(train, seed=seed), [(expected, expected)] * RANKS, f"seed {seed}")

    def test_survivors_name_the_lost_rank_and_go_on(self):
        for seed in range(1, SEEDS + 1):
            outcomes = tutti.testing.run(train_until_lost, RANKS, kill={1: seed % STEPS}, seed=seed, check=False)
            survivors = [outcome for outcome in outcomes if outcome.rank != 1]
            for outcome in survivors:
                self.assertIsNone(outcome.error, outcome.traceback)
                self.assertIn("rank 1", outcome.value[0], f"seed {seed}")
                self.assertEqual(outcome.value[1], survivors[0].value[1], f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
