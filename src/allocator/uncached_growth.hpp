// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/growth.hpp"

namespace tutti {

/// A request for memory that an allocator's cache has nothing to do with, but to make room for it: the system
/// is asked for it as often, and after the same attempts, as for what `source` finds nowhere.
template <class Source, class Ask>
class UncachedGrowth {
 public:
  UncachedGrowth(Source& source, Ask ask) : source_(source), ask_(ask) {}

  [[nodiscard]] static void* from_cache() noexcept { return nullptr; }
  [[nodiscard]] void* from_system() { return ask_(); }
  [[nodiscard]] bool may_wait() { return source_.may_wait(); }
  void count_retry() { source_.count_retry(); }
  void reap() { source_.reap(); }
  void return_cached() { source_.return_cached(); }
  void finish_pending() { source_.finish_pending(); }

 private:
  Source& source_;
  Ask ask_;
};

/// Returns the final result of `ask()`; nullptr if nothing helped.
template <class Source, class Ask>
[[nodiscard]] void* grow_uncached(Source& source, Ask ask) {
  UncachedGrowth<Source, Ask> uncached(source, ask);
  return grow(uncached);
}

}  // namespace tutti
