# SPDX-License-Identifier: Apache-2.0
"""`tutti.comm`: the functions of torch.cuda.comm, their arguments and results."""

import unittest

import arrays
import tutti
from tutti import comm


def lists(tensors):
    return [tensor.tolist() for tensor in tensors]


class Comm(unittest.TestCase):
    def test_broadcast(self):
        source = tutti.tensor([1.0, 2.0], device=0)
        copies = comm.broadcast(source, [0, "cuda:1"])
        self.assertIsInstance(copies, tuple)
        self.assertEqual(lists(copies), [[1, 2], [1, 2]])
        self.assertEqual(copies[0].data_ptr(), source.data_ptr())
        outs = [tutti.zeros([2], device=index) for index in (0, 1)]
        self.assertIs(comm.broadcast(source, out=outs)[1], outs[1])
        self.assertEqual(lists(outs), [[1, 2], [1, 2]])

    def test_broadcast_of_another_librarys_array(self):
        self.assertEqual(lists(comm.broadcast(arrays.Array([1.0, 2.0]), (0, 1))), [[1, 2]] * 2)

    def test_broadcast_coalesced(self):
        sources = [tutti.full([size], size, device=0) for size in (1, 3)]
        copies = comm.broadcast_coalesced(sources, (0, 1))
        self.assertEqual([lists(row) for row in copies], [[[1], [3, 3, 3]]] * 2)

    def test_sums(self):
        inputs = [tutti.full([3], index + 1, device=index) for index in (0, 1)]
        total = comm.reduce_add(inputs, destination=1)
        self.assertEqual((total.tolist(), total.device), ([3, 3, 3], tutti.Device(1)))
        rows = [[tutti.full([2], index, device=index), tutti.ones([1], device=index)] for index in (0, 1)]
        sums = comm.reduce_add_coalesced(rows, 0)
        self.assertEqual((type(sums), lists(sums)), (tuple, [[1, 1], [2]]))

    def test_scatter_and_gather(self):
        source = arrays.Array([float(value) for value in range(10)])
        parts = comm.scatter(source, [0, 1], chunk_sizes=[4, 6])
        self.assertEqual([part.shape for part in parts], [(4,), (6,)])
        joined = comm.gather(parts, destination="cpu")
        self.assertEqual((joined.tolist(), joined.device), (source.tolist(), tutti.Device("cpu")))
        self.assertEqual(comm.gather(parts, 0, -1).tolist(), source.tolist())
        out = tutti.zeros([10], device=1)
        self.assertIs(comm.gather(parts, out=out), out)
        self.assertEqual(out.tolist(), source.tolist())
        streams = [tutti.Stream(0), None]
        self.assertEqual(len(comm.scatter(source, [0, 1], streams=streams)), 2)
        comm.scatter(out, out=parts)
        self.assertEqual(parts[1].tolist(), [4, 5, 6, 7, 8, 9])

    def test_bad_arguments_name_what_is_wrong(self):
        tensor, other = tutti.ones([4], device=0), tutti.ones([3], device=1)
        for call, words in (
            (lambda: comm.broadcast(tensor), "'devices'"),
            (lambda: comm.broadcast(tensor, [0], out=[tensor]), "Exactly one"),
            (lambda: comm.broadcast(object(), [0]), "__dlpack__"),
            (lambda: comm.broadcast(tensor, [99]), "99"),
            (lambda: comm.reduce_add([tensor, other]), "inputs[1]"),
            (lambda: comm.scatter(tensor, [0, 1], [1, 1]), "chunk_sizes"),
            (lambda: comm.scatter(tensor, [0, 1], streams=[None]), "streams"),
            (lambda: comm.scatter(tensor, [0], out=[tensor]), "'devices'"),
            (lambda: comm.gather([tensor], destination=0, out=tensor), "'destination'"),
        ):
            before = tutti.virtual_devices.operations_enqueued()
            with self.assertRaises(tutti.InvalidArgumentError) as raised:
                call()
            self.assertIn(words, str(raised.exception))
            self.assertEqual(tutti.virtual_devices.operations_enqueued(), before)

    def test_says_it_in_torchs_words(self):
        x, y = tutti.ones([2, 5], device=0), tutti.ones([2, 5], device=1)
        host, rows = tutti.ones([2, 5]), tutti.ones([1, 2, 5], device=1)
        narrow = y.narrow(1, 1, 4)
        for call, words in (
            (lambda: comm.broadcast(x, (0, 1), out=[x, y]), r"Exactly one of 'devices' and 'out'"),
            (lambda: comm.broadcast(x, out=[x, host]), "be CUDA tensors, but output tensor at index 1"),
            (lambda: comm.broadcast(x, out=[x, rows]), r"same shape as the source .+ at index 1"),
            (lambda: comm.scatter(x, [0, 0, 0], (1, 1)), "Expected devices and chunk_sizes to be of same length"),
            (lambda: comm.scatter(x, (0, 1), out=[x, y]), "'devices' must not be specified"),
            (lambda: comm.scatter(x, ()), "Expected at least one device to scatter to"),
            (lambda: comm.scatter(x, out=[]), "Expected at least one output tensor to scatter to"),
            (lambda: comm.scatter(x, dim=-2, out=[host]), "be CUDA tensors, but output tensor at index 0"),
            (lambda: comm.scatter(x, out=[rows, y]), "Output tensor at index 0 has incorrect shape"),
            (lambda: comm.scatter(x, dim=1, out=[y, narrow]), r"along scatter dim \d+ does not match"),
            (lambda: comm.gather((x, y), destination="cpu", out=host), "'destination' must not be specified"),
            (lambda: comm.gather(()), "Expected at least one tensor to gather from"),
            (lambda: comm.gather((host, y)), "Expected all input tensors to be CUDA tensors, "),
            (lambda: comm.gather((x, rows)), "Expected all input tensors to have the same number of dimensions"),
            (lambda: comm.gather((x, narrow), dim=0), "Input tensor at index 1 has invalid shape"),
        ):
            with self.assertRaisesRegex(RuntimeError, words):
                call()

    def test_the_given_tensor_itself_is_the_result_on_its_device(self):
        tensors = [tutti.ones([3], device=0), tutti.ones([0], device=0)]
        self.assertIs(comm.broadcast(tensors[0], (0, 1))[0], tensors[0])
        first, second = comm.broadcast_coalesced(tensors, (0, 1))
        self.assertTrue(all(one is given for one, given in zip(first, tensors, strict=True)))
        self.assertIsNot(second[0], tensors[0])

    def test_tells_the_plan(self):
        comm.broadcast(tutti.ones([4], device=0), [0, 1])
        self.assertEqual(comm.last_plan().transport, "p2p")


if __name__ == "__main__":
    unittest.main()
