#pragma once

#include "backend/environment.hpp"
#include "runtime.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

/// Threads that enqueue work beside the one that launches it.
namespace tutti::transport {

/// One thread for each device. Everything that is enqueued on a GPU costs the host a microsecond or some, one
/// after another for all devices; the driver lets threads do it for different devices at once.
///
/// The threads spin for a moment after each launch, to be there for the next. Then they sleep, and waking
/// them would cost more than they save: so a launch that finds them asleep is its own thread's alone, and
/// only where launches follow one another closely it wakes them for those to come. One launch has the crew at
/// a time. Where the system lets a thread of the crew wait for a processor, the crew rests for a while.
///
/// A runtime extension; thread-safe.
class LaunchCrew {
 public:
  explicit LaunchCrew(Runtime& runtime);
  LaunchCrew(const LaunchCrew&) = delete;
  LaunchCrew& operator=(const LaunchCrew&) = delete;
  ~LaunchCrew();

  /// With fewer, handing over costs about what it saves.
  static constexpr std::size_t fewest_devices = 3;

  /// Calls `work(i)` for each of `devices`, all at once: for the first on this thread, for others on theirs,
  /// whose native current device it is. Returns when all have returned. False if the crew is not at hand, and
  /// then nothing has been called. `work` does not throw, and its calls may wait for one another.
  template <class Work>
  [[nodiscard]] bool try_run(std::span<const int> devices, const Work& work) {
    if (mode_ == LaunchThreads::off || devices.size() < fewest_devices) return false;
    return try_run(
        devices, {[](const void* object, std::size_t i) { (*static_cast<const Work*>(object))(i); }, &work});
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    void (*call)(const void* work, std::size_t index);
    const void* work;
  };
  struct alignas(64) Member {
    std::atomic<const Job*> job = nullptr;  ///< back to nullptr once it is done
    std::size_t index = 0;                  ///< what of the job is this member's
    std::atomic<bool> is_awake = false;     ///< sees a new job by itself
    std::thread thread;                     ///< started when first wanted
  };

  [[nodiscard]] bool try_run(std::span<const int> devices, const Job& job);
  [[nodiscard]] Member& member(int device) const { return *members_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] bool is_at_hand(std::span<const int> devices) const;
  void start(std::span<const int> devices);
  void wake();
  void wait_for(std::span<const int> devices);
  void work_for(int device);
  [[nodiscard]] const Job* next_job(Member& self);

  Runtime& runtime_;
  std::atomic<LaunchThreads> mode_;
  std::vector<std::unique_ptr<Member>> members_;  ///< by device
  std::mutex mutex_;                              ///< of who launches
  std::optional<Clock::time_point> latest_launch_;
  Clock::time_point rests_until_{};
  std::atomic<std::uint32_t> wake_ups_ = 0;  ///< sleepers wait for the next one
  std::atomic<bool> is_over_ = false;
};

/// One more turn of a loop that waits for another thread, which is about to do what is waited for.
class SpinWait {
 public:
  void turn() noexcept;

 private:
  std::uint32_t turns_ = 0;
};

}  // namespace tutti::transport
