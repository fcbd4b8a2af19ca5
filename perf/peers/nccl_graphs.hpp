// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace tutti::perf {

/// An instantiated graph per device, launched together.
class RecordedGraphs {
 public:
  explicit RecordedGraphs(const std::vector<Stream>& streams)
      : streams_(streams), graphs_(streams.size(), nullptr) {}
  RecordedGraphs(const RecordedGraphs&) = delete;
  RecordedGraphs& operator=(const RecordedGraphs&) = delete;
  ~RecordedGraphs();

  void record(const std::function<void()>& enqueue);
  void launch() const;

 private:
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
  };
  using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

  /// One per device. Whatever fails, no stream goes on capturing.
  [[nodiscard]] std::vector<CapturedGraph> capture(const std::function<void()>& enqueue) const;
  [[nodiscard]] cudaStream_t stream(std::size_t device) const { return to_cuda(streams_[device]); }
  template <class Work>
  void for_each_device(Work&& work) const {
    for (std::size_t device = 0; device < streams_.size(); ++device) {
      const DeviceGuard guard(streams_[device].device());
      work(device);
    }
  }

  std::vector<Stream> streams_;
  std::vector<cudaGraphExec_t> graphs_;
};

}  // namespace tutti::perf
