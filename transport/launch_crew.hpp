#pragma once

#include "backend/environment.hpp"
#include "runtime.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
/// a time. Where a thread of the crew has to wait for a processor, the crew rests for a while.
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

  /// Said at the end of a launch that the crew was not at hand for.
  void note_launch() noexcept { latest_launch_ = now(); }

 private:
  using Time = std::chrono::nanoseconds;  // of the steady clock
  struct Job {
    void (*call)(const void* work, std::size_t index);
    const void* work;
  };
  struct alignas(64) Member {
    std::atomic<const Job*> job = nullptr;  ///< back to nullptr once it is done
    std::size_t index = 0;                  ///< what of the job is this member's
    Time taken_up{0};                       ///< when the latest job was
    std::atomic<bool> is_awake = false;     ///< sees a new job by itself
    std::atomic<bool> has_begun = false;    ///< takes jobs, if only once it is woken
    std::thread thread;                     ///< started when first wanted
  };

  [[nodiscard]] static Time now() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }
  [[nodiscard]] bool try_run(std::span<const int> devices, const Job& job);
  [[nodiscard]] Member& member(int device) const { return *members_[static_cast<std::size_t>(device)]; }
  [[nodiscard]] bool is_at_hand(std::span<const int> devices) const;
  /// Starts them if they have not been, and wakes them.
  void call_up(std::span<const int> devices);
  void wake();
  /// Until they are done. Returns when the last one took up its job.
  Time wait_for(std::span<const int> devices);
  /// No crew from now on: launches are their own threads' alone.
  void disband(const char* reason) noexcept;
  void work_for(int device);
  [[nodiscard]] const Job* next_job(Member& self);

  Runtime& runtime_;
  std::atomic<LaunchThreads> mode_;
  std::vector<std::unique_ptr<Member>> members_;  ///< by device
  std::mutex mutex_;                              ///< of who launches
  std::atomic<Time> latest_launch_ = Time::min() / 2;
  Time rests_until_{0};
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
