// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// Defers closing memory of other processes while calls that wait for other ranks are under way: closing may
/// wait for the device, and those ranks could come to wait for this process. A part of the runtime;
/// thread-safe.
class QuietCloses final : public Reclaimer, public std::enable_shared_from_this<QuietCloses> {
 public:
  /// Calls `work`, and keeps calls that wait for other ranks from being made meanwhile. Returns false, and
  /// calls nothing, if such calls may be under way.
  using Gate = std::function<bool(const std::function<void()>& work)>;

  explicit QuietCloses(Runtime& runtime);
  /// Makes the calls that are left.
  virtual ~QuietCloses();

  /// Sets the gates. `if_none` lets work pass while nobody can make such calls, and may be used inside any
  /// call; `if_idle` lets it pass while no such call is under way, and may be used only outside of such
  /// calls.
  void set_gates(Gate if_none, Gate if_idle);
  /// Adds a call. `close`, which throws nothing, is called at once if nobody can make calls that wait for
  /// other ranks, and otherwise by `close_idle`.
  void add(std::function<void()> close);
  /// Closes what can be closed, and returns whether anything was. Must not be called from within a call.
  bool close_idle();
  bool reclaim() override { return close_idle(); }

 private:
  [[nodiscard]] bool close_all(const Gate& gate);

  const std::shared_ptr<Reclaimers> reclaimers_;
  std::mutex mutex_;  ///< guards those below
  bool is_reclaimer_ = false;
  Gate if_none_;
  Gate if_idle_;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace tutti
