// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// Tells private pools of memory apart: memory of a graph serves no requests but those of its capture. `none`
/// is the pool that serves everybody else.
enum class GraphPool : std::uint64_t { none = 0 };

/// Marks the calling thread as capturing a graph by `Graph::capture`, while the object exists. If several
/// exist, the one that began last counts, in whatever order they end; those that begin beside `most_open`
/// others do not.
class OpenCapture {
 public:
  static constexpr std::size_t most_open = 16;

  /// Returns the pool of the graph that the calling thread captures, `none` if it captures none.
  [[nodiscard]] static GraphPool pool_of_calling_thread() noexcept {
    return open_here.count == 0 ? GraphPool::none : open_here.pools[open_here.count - 1].pool;
  }

  /// Marks the capture of a graph with this pool. `none`: the thread captures nothing meanwhile.
  explicit OpenCapture(GraphPool pool) noexcept {
    if (place_->count == most_open) return;
    number_ = ++place_->last_number;
    place_->pools[place_->count++] = {number_, pool};
  }
  OpenCapture(const OpenCapture&) = delete;
  OpenCapture& operator=(const OpenCapture&) = delete;
  /// Does nothing on another thread.
  ~OpenCapture() {
    if (place_ == &open_here) place_->remove(number_);
  }

 private:
  /// A thread's open captures, in the order in which they began.
  struct OpenHere {
    struct Open {
      std::uint64_t number = 0;
      GraphPool pool = GraphPool::none;
    };
    std::array<Open, most_open> pools{};
    std::size_t count = 0;
    std::uint64_t last_number = 0;

    void remove(std::uint64_t number) noexcept;
  };
  static thread_local constinit OpenHere open_here;

  OpenHere* place_ = &open_here;
  std::uint64_t number_ = 0;  ///< none of those there
};

}  // namespace tutti
