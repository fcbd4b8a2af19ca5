# SPDX-License-Identifier: Apache-2.0
"""Tensors, devices, streams, events, memory, random numbers and graphs under the documented names."""

import sys
import threading
import types
import unittest
import unittest.mock

import arrays
import tutti


class Tensors(unittest.TestCase):
    def test_values_go_in_and_out(self):
        tensor = tutti.tensor([[1.0, 2.0], [3.0, 4.0]], device=1)
        self.assertEqual((tensor.shape, tensor.dtype, tensor.device), ((2, 2), tutti.float32, tutti.Device(1)))
        self.assertEqual(tensor.tolist(), [[1, 2], [3, 4]])
        self.assertEqual(tensor.transpose(0, 1).tolist(), [[1, 3], [2, 4]])
        self.assertEqual(tensor.narrow(1, 1, 1).tolist(), [[2], [4]])
        self.assertEqual(tensor.view([-1]).shape, (4,))
        self.assertEqual(tutti.tensor(7, device=0).item(), 7)

    def test_element_types(self):
        for dtype, values in (
            ("int64", [1, -2]),
            ("uint8", [1, 255]),
            ("bool", [True, False]),
            ("float64", [0.5, -1.0]),
            ("bfloat16", [1.0, 2.0]),
            ("complex64", [1 + 0j, 2 + 0j]),
        ):
            tensor = tutti.tensor([v.real if isinstance(v, complex) else v for v in values], dtype=dtype, device=0)
            self.assertEqual(tensor.tolist(), values, dtype)

    def test_bad_values_are_refused(self):
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.tensor([[1, 2], [3]])
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.zeros([2], dtype="float31")
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.zeros([2], device="tpu:0")
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.tensor([1, 2]).item()

    def test_memory_is_shared_with_other_libraries(self):
        array = arrays.Array([1.0, 2.0])
        shared = tutti.from_dlpack(array)
        shared.fill_(5)
        self.assertEqual(array.tolist(), [5, 5])
        self.assertEqual(shared.data_ptr(), array.tensor.data_ptr())
        copy = tutti.tensor(array, device=0)
        shared.fill_(6)
        self.assertEqual(copy.tolist(), [5, 5])

    def test_memory_is_taken_by_the_exchange_table_of_a_type(self):
        kind = arrays.TabledArray
        array, out = kind([1.0, 2.0]), kind([0.0, 0.0])
        exported, deleted = kind.exported, kind.deleted
        self.assertEqual([part.tolist() for part in tutti.comm.broadcast(array, [0, 1])], [[1, 2]] * 2)
        self.assertIs(tutti.comm.gather([tutti.ones([2], device=0)], out=out), out)
        self.assertEqual(out.tolist(), [1, 1])
        self.assertEqual((kind.exported - exported, kind.deleted - deleted), (2, 2))
        locked = kind([5.0], is_read_only=True)
        self.assertEqual(tutti.tensor(locked).tolist(), [5])
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "read-only"):
            tutti.comm.gather([tutti.ones([1], device=0)], out=locked)
        self.assertEqual(kind.exported - exported, kind.deleted - deleted)

    def test_an_exchange_table_of_another_version_is_not_used(self):
        class Newer(arrays.TabledArray):
            __dlpack_c_exchange_api__ = arrays.table(major=2)
            __dlpack__ = arrays.Array.__dlpack__

        exported = arrays.TabledArray.exported
        self.assertEqual(tutti.tensor(Newer([3.0])).tolist(), [3])
        self.assertEqual(arrays.TabledArray.exported, exported)

    def test_results_are_arrays_of_jax(self):
        """Its arrays come from a module that is not the one that makes them."""
        kind = type("ArrayImpl", (arrays.Array,), {"__module__": "jaxlib._jax"})
        jax = types.SimpleNamespace(dlpack=types.SimpleNamespace(from_dlpack=lambda a: kind(tutti.from_dlpack(a))))
        with unittest.mock.patch.dict(sys.modules, jax=jax), tutti.Communicator.local([0, 1]) as communicator:
            sums = communicator.all_reduce([kind([1.0]), kind([2.0])])
        self.assertEqual([(type(one), one.tolist()) for one in sums], [(kind, [3])] * 2)

    def test_results_that_a_library_does_not_take_are_tuttis(self):
        def refuse(array):
            raise BufferError("not on this device")

        with unittest.mock.patch.object(arrays, "from_dlpack", refuse), tutti.Communicator.local([0]) as communicator:
            total = communicator.all_reduce(type("Other", (arrays.Array,), {})([1.0]))
        self.assertEqual((type(total), total.tolist()), (tutti.Tensor, [1]))

    def test_virtual_memory_is_not_the_hosts(self):
        tensor = tutti.ones([2], device=0)
        self.assertEqual(tensor.__dlpack_device__(), (12, 0))  # an extension's: no other library may touch it
        self.assertEqual(tensor.cpu().__dlpack_device__(), (1, 0))


