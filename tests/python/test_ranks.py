# SPDX-License-Identifier: Apache-2.0
"""Ranks in processes of their own: results, lost ranks, interrupted waits."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import unittest

import tutti
import tutti.testing


def sums(rank, ranks):
    with tutti.testing.communicator() as communicator:
        tensor = tutti.full([1000], rank + 1, device=communicator.devices[0])
        total = communicator.all_reduce(tensor)
        gathered = communicator.all_gather(tutti.tensor([float(rank)]))
        first = communicator.broadcast(tutti.tensor([5.0]) if rank == 0 else None, 0)
        nxt, previous = (rank + 1) % ranks, (rank - 1) % ranks
        passed = communicator.sendrecv(tensor, nxt, previous)
        part = communicator.split(rank % 2)
        return total.tolist()[0], gathered.tolist(), first.tolist(), passed.tolist()[0], part.rank_count


def train(rank, ranks):
    communicator = tutti.testing.communicator()
    tensor = tutti.ones([100], device=communicator.devices[0])
    for _ in range(5):
        tutti.testing.step()
        communicator.all_reduce(tensor, out=tensor)
        tensor.tolist()


def train_on(rank, ranks):
    """Goes on with the ranks that are left when one is lost."""
    communicator = tutti.testing.communicator()
    tensor = tutti.ones([100], device=communicator.devices[0])
    sums = []
    while len(sums) < 4:
        tutti.testing.step()
        try:
            sums.append(communicator.all_reduce(tensor).tolist()[0])
        except tutti.PeerUnavailableError:
            communicator = communicator.shrink()
    return sums, communicator.rank, communicator.rank_count


def value_of_no_module(rank, ranks):
    return (lambda: 1) if rank == 1 else "a value"


def exit_early(rank, ranks):
    if rank == 1:
        os._exit(3)


def signal_soon(number, seconds=0.2):
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def interrupt_soon():
    signal_soon(signal.SIGINT)


def wait_for_the_end(communicator):
    while communicator.is_running():
        time.sleep(0.01)
    with contextlib.suppress(tutti.AbortedError):
        communicator.check()
        return "not aborted"
    return "aborted"


def interrupted_wait(rank, ranks):
    """Ctrl-C ends a wait of the host for the device, and nothing else."""
    communicator = tutti.testing.communicator()
    if rank == 1:
        return wait_for_the_end(communicator)
    communicator.recv(tutti.zeros([8], device=communicator.devices[0]), 1)  # which nobody sends
    try:
        interrupt_soon()
        tutti.synchronize()
    except KeyboardInterrupt:
        running = communicator.is_running()
        communicator.abort("the test is over")
        return running
    return "not interrupted"


def interrupted_call(rank, ranks):
    """Ctrl-C ends a call that waits for other ranks, and with it the communicator."""
    communicator = tutti.testing.communicator()
    communicator.barrier()
    if rank == 1:
        return wait_for_the_end(communicator)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a program may do at any time
    try:
        interrupt_soon()
        communicator.split(0)  # which the other rank does not call
    except KeyboardInterrupt:
        return communicator.is_running()
    return "not interrupted"


class Ranks(unittest.TestCase):
    def test_results(self):
        outcomes = tutti.testing.run(sums, 2, seed=5)
        self.assertEqual([o.value for o in outcomes], [(3, [0, 1], [5], 2, 1), (3, [0, 1], [5], 1, 1)])

    def test_survivors_name_the_lost_rank(self):
        outcomes = tutti.testing.run(train, 3, kill={1: 2}, patience=20)
        self.assertEqual(outcomes[1].signal, signal.SIGKILL)
        for rank in (0, 2):
            self.assertIsInstance(outcomes[rank].error, tutti.PeerUnavailableError)
            self.assertIn("rank 1", str(outcomes[rank].error))

    def test_survivors_go_on(self):
        outcomes = tutti.testing.run(train_on, 3, kill={1: 2}, patience=20)
        self.assertEqual([outcomes[rank].value for rank in (0, 2)], [([3, 3, 2, 2], 0, 2), ([3, 3, 2, 2], 1, 2)])

    def test_a_stopped_rank_is_named_when_patience_is_over(self):
        outcomes = tutti.testing.run(train, 2, stop={0: 1}, patience=1.5)
        self.assertTrue(outcomes[0].is_lost)
        self.assertIsInstance(outcomes[1].error, tutti.TimeoutError)
        self.assertIn("rank 0", str(outcomes[1].error))

    def test_ctrl_c_ends_waits(self):
        outcomes = tutti.testing.run(interrupted_wait, 2)
        self.assertEqual([outcome.value for outcome in outcomes], [True, "aborted"])
        outcomes = tutti.testing.run(interrupted_call, 2)
        self.assertEqual([outcome.value for outcome in outcomes], [False, "aborted"])

    def test_failures_of_ranks_are_raised(self):
        with self.assertRaises(tutti.testing.RankFailed) as raised:
            tutti.testing.run(train, 2, 1, 2)  # too many arguments
        self.assertIn("TypeError", str(raised.exception))

    def test_a_value_that_cannot_be_pickled_is_named(self):
        first, second = tutti.testing.run(value_of_no_module, 2, check=False)
        self.assertEqual((first.value, first.error), ("a value", None))
        self.assertIsInstance(second.error, TypeError)
        self.assertRegex(str(second.error), "rank 1 returned a value of type function .* pickled")
        self.assertFalse(second.is_lost)

    def test_a_rank_that_exits_says_its_status(self):
        _, second = tutti.testing.run(exit_early, 2, check=False)
        self.assertIn("exited with status 3", str(second.error))

    def test_arguments_that_cannot_be_pickled_leave_no_process(self):
        with self.assertRaisesRegex((AttributeError, pickle.PicklingError), "lambda"):
            tutti.testing.run(train, 2, lambda: 1)
        self.assertEqual(multiprocessing.active_children(), [])


if __name__ == "__main__":
    unittest.main()
