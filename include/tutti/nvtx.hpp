// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <string_view>

/// Annotations that profilers show beside the work of devices: points and ranges of time with names of the
/// program's own, told to tools that listen through NVTX (Nsight Systems, Nsight Compute and others), and
/// written to the trace that `TUTTI_TRACE` asks for. On GPUs and on virtual devices alike.
///
/// The collectives are ranges by themselves, in an NVTX domain "tutti", while they are queued: named by
/// operation, bytes and transport, for instance "broadcast, 4194304 bytes, p2p", with the bytes as payload.
/// Calls that are bound together (`Communicator::persistent`) are one range when they are launched, named by
/// the last of them.
///
/// NVTX looks for a tool once, at the first call that could tell one something (`NVTX_INJECTION64_PATH`).
/// Where none listens, each of the calls costs a load and a branch. In a build without the headers of NVTX
/// only the trace is told, and depths are counted all the same.
namespace tutti::nvtx {

/// Marks this moment. Thread-safe; queues nothing, waits for nothing, and throws nothing: what cannot be told
/// for want of memory is not told.
TUTTI_EXPORT void mark(std::string_view message) noexcept;

/// Begins a range of the calling thread, within those that are open there. Returns its depth: 0 if no other
/// was open. Otherwise like `mark`.
TUTTI_EXPORT int range_push(std::string_view message) noexcept;
/// Ends the range of the calling thread that was begun last, and returns its depth; -1 if none is open, and
/// then nothing ends. Ranges that were begun in other ways than by `range_push` are not counted.
TUTTI_EXPORT int range_pop() noexcept;

/// A range that lasts as long as the object, on the thread that makes it, which must be the one that destroys
/// it.
class Range {
 public:
  explicit Range(std::string_view message) noexcept : depth_(range_push(message)) {}
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() { range_pop(); }

  /// As `range_push` returned it.
  [[nodiscard]] int depth() const noexcept { return depth_; }

 private:
  int depth_;
};

}  // namespace tutti::nvtx
