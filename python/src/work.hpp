// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/event.hpp"
#include "tutti/stream.hpp"

#include <memory>
#include <vector>

namespace tutti::python {

/// Calls of one thread in whose scope host operands are used, or copied, in stream order too, so that
/// nothing waits for them: an event on each device marks when results are there.
class Work {
 public:
  /// Makes this the work that calls of this thread belong to, until `leave`.
  void enter();
  void leave();
  static Work* current() noexcept;

  /// Takes in what is queued on the device's current stream until `leave`.
  void add(Device device);
  /// Waits for the results. Throws what the calls' devices report. Needs the GIL.
  void wait() const;
  [[nodiscard]] bool is_done() const;

 private:
  /// Looks for a while whether the results are there: a short wait is over before another thread has begun
  /// it. Not under a seed, where looking decides what runs next, and how often depends on the time it takes.
  [[nodiscard]] bool is_done_soon() const;

  std::vector<Stream> streams_;
  std::vector<std::shared_ptr<Event>> events_;
  Work* outer_ = nullptr;
};

}  // namespace tutti::python