class Devices(unittest.TestCase):
    def test_names(self):
        self.assertTrue(tutti.is_available())
        self.assertGreaterEqual(tutti.device_count(), 2)
        self.assertEqual(tutti.Device("cuda:1"), tutti.Device(1))
        self.assertEqual(str(tutti.Device("cpu")), "host")
        with tutti.device(1):
            self.assertEqual(tutti.current_device(), 1)
        self.assertEqual(tutti.current_device(), 0)
        free, total = tutti.mem_get_info(0)
        self.assertLessEqual(free, total)
        self.assertTrue(tutti.can_device_access_peer(0, 1))
        self.assertEqual(tutti.get_device_properties(0).total_memory, total)

    def test_streams_and_events(self):
        stream = tutti.Stream(1, priority=-1)
        self.assertEqual(stream.__cuda_stream__(), (0, stream.cuda_stream))
        with tutti.stream(stream):
            self.assertEqual(tutti.current_stream(1), stream)
            tensor = tutti.ones([1 << 16], device=1)
            event = stream.record_event()
        self.assertNotEqual(tutti.current_stream(1), stream)
        event.synchronize()
        self.assertTrue(event.query())
        tutti.current_stream(1).wait_event(event)
        self.assertEqual(tutti.PermanentStream(stream, 1), stream)
        self.assertEqual(tutti.PermanentStream(stream.cuda_stream, device=1), stream)
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "a stream of device 1"):
            tutti.PermanentStream(stream.cuda_stream, 0)
        self.assertEqual(tensor.narrow(0, 0, 1).item(), 1)
        start, end = tutti.Event(enable_timing=True), tutti.Event(enable_timing=True)
        start.record()
        end.record()
        end.synchronize()
        self.assertGreaterEqual(start.elapsed_time(end), 0)

    def test_waits_let_other_threads_run(self):
        tutti.virtual_devices.inject("kernel", "delay", device=1, delay_microseconds=200_000)
        self.addCleanup(tutti.virtual_devices.clear_faults)
        tutti.zeros([4], device=1)
        counted = []
        thread = threading.Thread(target=lambda: counted.append(tutti.current_stream(1).query()))
        thread.start()
        tutti.synchronize(1)
        thread.join()
        self.assertEqual(len(counted), 1)

    def test_memory_statistics(self):
        before = tutti.memory_allocated(0)
        tensor = tutti.empty([1 << 18], device=0)
        self.assertEqual(tutti.memory_allocated(0) - before, tensor.nbytes)
        self.assertGreaterEqual(tutti.max_memory_allocated(0), tensor.nbytes)
        stats = tutti.memory_stats(0)
        self.assertEqual(stats["allocated_bytes.all.current"], tutti.memory_allocated(0))
        self.assertTrue(any(segment["device"] == 0 for segment in tutti.memory_snapshot()))
        self.assertIn("reserved", tutti.memory_summary(0, abbreviated=True))

    def test_random_numbers_repeat(self):
        tutti.manual_seed_all(3)
        state = tutti.get_rng_state(0)
        first = tutti.rand([8], device=0).tolist()
        second = tutti.rand([8], device=0).tolist()
        self.assertNotEqual(first, second)
        tutti.set_rng_state(state, 0)
        self.assertEqual(tutti.rand([8], device=0).tolist(), first)
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.set_rng_state(b"short", 0)

    def test_graphs_replay(self):
        counter, one = tutti.zeros([4], device=0), tutti.ones([4], device=0)
        tutti.synchronize(0)
        graph = tutti.CUDAGraph()
        with tutti.graph(graph):
            tutti._tutti.collectives.reduce_into([counter, one], counter, None)
        for _ in range(3):
            graph.replay()
        self.assertEqual(counter.tolist(), [3] * 4)

    def test_graphed_callables(self):
        x, y = tutti.full([4], 2, device=0), tutti.ones([4], device=0)

        def add(a, b):
            return tutti.comm.reduce_add([a, b], 0)

        graphed = tutti.make_graphed_callables(add, (x, y))
        sums = graphed(tutti.full([4], 5, device=0), y)
        self.assertEqual(sums.tolist(), [6] * 4)
        self.assertEqual(graphed(x, y).tolist(), [3] * 4)
        self.assertEqual(sums.tolist(), [3] * 4)  # every call gives the same tensor
        self.assertEqual(graphed.static_inputs[0].tolist(), [2] * 4)
        first, second = tutti.make_graphed_callables(
            (add, lambda a: (a, add(a, a))), ((x, y), (x,)), pool=graphed.pool()
        )
        self.assertEqual([tensor.tolist() for tensor in second(first(x, y))], [[3] * 4, [6] * 4])
        with self.assertRaises(tutti.InvalidArgumentError):
            graphed(x)
        for call, words in (
            (lambda: tutti.make_graphed_callables(add, (x, arrays.Array([1.0]))), "expected tutti.Tensor"),
            (lambda: tutti.make_graphed_callables(lambda a: 3, (x,)), "result is <class 'int'>"),
            (lambda: tutti.make_graphed_callables(add, (x, tutti.ones([4]))), "host"),
            (lambda: tutti.make_graphed_callables((add, add), ((x, y),)), "samples"),
        ):
            with self.assertRaisesRegex(tutti.InvalidArgumentError, words):
                call()
        with self.assertRaises(ZeroDivisionError):
            tutti.make_graphed_callables(lambda a: 1 / 0, (x,))

    def test_failures_of_devices_surface(self):
        tutti.virtual_devices.inject("kernel", "fail_asynchronously", device=0)
        self.addCleanup(tutti.virtual_devices.clear_faults)
        tensor = tutti.zeros([4], device=0)
        with self.assertRaises(tutti.Error) as raised:
            tensor.tolist()
        self.assertEqual(raised.exception.code, "device_failure")


if __name__ == "__main__":
    unittest.main()
