# SPDX-License-Identifier: Apache-2.0
"""`tutti.Communicator` of one process with two members: every operation, in every form."""

import contextlib
import socket
import types
import unittest
import unittest.mock
import weakref

import arrays
import tutti


def full(values, dtype="float32"):
    return [tutti.tensor(value, dtype=dtype, device=index) for index, value in enumerate(values)]


def lists(tensors):
    return [tensor.tolist() for tensor in tensors]


def launch_alone(calls):
    """Launches bound calls, which are ordered with a stream of device 0 only, with nothing under way before and behind."""
    tutti.synchronize(1)
    calls.launch()
    tutti.synchronize(0)


class Operations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.communicator = tutti.Communicator.local([0, 1], patience=30)

    @classmethod
    def tearDownClass(cls):
        cls.communicator.close()

    def test_describes_itself(self):
        c = self.communicator
        self.assertEqual((c.rank, c.rank_count, c.member_count, c.first_member), (0, 1, 2, 0))
        self.assertEqual(c.devices, [tutti.Device(0), tutti.Device(1)])
        self.assertIn("p2p", c.explain())
        self.assertIn("transport: p2p", c.explain("all_reduce", bytes=1 << 20, dtype="float16", op="avg"))
        self.assertIn("schema", c.flight_record())

    def test_all_reduce(self):
        inputs = full([[1, 2], [3, 5]])
        self.assertEqual(lists(self.communicator.all_reduce(inputs)), [[4, 7]] * 2)
        self.assertEqual(self.communicator.last_plan().transport, "p2p")
        self.assertEqual(lists(self.communicator.all_reduce(inputs, op=tutti.ReduceOp.max)), [[3, 5]] * 2)
        self.assertEqual(
            lists(self.communicator.all_reduce(inputs, op=tutti.ReduceOp.premul_sum([1, 2]))), [[7, 12]] * 2
        )
        self.assertIs(self.communicator.all_reduce(inputs, out=inputs, op="avg"), inputs)
        self.assertEqual(lists(inputs), [[2, 3.5]] * 2)
        rows = self.communicator.all_reduce_coalesced([[full([[1]])[0]], [full([[0], [2]])[1]]])
        self.assertEqual([lists(row) for row in rows], [[[3]], [[3]]])

    def test_rooted(self):
        c = self.communicator
        self.assertEqual(lists(c.broadcast(full([[1, 2]])[0], 0)), [[1, 2]] * 2)
        tensors = full([[1], [2]])
        c.broadcast_(tensors, 1)
        self.assertEqual(lists(tensors), [[2], [2]])
        self.assertEqual(c.reduce(full([[1], [2]]), 1).tolist(), [3])
        out = full([[0], [0]])
        c.reduce(full([[1], [2]]), 1, out=out)
        self.assertEqual(out[1].tolist(), [3])
        self.assertEqual(c.gather(full([[1], [2]]), 0).tolist(), [1, 2])
        self.assertEqual(lists(c.scatter(full([[1, 2]])[0], 0)), [[1], [2]])
        self.assertEqual(lists(c.broadcast_coalesced([full([[1]])[0]], 0)[1]), [[1]])

    def test_parts(self):
        c = self.communicator
        self.assertEqual(lists(c.all_gather(full([[1], [2]]))), [[1, 2]] * 2)
        self.assertEqual(lists(c.all_gather(full([[1], [2, 3]]), sizes=[1, 2])), [[1, 2, 3]] * 2)
        self.assertEqual(lists(c.all_gather(full([[[1]], [[2, 3]]]), sizes=[1, 2], dim=1)), [[[1, 2, 3]]] * 2)
        self.assertEqual(lists(c.reduce_scatter(full([[1, 2], [3, 4]]))), [[4], [6]])
        self.assertEqual(lists(c.reduce_scatter(full([[1, 2, 3]] * 2), sizes=[1, 2])), [[2], [4, 6]])
        self.assertEqual(lists(c.all_to_all(full([[1, 2], [3, 4]]))), [[1, 3], [2, 4]])
        sizes = {"input_sizes": [[0, 1], [2, 0]], "out_sizes": [[0, 2], [1, 0]]}
        self.assertEqual(lists(c.all_to_all(full([[1], [2, 3]]), **sizes)), [[2, 3], [1]])

    def test_messages(self):
        source, target = full([[7], [0]])
        self.communicator.batch_send_recv([("send", source, 1), ("recv", target, 0)])
        self.assertEqual(target.tolist(), [7])
        with self.assertRaises(tutti.InvalidArgumentError):
            self.communicator.batch_send_recv([("throw", source, 1)])

    def test_host_memory_is_copied_there_and_back(self):
        arrays_ = [arrays.Array([1.0, 2.0]), arrays.Array([3.0, 4.0])]
        results = self.communicator.all_reduce(arrays_)
        self.assertIsInstance(results[0], arrays.Array)
        self.assertEqual(lists(results), [[4, 6]] * 2)
        self.communicator.all_reduce(arrays_, out=arrays_)
        self.assertEqual(lists(arrays_), [[4, 6]] * 2)
        with tutti.Work() as work:
            self.communicator.all_reduce(arrays_, out=arrays_)
        work.wait()
        self.assertTrue(work.is_done())
        self.assertEqual(lists(arrays_), [[8, 12]] * 2)

    def test_arrays_of_jax_are_not_written_to(self):
        jaxlib = types.ModuleType("jaxlib")
        jax = types.SimpleNamespace(dlpack=types.SimpleNamespace(from_dlpack=arrays.from_dlpack))
        immutable = type("ArrayImpl", (arrays.Array,), {"__module__": "jaxlib._jax"})
        inputs = [immutable([1.0, 2.0]), immutable([3.0, 4.0])]
        with unittest.mock.patch.dict("sys.modules", {"jaxlib": jaxlib, "jax": jax}):
            sums = self.communicator.all_reduce(inputs)
            self.assertIsInstance(sums[0], arrays.Array)
            self.assertEqual(lists(sums), [[4, 6]] * 2)
            with self.assertRaises(tutti.InvalidArgumentError):
                self.communicator.all_reduce(inputs, out=inputs)
        self.assertEqual(lists(inputs), [[1, 2], [3, 4]])

    def test_arrays_of_libraries_without_streams_live_until_calls_are_over(self):
        target = tutti.zeros([4], device=0)
        for call in (
            self.communicator.all_reduce,
            lambda given: self.communicator.broadcast(given[0], 0),
            tutti.comm.reduce_add,
            lambda given: target.copy_(given[0], non_blocking=True),
        ):
            given = [arrays.Array(tutti.ones([4], device=index)) for index in (0, 1)]
            alive = weakref.ref(given[0])
            for index in (0, 1):
                tutti.synchronize(index)
            tutti.virtual_devices.inject("kernel", "delay", device=0, delay_microseconds=100_000)
            tutti.ones([4], device=0)  # takes so long, and what follows waits for it
            call(given)
            del given
            self.assertIsNotNone(alive())
            for index in (0, 1):
                tutti.synchronize(index)
            self.assertIsNone(alive())
            tutti.virtual_devices.clear_faults()

    def test_streams(self):
        streams = [tutti.Stream(0), tutti.Stream(1)]
        inputs = full([[1], [2]])
        for stream in streams:
            stream.wait_stream(tutti.current_stream(stream.device))
        self.communicator.all_reduce(inputs, out=inputs, streams=streams)
        for stream in streams:
            tutti.current_stream(stream.device).wait_stream(stream)
        self.assertEqual(lists(inputs), [[3], [3]])
        with self.assertRaises(tutti.InvalidArgumentError):
            self.communicator.all_reduce(inputs, streams=streams[:1])

    def test_host_memory_on_streams(self):
        host = [arrays.Array([float(2**index)] * 1000) for index in (0, 1)]
        with tutti.Work() as work:
            self.communicator.all_reduce(host, out=host, streams=[tutti.Stream(0), tutti.Stream(1)])
        work.wait()
        self.assertEqual(lists(host), [[3] * 1000] * 2)

    def test_a_work_uses_host_memory_in_place(self):
        single, work = tutti.Communicator.local([0]), tutti.Work()
        host = arrays.Array([1.0] * 100_000)
        tutti.synchronize(0)
        tutti.reset_peak_memory_stats(0)
        before = tutti.memory_allocated(0)
        for _ in range(4):
            out = arrays.Array([0.0] * 100_000)
            with work:
                for _ in range(4):
                    single.all_reduce(host, out=out)
                    work.wait()  # for what was called before
            work.wait()
            self.assertEqual(out.tolist(), [1.0] * 100_000)
            with tutti.Work():
                single.all_reduce(host, out=arrays.Array([0.0] * 100_000))  # which nobody waits for
        self.assertEqual(tutti.max_memory_allocated(0), before)

    def test_operands_in_host_memory_may_overlap(self):
        single = tutti.Communicator.local([0])
        for scope in (contextlib.nullcontext, tutti.Work):
            whole = arrays.Array([float(i) for i in range(8)])
            source, target = (arrays.Array(whole.tensor.narrow(0, start, 4)) for start in (0, 2))
            with scope() as work:
                single.broadcast(source, 0, out=target)
            if work is not None:
                work.wait()
            self.assertEqual(whole.tolist(), [0, 1, 0, 1, 2, 3, 6, 7])

    def test_host_memory_on_streams_that_are_captured(self):
        single = tutti.Communicator.local([0])
        host, out = arrays.Array([1.0]), arrays.Array([0.0])

        def capture():
            with tutti.Work():
                single.all_reduce(host, out=out)

        graph = single.persistent(capture)
        for value in (2.0, 3.0):
            host.tensor.copy_(tutti.tensor([value]))
            graph.launch()
            tutti.synchronize(0)
            self.assertEqual(out.tolist(), [value])

    def test_another_stream_that_is_captured_is_refused_for_host_memory(self):
        single, host = tutti.Communicator.local([0]), arrays.Array([1.0])
        stream, graph = tutti.Stream(0), tutti.CUDAGraph()
        with tutti.stream(stream):
            graph.capture_begin()
        with tutti.Work(), self.assertRaisesRegex(tutti.InvalidArgumentError, r"streams\[0\] is being captured"):
            single.all_reduce(host, out=host, streams=[stream])
        with tutti.stream(stream):
            graph.capture_end()
        self.assertEqual(single.all_reduce(host).tolist(), [1])

    def test_streams_leave_the_current_device(self):
        tensors = full([[1], [2]])
        for index in (0, 1):
            tutti.synchronize(index)
        with tutti.device(1):
            self.communicator.all_reduce(tensors, out=tensors, streams=[tutti.Stream(0), tutti.Stream(1)])
            self.assertEqual(tutti.current_device(), 1)
        for index in (0, 1):
            tutti.synchronize(index)
        self.assertEqual(lists(tensors), [[3]] * 2)

    def test_persistent_calls(self):
        tensors = full([[1], [2]])
        calls = self.communicator.persistent(lambda: self.communicator.all_reduce(tensors, out=tensors))
        calls.launch()
        calls.launch()
        self.assertEqual(tensors[0].tolist(), [6])
        self.assertEqual(calls.summary().transport, "p2p")

    def test_bound_calls_go_on_with_a_new_communicator(self):
        tensors = full([[1], [2]])
        with tutti.Communicator.local([0, 1]) as first:
            current = [first]
            calls = first.persistent(lambda: current[0].all_reduce(tensors, out=tensors))
            launch_alone(calls)
            self.assertEqual(lists(tensors), [[3], [3]])
            current[0] = first.shrink()
        with self.assertRaises(tutti.Error):
            calls.launch()
        calls.rebind(current[0])
        launch_alone(calls)
        self.assertEqual(lists(tensors), [[6], [6]])
        current[0].close()
        with self.assertRaises(tutti.InvalidArgumentError):
            calls.launch()

    def test_goes_on_as_before_if_nobody_joins(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        point = tutti.MeetingPoint(port, job="nobody's")
        self.assertEqual((point.port, point.address, point.job), (port, "127.0.0.1", "nobody's"))
        with tutti.Communicator.local([0, 1]) as communicator:
            for call in (communicator.grow, tutti.Communicator.join):
                with self.assertRaisesRegex(tutti.TimeoutError, f"127.0.0.1:{port}"):
                    call(point, timeout=0.05)
            self.assertEqual(lists(communicator.all_reduce(full([[1], [2]]))), [[3], [3]])
            for call, words in (
                (lambda: communicator.grow(tutti.MeetingPoint(0)), "port"),
                (lambda: communicator.grow(point, most=17), "17"),
                (lambda: communicator.grow(point, 2, fewest=3), "3"),
                (lambda: communicator.replace(point, late="never"), "never"),
                (lambda: communicator.shrink([0]), "leaving"),
                (lambda: communicator.shrink(timeout=0), "timeout"),
                (lambda: tutti.Communicator.join(tutti.MeetingPoint(port, secret="short")), "secret"),
                (lambda: tutti.Communicator.join(point, colour="red"), "colour"),
            ):
                with self.assertRaisesRegex(tutti.InvalidArgumentError, words):
                    call()
            self.assertTrue(communicator.is_running())

    def test_symmetric_memory(self):
        c = self.communicator
        with c.symmetric([2, 3], "int32") as memory:
            self.assertEqual(
                [(t.shape, t.dtype, t.device) for t in memory.tensors][1], ((2, 3), tutti.int32, tutti.Device(1))
            )
            for index, tensor in enumerate(memory.tensors):
                tensor.fill_(index + 1)
                self.assertEqual(memory.peer_data(index, index), tensor.data_ptr())
            self.assertNotEqual(memory.peer_data(0, 1), memory.peer_data(1, 1))
            c.all_reduce(memory.tensors, out=memory.tensors)
            self.assertEqual(memory.tensor(1).tolist(), [[3] * 3] * 2)
            memory.record_stream(tutti.Stream(0))
            with self.assertRaises(tutti.Error) as raised:
                memory.view()  # is for kernels on GPUs
            self.assertEqual(raised.exception.code, "unsupported")
            with self.assertRaises(tutti.InvalidArgumentError):
                memory.peer_data(2)
        self.assertFalse(memory)
        memory.release()
        with self.assertRaises(tutti.InvalidArgumentError):
            memory.tensor()
        with self.assertRaises(tutti.InvalidArgumentError):
            c.symmetric([0])

    def test_symmetric_memory_outlives_its_communicator_as_tensors(self):
        with tutti.Communicator.local([0, 1]) as c:
            memory = c.symmetric([4])
            kept = memory.tensor()
        memory.release()
        kept.fill_(7)
        self.assertEqual(kept.tolist(), [7] * 4)

    def test_bad_arguments(self):
        c = self.communicator
        for call, words in (
            (lambda: c.all_reduce(full([[1]])), "2"),
            (lambda: c.all_reduce(full([[1], [2]]), op="median"), "median"),
            (lambda: c.reduce(full([[1], [2]]), 5), "5"),
            (lambda: c.all_to_all(full([[1], [2]]), input_sizes=[[1, 0]] * 2), "out_sizes"),
            (lambda: tutti.Communicator.local([0], colour="red"), "colour"),
        ):
            with self.assertRaises(tutti.InvalidArgumentError) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        c.check()

    def test_a_closed_communicator_makes_no_calls(self):
        with tutti.Communicator.local([1]) as communicator:
            part = communicator.split(0)
            self.assertEqual(part.member_count, 1)
            self.assertIsNone(communicator.split(None))
        with self.assertRaises(tutti.InvalidArgumentError):
            communicator.barrier()
        self.assertFalse(communicator.is_running())
        communicator.abort("nothing is left to end")
        communicator.close()

    def test_abort(self):
        with tutti.Communicator.local([0]) as communicator:
            communicator.abort("enough")
            self.assertFalse(communicator.is_running())
            with self.assertRaises(tutti.AbortedError) as raised:
                communicator.barrier()
            self.assertIn("enough", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
