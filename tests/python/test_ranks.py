# SPDX-License-Identifier: Apache-2.0
"""Ranks in processes of their own: results, lost ranks, interrupted waits."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
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


def sum_of_ones(communicator):
    return communicator.all_reduce(tutti.ones([1000], device=communicator.devices[0])).tolist()[0]


def described(communicator):
    return sum_of_ones(communicator), communicator.rank, communicator.rank_count


def grow_twice(rank, ranks, port):
    """Begins with two ranks; the others join one after another."""
    point = tutti.MeetingPoint(port, secret="0123456789abcdef", job="growing")
    if rank < 2:
        communicator = tutti.testing.communicator(ranks=2)
        tensor = tutti.ones([1000], device=communicator.devices[0])
        communicator.all_reduce(tensor, out=tensor)
    else:
        communicator = tutti.Communicator.join(point, devices=[rank])
    while communicator.rank_count < ranks:
        before, communicator = communicator, communicator.grow(point)
        if before.is_running():
            raise AssertionError("the communicator before has ended")
    if rank < 2 and tensor.tolist() != [2] * 1000:
        raise AssertionError("tensors stay")
    return described(communicator)


def grow_by_those_who_wait(rank, ranks, port):
    """Rank 0 counts who waits, and all let these in at once, up to a limit."""
    point = tutti.MeetingPoint(port)
    if rank >= 2:
        return described(tutti.Communicator.join(point, devices=[rank]))
    communicator = tutti.testing.communicator(ranks=2)
    with tutti.OpenMeetingPoint(point) if rank == 0 else contextlib.nullcontext() as held:
        while rank == 0 and held.waiting_count < ranks - 2:
            time.sleep(0.01)
        mine = tutti.tensor([held.waiting_count if rank == 0 else 0], device=communicator.devices[0])
        waiting = communicator.all_reduce(mine).tolist()[0]
        communicator = communicator.grow(point, most=waiting, new_rank_timeout=30)
    return described(communicator)


def train_with_a_spare(rank, ranks, port):
    """Goes on with as many ranks when one is lost: the last process takes its number."""
    point = tutti.MeetingPoint(port)
    if rank == ranks - 1:
        return [], *described(tutti.Communicator.join(point, devices=[rank]))
    communicator = tutti.testing.communicator(ranks=ranks - 1)
    sums = []
    try:
        while True:
            tutti.testing.step()
            sums.append(sum_of_ones(communicator))
    except tutti.PeerUnavailableError:
        communicator = communicator.replace(point)
    return sums, *described(communicator)


def leave(rank, ranks):
    """Goes on without a rank that nothing is wrong with."""
    communicator = tutti.testing.communicator()
    rest = communicator.shrink(leaving=[0])
    return rest and described(rest)


def interrupted_join(rank, ranks, port):
    """Ctrl-C ends the wait of a process that nobody lets in."""
    begin = time.monotonic()
    try:
        interrupt_soon()
        tutti.Communicator.join(tutti.MeetingPoint(port), timeout=30)
    except KeyboardInterrupt:
        return time.monotonic() - begin < 20
    return "not interrupted"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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

    def test_ranks_go_on_without_one_that_leaves(self):
        outcomes = tutti.testing.run(leave, 3)
        self.assertEqual([outcome.value for outcome in outcomes], [None, (2, 0, 2), (2, 1, 2)])

    def test_new_ranks_join(self):
        outcomes = tutti.testing.run(grow_twice, 4, free_port())
        self.assertEqual([outcome.value[::2] for outcome in outcomes], [(4, 4)] * 4)
        numbers = [outcome.value[1] for outcome in outcomes]
        self.assertEqual((numbers[:2], sorted(numbers[2:])), ([0, 1], [2, 3]))

    def test_those_who_wait_at_an_open_meeting_point_join(self):
        outcomes = tutti.testing.run(grow_by_those_who_wait, 4, free_port())
        self.assertEqual([outcome.value[::2] for outcome in outcomes], [(4, 4)] * 4)

    def test_a_spare_takes_the_number_of_a_lost_rank(self):
        outcomes = tutti.testing.run(train_with_a_spare, 4, free_port(), kill={1: 2}, patience=20)
        self.assertEqual(outcomes[1].signal, signal.SIGKILL)
        expected = [([3, 3], 3, 0, 3), ([3, 3], 3, 2, 3), ([], 3, 1, 3)]
        self.assertEqual([outcomes[rank].value for rank in (0, 2, 3)], expected)

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
        outcomes = tutti.testing.run(interrupted_join, 1, free_port())
        self.assertEqual(outcomes[0].value, True)

    def test_failures_of_ranks_are_raised(self):
        with self.assertRaises(tutti.testing.RankFailed) as raised:
            tutti.testing.run(train, 2, 1, 2)  # too many arguments
        self.assertIn("TypeError", str(raised.exception))

    def test_options_of_virtual_devices_are_refused_on_gpus(self):
        for options, words in (
            ({"backend": "cuda", "seed": 1}, "seed is 1"),
            ({"backend": "cuda", "slow": {0: 5}}, "slow is {0: 5}"),
            ({"backend": "gpu"}, "backend is 'gpu', expected 'host' or 'cuda'"),
        ):
            with self.assertRaisesRegex(tutti.InvalidArgumentError, words):
                tutti.testing.run(train, 2, **options)

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
