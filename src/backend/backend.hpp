// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/device_calls.hpp"
#include "backend/graph_calls.hpp"
#include "backend/handles.hpp"
#include "backend/memory_calls.hpp"
#include "backend/operation_calls.hpp"
#include "backend/signal_calls.hpp"
#include "backend/stream_calls.hpp"
#include "backend/telemetry_calls.hpp"
#include "backend/watch_calls.hpp"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// The seam: the interface through which the library uses a machine. It has two implementations, `host/` and
/// `cuda/`.
///
/// These rules hold for all calls, unless a comment says otherwise:
///  - thread-safe; a handle may be used from any thread, whichever device is current on it;
///  - `device` indices are valid (callers check); streams, events and memory belong to the same backend;
///  - operations that take a stream enqueue and return: they run after the work already queued on that
///    stream, and everything they point to must stay valid until then (descriptor structs and spans are read
///    before returning);
///  - failures to enqueue throw `Error`; failures of enqueued work surface as Error(device_failure), naming
///    the failed operation, from the next synchronising call (`synchronize_*`, `query_*`) on that device;
///  - zero-byte operations are valid and keep stream order.
namespace tutti::backend {

/// A machine, with one interface per concern. Code that needs one concern may take that interface; code that
/// has a runtime takes all of them from its backend.
class Backend : public DeviceCalls,
                public TelemetryCalls,
                public MemoryCalls,
                public StreamCalls,
                public SignalCalls,
                public OperationCalls,
                public GraphCalls,
                public WatchCalls {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;
};

/// Returns the architectures the cuda backend was compiled for; empty in a build without CUDA.
[[nodiscard]] std::span<const std::string_view> compiled_architectures() noexcept;

/// Returns the GPUs of this machine; nullptr if this build has no CUDA, or no GPU is usable, and then
/// `reason` says why.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend(std::string& reason);

/// Returns how many devices `make_cuda_backend` would find, without starting CUDA, which a process must not
/// have done before it forks children that use GPUs; nothing if that cannot be known.
[[nodiscard]] std::optional<int> count_gpus_unstarted();

}  // namespace tutti::backend
