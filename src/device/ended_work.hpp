// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime_part.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

class Runtime;

/// Reports work that was ended before it was complete, on devices that continue as if it were complete. Every
/// wait for a device checks here afterwards, so that incomplete outputs are not taken for results.
///
/// Thread-safe.
class EndedWork final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::ended_work;

  /// A party that can end work.
  class Source {
   public:
    Source() = default;
    Source(const Source&) = delete;
    Source& operator=(const Source&) = delete;
    /// Returns, once, the error that has ended work of the device; nothing if none has. Does not wait for a
    /// device that does not answer.
    [[nodiscard]] virtual std::optional<Error> take_end(int device) = 0;

   protected:
    ~Source() = default;
  };

  explicit EndedWork(Runtime& runtime);

  void add(Source& source, std::span<const int> devices);
  /// Removes the source, which is not asked any more; does nothing if it was not added.
  void remove(const Source& source) noexcept;
  /// Throws the error that a source has for the device. Costs one atomic load where no source was added.
  void report(int device) {
    const auto index = static_cast<std::size_t>(device);  // of an event that is older than the devices, any
    if (index < counts_.size() && counts_[index].load(std::memory_order_acquire) != 0) ask(device);
  }

 private:
  struct Entry {
    Source* source;
    std::vector<int> devices;
  };

  void ask(int device);

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<std::atomic<std::size_t>> counts_;  ///< of sources, by device
};

}  // namespace tutti
