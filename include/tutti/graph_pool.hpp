// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstdint>
#include <memory>

namespace tutti {

/// Names a private pool of memory, shared by the graphs that are captured with it: memory freed during one
/// graph's capture may be used by graphs that are captured later on the same stream. So these graphs must be
/// launched in the order of their captures, one after the other, and running one may overwrite the results of
/// another, unless their tensors were alive at its capture.
///
/// A cheap value: copies name the same pool, which lives as long as one of them or a graph that uses it. As
/// thread-safe as a `std::shared_ptr`.
class TUTTI_EXPORT GraphPoolHandle {
 public:
  GraphPoolHandle() = default;  ///< names none: a graph that is captured with it gets a pool of its own

  [[nodiscard]] bool defined() const noexcept { return pool_ != nullptr; }
  /// Returns the number that `MemorySegment::graph_pool` shows; 0 if it names none.
  [[nodiscard]] std::uint64_t id() const noexcept;
  friend bool operator==(const GraphPoolHandle& a, const GraphPoolHandle& b) noexcept {
    return a.pool_ == b.pool_;
  }

 private:
  friend struct GraphPoolAccess;
  std::shared_ptr<void> pool_;
};

/// Makes a new pool for graphs to share.
[[nodiscard]] TUTTI_EXPORT GraphPoolHandle graph_pool_handle();

}  // namespace tutti
