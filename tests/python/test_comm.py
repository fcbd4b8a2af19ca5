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
            (lambda: comm.broadcast(tensor, [0], out=[tensor]), "both"),
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

    def test_tells_the_plan(self):
        comm.broadcast(tutti.ones([4], device=0), [0, 1])
        self.assertEqual(comm.last_plan().transport, "p2p")


if __name__ == "__main__":
    unittest.main()
