// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <string_view>

/// Annotates the timeline of profilers with named points and ranges of the program. They are reported through
/// NVTX to tools (Nsight Systems, Nsight Compute and others) and written to the trace of `TUTTI_TRACE`, on
/// GPUs and on virtual devices alike.
///
/// The collectives report themselves as ranges in the NVTX domain "tutti" while they are queued. A range is
/// named by operation, bytes and transport, for instance "broadcast, 4194304 bytes, p2p", with the bytes as
/// payload. Calls that are bound together (`Communicator::persistent`) are one range when they are launched,
/// named by the last of them.
///
/// NVTX looks for a tool once, at the first call that could report something (`NVTX_INJECTION64_PATH`).
/// Without a tool, each call costs a load and a branch. A build without NVTX's headers only writes the trace,
/// and still counts depths.
namespace tutti::nvtx {

/// Marks this moment. Thread-safe; queues nothing, waits for nothing, and throws nothing: if memory runs out,
/// the mark is dropped.
TUTTI_EXPORT void mark(std::string_view message) noexcept;

/// Begins a range of the calling thread, within those that are open there. Returns its depth: 0 if no other
/// was open. Otherwise like `mark`.
TUTTI_EXPORT int range_push(std::string_view message) noexcept;
/// Ends the calling thread's range that was begun last, and returns its depth; returns -1 if none is open.
/// Only ranges begun by `range_push` count.
TUTTI_EXPORT int range_pop() noexcept;

/// A range that lasts as long as the object. It must be destroyed on the thread that made it.
class Range {
 public:
  explicit Range(std::string_view message) noexcept : depth_(range_push(message)) {}
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  ~Range() { range_pop(); }

  /// Returns the depth, as `range_push` does.
  [[nodiscard]] int depth() const noexcept { return depth_; }

 private:
  int depth_;
};

}  // namespace tutti::nvtx
