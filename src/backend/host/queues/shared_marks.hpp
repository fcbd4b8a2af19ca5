// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/queues/progress.hpp"
#include "backend/host/queues/task.hpp"
#include "backend/stream_calls.hpp"
#include "os/shared_flag.hpp"
#include "os/shared_memory.hpp"
#include "os/unshared_descriptor.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::backend::host {

/// Stores the marks of an event that several processes use, in memory that they share. Thread-safe.
///
/// A recording takes a lane, one for each stream with marks that are not reached yet, and numbers the marks
/// there in the order in which the stream comes to them: so a lane that has reached a number has passed that
/// mark, and no later mark releases a waiter too early. Lanes whose marks are all reached serve other
/// streams.
///
/// Each process that has the event open holds a lock on a byte of the memory's file, which the system
/// releases when the process ends. Then the marks that it has not reached count as reached, because the work
/// before them will never run.
class SharedMarks {
 public:
  struct Mark {
    std::uint32_t lane = 0;
    std::uint32_t number = 0;
  };
  /// A new mark.
  struct Begun {
    Mark mark;
    /// Another stream's mark, on the same lane, that the stream has to wait for first: if no lane was free.
    std::optional<Mark> after;
  };

  /// Makes the marks of a new event of `device`. Throws Error(out_of_memory).
  explicit SharedMarks(int device);
  /// Opens the marks of another process. Throws Error(invalid_argument) if it is no handle of an event of
  /// `device`, or of an event of this process; Error(peer_unavailable) if they cannot be opened.
  SharedMarks(int device, const SharedEventHandle& handle);
  SharedMarks(const SharedMarks&) = delete;
  SharedMarks& operator=(const SharedMarks&) = delete;
  ~SharedMarks() = default;

  /// Returns the handle of marks made in this process.
  [[nodiscard]] SharedEventHandle share();

  /// Calls `submit(begun)` with a new mark of the stream with that progress, one call at a time, so that the
  /// stream comes to the marks in their order. Throws Error(unsupported) if other processes have taken all
  /// lanes.
  template <class Submit>
  void record(const std::shared_ptr<Progress>& stream, const Submit& submit) {
    const std::lock_guard lock(mutex_);
    submit(begin(stream));
  }
  /// Returns the latest mark; nothing if there has been none.
  [[nodiscard]] std::optional<Mark> latest() const noexcept;
  [[nodiscard]] bool reached(const Mark& mark) const noexcept;
  /// Waits for `milliseconds` at most. Returns true if the mark is reached then.
  [[nodiscard]] bool wait(const Mark& mark, int milliseconds) const noexcept;
  /// Sets a mark; called in the order in which they were begun, on each lane.
  void set(const Mark& mark) noexcept { set_flag(words().lanes[mark.lane].passed, mark.number); }

 private:
  static constexpr std::uint32_t lane_count = 64;
  struct Lane {
    SharedFlag passed;                     ///< the number of the latest mark that is reached
    std::atomic<std::uint32_t> begun{0};   ///< the number of the latest mark
    std::atomic<std::uint32_t> holder{0};  ///< the process that uses it; 0: none
  };
  struct Words {
    alignas(64) std::atomic<std::uint64_t> latest{0};  ///< lane, counted from 1, and number
    std::atomic<std::uint32_t> processes{0};           ///< number of processes that have ever had it open
    Lane lanes[lane_count];
  };
  /// A lane that this process holds.
  struct OwnLane {
    std::uint32_t lane = 0;
    std::shared_ptr<Progress> stream;  ///< that has used it last
  };

  /// Opens marks in memory that another process has announced.
  SharedMarks(int device, const SharedMemory::Handle& handle);
  [[nodiscard]] Words& words() const noexcept { return *reinterpret_cast<Words*>(memory_.data()); }
  /// Registers this process as one that has it open. Called once.
  void enter(const SharedMemory::Handle& handle);
  /// The lock must be held for this and the last three.
  [[nodiscard]] Begun begin(const std::shared_ptr<Progress>& stream);
  [[nodiscard]] bool is_idle(std::uint32_t lane) const noexcept;
  /// Returns true if a process that had it open has ended.
  [[nodiscard]] bool has_ended(std::uint32_t process) const noexcept;
  /// Marks all marks of a process as reached if it has ended. Returns true if it has.
  bool settle(std::uint32_t lane) const noexcept;
  [[nodiscard]] OwnLane& lane_for(const std::shared_ptr<Progress>& stream);
  [[nodiscard]] std::optional<std::uint32_t> take_lane() noexcept;
  /// Releases own lanes that nobody waits for, except `used`, to other processes.
  void let_go_but(const OwnLane& used) noexcept;

  const int device_;
  SharedMemory memory_;
  std::uint32_t process_ = 1;  ///< the number of this process; the event's creator is the first
  UnsharedDescriptor lock_;
  std::mutex mutex_;  ///< guards the next
  std::vector<OwnLane> own_;
};

/// Waits in a stream for a mark, if there is one, and then sets another one.
class SharedMarkTask final : public Task {
 public:
  SharedMarkTask(std::string name, std::shared_ptr<SharedMarks> marks,
                 std::optional<SharedMarks::Mark> awaited, std::optional<SharedMarks::Mark> own = {})
      : Task(std::move(name)), marks_(std::move(marks)), awaited_(awaited), own_(own) {}
  void run() override;
  [[nodiscard]] bool ready() const noexcept override { return !awaited_ || marks_->reached(*awaited_); }
  [[nodiscard]] std::unique_ptr<Task> clone() const override {
    return std::make_unique<SharedMarkTask>(name(), marks_, awaited_, own_);
  }

 private:
  std::shared_ptr<SharedMarks> marks_;
  std::optional<SharedMarks::Mark> awaited_;
  std::optional<SharedMarks::Mark> own_;
};

}  // namespace tutti::backend::host
