// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_graphs.hpp"

#include "tutti/error.hpp"

#include <exception>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

void require_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::device_failure, fmt::format("--peer nccl: {}: {}", what, cudaGetErrorString(result)),
              static_cast<int>(result));
}
}  // namespace

RecordedGraphs::~RecordedGraphs() {
  for (cudaGraphExec_t graph : graphs_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
}

void RecordedGraphs::record(const std::function<void()>& enqueue) {
  const std::vector<CapturedGraph> captured = capture(enqueue);
  // Not before all captures have ended: while a stream captures, nothing is instantiated.
  for_each_device([&](std::size_t device) {
    require_cuda(cudaGraphInstantiate(&graphs_[device], captured[device].get(), 0), "cudaGraphInstantiate");
  });
}

void RecordedGraphs::launch() const {
  for_each_device([this](std::size_t device) {
    require_cuda(cudaGraphLaunch(graphs_[device], stream(device)), "cudaGraphLaunch");
  });
}

std::vector<RecordedGraphs::CapturedGraph> RecordedGraphs::capture(
    const std::function<void()>& enqueue) const {
  for_each_device([this](std::size_t device) {
    require_cuda(cudaStreamBeginCapture(stream(device), cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture");
  });
  std::exception_ptr failure;
  try {
    enqueue();
  } catch (...) {
    failure = std::current_exception();
  }
  std::vector<CapturedGraph> graphs;
  cudaError_t result = cudaSuccess;
  for_each_device([&](std::size_t device) {
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream(device), &graph);
    if (result == cudaSuccess) result = ended;
    graphs.emplace_back(graph);
  });
  if (failure) std::rethrow_exception(failure);
  require_cuda(result, "cudaStreamEndCapture");
  return graphs;
}

}  // namespace tutti::perf
