// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tutti.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#if __has_include(<mpi.h>)
#include "tutti/mpi.hpp"
#endif
#if __has_include(<cuda_runtime_api.h>)
#include "tutti/cuda_libraries.hpp"
#endif

using namespace tutti;

/// Each fragment of C++ in the documents is the body of such a function (see blocks_test): these are what
/// fragments use without declaring it. A name has one type on all pages.
void fragment(Communicator& communicator, Exchange& exchange, GradientBuckets& buckets,
              ShardedOptimizer& optimizer, ShardedOptimizer::Update update, std::string path, Tensor t,
              Tensor a, Tensor b, Tensor tensor, Tensor in, Tensor out, Tensor whole, Tensor part,
              std::vector<Tensor> ts, std::vector<Tensor> inputs, std::vector<Tensor> outs,
              std::vector<Tensor> tensors, std::vector<Tensor> parameters, std::vector<Tensor> gradients,
              std::vector<Tensor> samples, std::vector<std::vector<Tensor>> lists,
              std::vector<Device> devices, std::vector<Stream> streams, std::vector<std::int64_t> chunk_sizes,
              std::vector<std::int64_t> sizes, std::vector<float> values, std::vector<std::int64_t> sent,
              std::vector<std::int64_t> received, Device destination, std::size_t buffer_size, int root,
              int color, int key, int dim, int from, int to, Device device, Stream s, Stream stream,
              IpcEventHandle handle, CUDAGraph& g, GraphPoolHandle pool, std::function<void()> work,
              TensorFunction f, std::string code);
