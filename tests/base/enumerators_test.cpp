// SPDX-License-Identifier: Apache-2.0
// Numbers that are no enumerators, wherever one is passed in.

#include "support/errors.hpp"
#include "tutti/collectives.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream_sanitizer.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;

template <class Enum>
constexpr Enum outside = static_cast<Enum>(200);

struct Case {
  std::function<void()> call;
  std::vector<std::string> fragments;
};

void expect_refusals(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    EXPECT_TRUE(refuses(one.call, ErrorCode::invalid_argument, one.fragments)) << one.fragments[0];
  }
}

TEST(Enumerators, OutsideTheirRangeMakeNoTensors) {
  const Tensor on_host = full({2, 3}, 1, {.device = Device::host()});
  const Tensor on_device = full({2, 3}, 1, {.device = 0});
  const std::string types = "expected one of the enumerators, 0 to 16";
  expect_refusals({
      {[] { static_cast<void>(empty({3}, {.dtype = outside<DType>})); }, {"empty: dtype is 200", types}},
      {[&] { static_cast<void>(zeros_like(on_host, {.dtype = outside<DType>})); }, {"dtype is 200", types}},
      {[&] { static_cast<void>(on_host.to(outside<DType>)); }, {"dtype is 200", types}},
      {[] { static_cast<void>(TensorView(nullptr, outside<DType>, {0}, Device::host())); }, {"dtype is 200"}},
      {[] { static_cast<void>(empty({3}, {.host_memory = outside<HostMemory>})); },
       {"empty: options.host_memory is 200", "0 to 1"}},
      {[] { static_cast<void>(empty({3}, {.format = outside<MemoryFormat>})); },
       {"empty: format is 200", "0 to 1"}},
      {[&] { static_cast<void>(on_host.contiguous(outside<MemoryFormat>)); },
       {"Tensor::contiguous: format is 200"}},
      {[&] { on_device.copy_(on_host, outside<Blocking>); }, {"Tensor::copy_: blocking is 200"}},
      {[&] { static_cast<void>(on_device.to(Device::host(), outside<Blocking>)); },
       {"Tensor::to: blocking is 200"}},
      {[&] { static_cast<void>(to_dlpack_versioned(on_host, nullptr, outside<MemoryAccess>)); },
       {"to_dlpack_versioned: access is 200"}},
  });
}

TEST(Enumerators, OutsideTheirRangeAreNoOptions) {
  const Tensor tensor = full({3}, 1, {.device = 0});
  const auto broadcast_with = [&](const CollectiveOptions& options) {
    return [&tensor, options] { static_cast<void>(broadcast(tensor, {0}, options)); };
  };
  const auto explain_with = [](const std::function<void(Workload&)>& change) {
    return [change] {
      Workload workload{.collective = Collective::reduce, .bytes = 1024};
      change(workload);
      static_cast<void>(explain(workload));
    };
  };
  expect_refusals({
      {broadcast_with({.transport = outside<TransportKind>}), {"broadcast: options.transport is 200"}},
      {broadcast_with({.determinism = outside<Determinism>}), {"broadcast: options.determinism is 200"}},
      {broadcast_with({.blocking = outside<Blocking>}), {"broadcast: options.blocking is 200"}},
      {[&] { static_cast<void>(reduce({tensor}, outside<ReduceKind>)); }, {"reduce: op is 200"}},
      {explain_with([](Workload& workload) { workload.dtype = outside<DType>; }), {"explain: dtype is 200"}},
      {explain_with([](Workload& workload) { workload.collective = outside<Collective>; }),
       {"explain: collective is 200"}},
      {explain_with([](Workload& workload) { workload.reduce_kind = outside<ReduceKind>; }),
       {"explain: reduce_kind is 200"}},
      {[] { static_cast<void>(memory_summary(0, outside<SummaryDetail>)); },
       {"memory_summary: detail is 200"}},
      {[] { stream_sanitizer::enable(outside<stream_sanitizer::Mode>); },
       {"stream_sanitizer::enable: mode is 200"}},
      {[] {
         const StreamGuard guard{Stream(0)};
         CUDAGraph graph;
         graph.capture_begin({.error_mode = outside<CaptureErrorMode>});
       },
       {"CUDAGraph::capture_begin: options.error_mode is 200"}},
  });
}

TEST(Enumerators, OutsideTheirRangeAreUnknownToVirtualDevices) {
  if (backend_kind() == BackendKind::cuda) return;
  using virtual_devices::Access;
  expect_refusals({
      {[] { virtual_devices::inject({.operation = outside<virtual_devices::Operation>}); },
       {"inject: the fault's operation is 200", "0 to 9"}},
      {[] {
         virtual_devices::inject(
             {.operation = virtual_devices::Operation::copy, .kind = outside<virtual_devices::FaultKind>});
       },
       {"inject: the fault's kind is 200", "0 to 3"}},
      {[] {
         const Access access{.use = outside<Access::Use>};
         virtual_devices::launch(Stream(0), "none", {&access, 1}, [](auto) {});
       },
       {"virtual_devices::launch: the use of an access is 200"}},
  });
}

}  // namespace
}  // namespace tutti
