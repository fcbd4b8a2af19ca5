// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/task.hpp"
#include "backend/shared_flag.hpp"
#include "backend/shared_memory.hpp"
#include "backend/stream_calls.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace tutti::backend::host {

/// The marks of an event that several processes use, in memory that they share. Thread-safe.
///
/// Marks are numbered from 1, in the order in which they are recorded. Who waits has taken the number of the
/// latest one, and looks for it in one of a few places that marks use in turn. A mark is set there only when
/// the one before it in that place has been: so a place that has come to a number has seen that mark, and
/// nobody is let go by a later one.
class SharedMarks {
 public:
  /// Of a new event of `device`. Throws Error(out_of_memory).
  explicit SharedMarks(int device);
  /// Those of another process. Throws Error(invalid_argument) for what is no handle of an event of `device`,
  /// or is one of this process; Error(peer_unavailable) if they cannot be opened.
  SharedMarks(int device, const SharedEventHandle& handle);
  SharedMarks(const SharedMarks&) = delete;
  SharedMarks& operator=(const SharedMarks&) = delete;
  ~SharedMarks() = default;

  /// For those made here.
  [[nodiscard]] SharedEventHandle share();

  /// The number of a new mark.
  [[nodiscard]] std::uint32_t begin() noexcept { return words().latest.fetch_add(1) + 1; }
  /// 0 if there has been none.
  [[nodiscard]] std::uint32_t latest() const noexcept { return words().latest.load(); }
  [[nodiscard]] bool reached(std::uint32_t number) const noexcept;
  /// Blocks for `milliseconds` at most; whether the mark is reached then.
  [[nodiscard]] bool wait(std::uint32_t number, int milliseconds) const noexcept;
  void set(std::uint32_t number) noexcept { set_flag(place_of(number), number); }
  /// The mark before `number` in its place: reached from the start if there has been none.
  [[nodiscard]] static std::uint32_t before(std::uint32_t number) noexcept { return number - place_count; }

 private:
  static constexpr std::uint32_t place_count = 32;
  struct Words {
    alignas(64) std::atomic<std::uint32_t> latest{0};
    SharedFlag places[place_count];
  };

  [[nodiscard]] Words& words() const noexcept { return *reinterpret_cast<Words*>(memory_.data()); }
  [[nodiscard]] SharedFlag& place_of(std::uint32_t number) const noexcept {
    return words().places[number % place_count];
  }

  const int device_;
  SharedMemory memory_;
};

/// Waits in a stream for a mark, and then may set another one.
class SharedMarkTask final : public Task {
 public:
  SharedMarkTask(std::string name, std::shared_ptr<SharedMarks> marks, std::uint32_t awaited,
                 std::optional<std::uint32_t> own = {})
      : Task(std::move(name)), marks_(std::move(marks)), awaited_(awaited), own_(own) {}
  void run() override;
  [[nodiscard]] bool ready() const noexcept override { return marks_->reached(awaited_); }
  [[nodiscard]] std::unique_ptr<Task> clone() const override {
    return std::make_unique<SharedMarkTask>(name(), marks_, awaited_, own_);
  }

 private:
  std::shared_ptr<SharedMarks> marks_;
  std::uint32_t awaited_;
  std::optional<std::uint32_t> own_;
};

}  // namespace tutti::backend::host
