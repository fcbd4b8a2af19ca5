# SPDX-License-Identifier: Apache-2.0
"""The package on GPUs: tutti.comm beside torch.cuda.comm, and the backend of torch.distributed on CUDA tensors."""

import os
import unittest

import test_torch
import torch
import torch.cuda.comm
import torch.distributed as dist
import tutti
import tutti.testing
from test_torch import require

RANKS = int(os.environ.get("TUTTI_TEST_RANKS", 2))
SOME_TIME = 20_000_000  # clock cycles, some 10 ms


def calls_follow_streams(rank, n):
    """A call reads what its stream has written, and `wait` lets the current stream read what the call writes."""
    side = torch.cuda.Stream()
    for is_async in (False, True):
        tensor = torch.zeros(1 << 20)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(SOME_TIME)
            tensor.fill_(rank + 1)
            work = dist.all_reduce(tensor, async_op=is_async)
            if is_async:
                work.wait()
            doubled = tensor * 2
        side.synchronize()
        require(doubled.unique().tolist() == [n * (n + 1)], f"a call on a side stream, async: {is_async}")
    torch.cuda._sleep(SOME_TIME)
    work = dist.broadcast(torch.full((1 << 20,), float(rank)), n - 1, async_op=True)
    require(work.get_future().wait()[0].unique().tolist() == [n - 1], "a future")


def replays_are_right(rank, n):
    tensor, total = torch.zeros(1000), torch.zeros(1000)
    dist.all_reduce(tensor)  # whose first call may take memory
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tensor.add_(rank)
        total.copy_(tensor)
        dist.all_reduce(total)
    for replay in range(1, 6):
        graph.replay()
        require(total.unique().tolist() == [replay * sum(range(n))], f"replay {replay}")


@test_torch.in_group
def every_call(rank, n):
    for part in (
        test_torch.collectives,
        test_torch.forms,
        test_torch.messages_to_the_next,
        test_torch.failing_batch,
        calls_follow_streams,
        replays_are_right,
    ):
        part(rank, n)
    return True


def train_alone(_, __, ranks):
    torch.set_default_device("cuda:0")
    return test_torch.train_in_one_process(ranks)


class Backend(unittest.TestCase):
    def run_ranks(self, function, ranks, *arguments, **options):
        return tutti.testing.run(function, ranks, *arguments, backend="cuda", patience=60, timeout=300, **options)

    def values(self, function, ranks, *arguments):
        return [outcome.value for outcome in self.run_ranks(function, ranks, *arguments)]

    def test_every_call(self):
        self.assertEqual(self.values(every_call, RANKS), [True] * RANKS)

    def test_training_has_the_bits_of_one_process(self):
        (expected,) = self.values(train_alone, 1, RANKS)
        self.assertEqual(self.values(test_torch.train, RANKS), [(expected, expected)] * RANKS)

    def test_survivors_name_the_lost_rank_and_go_on(self):
        for step in range(test_torch.STEPS):
            outcomes = self.run_ranks(test_torch.train_until_lost, 3, kill={1: step}, check=False)
            survivors = [outcomes[0], outcomes[2]]
            for outcome in survivors:
                self.assertIsNone(outcome.error, outcome.traceback)
                self.assertIn("rank 1", outcome.value[0], f"step {step}")
                self.assertEqual(outcome.value[1], survivors[0].value[1], f"step {step}")


class Capture(unittest.TestCase):
    def test_host_memory_is_refused(self):
        host = torch.ones(4)
        with tutti.Communicator.local([0]) as communicator:
            with self.assertRaisesRegex(tutti.Error, "is in host memory, and the current stream of device 0"):
                communicator.persistent(lambda: communicator.all_reduce(host, out=host))
            self.assertEqual(communicator.all_reduce(host).tolist(), [1] * 4)


class Comm(unittest.TestCase):
    def setUp(self):
        self.devices = list(range(torch.cuda.device_count()))

    def check(self, name, *arguments):
        """Compares a function's results with those of torch, on streams whose inputs come late."""
        expected = getattr(torch.cuda.comm, name)(*arguments)
        tensors = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
        values = [tensor.clone() for tensor in tensors]
        torch.cuda.synchronize()
        for tensor, value in zip(tensors, values, strict=True):
            with torch.cuda.device(tensor.device):
                tensor.zero_()
                torch.cuda._sleep(SOME_TIME)
                tensor.copy_(value)
        self.assert_same(getattr(tutti.comm, name)(*arguments), expected, name)

    def assert_same(self, found, expected, name):
        if isinstance(expected, torch.Tensor):
            self.assertIsInstance(found, torch.Tensor, name)
            self.assertEqual((found.device, found.dtype), (expected.device, expected.dtype), name)
            self.assertTrue(torch.equal(found, expected), name)
        else:
            self.assertEqual(len(found), len(expected), name)
            for ours, theirs in zip(found, expected, strict=True):
                self.assert_same(ours, theirs, name)

    def test_results_are_those_of_torch(self):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            for count in (1, 1000, 3 << 20):
                whole = torch.randint(-8, 8, (count, 2), device="cuda:0").to(dtype)
                replicas = [whole.to(device) for device in self.devices]
                self.check("broadcast", whole, self.devices)
                self.check("reduce_add", replicas, 0)
                self.check("gather", replicas, 0, 0)
                self.check("gather", replicas, 1, "cpu")
                if count >= len(self.devices):
                    self.check("scatter", whole, self.devices)

    def test_lists_are_those_of_torch(self):
        tensors = [torch.randint(-8, 8, (size,), dtype=torch.float32, device="cuda:0") for size in (1, 100, 1 << 20)]
        self.assert_same(
            tutti.comm.broadcast_coalesced(tensors, self.devices),
            torch.cuda.comm.broadcast_coalesced(tensors, self.devices),
            "broadcast_coalesced",
        )
        rows = [[tensor.to(device) for tensor in tensors] for device in self.devices]
        self.assert_same(
            tutti.comm.reduce_add_coalesced(rows, 0),
            torch.cuda.comm.reduce_add_coalesced(rows, 0),
            "reduce_add_coalesced",
        )


if __name__ == "__main__":
    unittest.main()
