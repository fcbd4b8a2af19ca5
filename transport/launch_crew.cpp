#include "transport/launch_crew.hpp"

#include "log.hpp"

#include <algorithm>
#include <exception>

#include <fmt/format.h>
#include <sched.h>

namespace tutti::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// How long a thread without work expects more, and how close launches are that follow one another closely.
constexpr microseconds spin_time{200};
/// A thread that takes up its job later than this was not running.
constexpr microseconds longest_delay{200};
constexpr milliseconds rest{100};

/// Threads that spin must not take processors from those that work. They have those of the thread that starts
/// them.
bool has_processors_for(int devices) noexcept {
  cpu_set_t processors;
  return sched_getaffinity(0, sizeof processors, &processors) == 0 && CPU_COUNT(&processors) >= 2 * devices;
}

LaunchThreads choose(Runtime& runtime) {
  const LaunchThreads asked = Environment::get().launch_threads;
  if (asked != LaunchThreads::automatic) return asked;
  const bool pays =
      runtime.backend().kind() == BackendKind::cuda && has_processors_for(runtime.device_count());
  return pays ? LaunchThreads::automatic : LaunchThreads::off;
}

}  // namespace

void SpinWait::turn() noexcept {
  constexpr std::uint32_t turns_per_yield = 1024;
  if (++turns_ % turns_per_yield == 0) return std::this_thread::yield();
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

LaunchCrew::LaunchCrew(Runtime& runtime) : runtime_(runtime), mode_(choose(runtime)) {
  if (mode_ == LaunchThreads::off) return;
  for (int device = 0; device < runtime.device_count(); ++device)
    members_.push_back(std::make_unique<Member>());
}

LaunchCrew::~LaunchCrew() {
  is_over_ = true;
  wake();
  for (const auto& member : members_) {
    if (member->thread.joinable()) member->thread.join();
  }
}

bool LaunchCrew::try_run(std::span<const int> devices, const Job& job) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  const Time begin = now();
  const bool follows_closely = begin - latest_launch_.load() < spin_time;
  if (begin < rests_until_) return false;
  const std::span<const int> others = devices.subspan(1);
  if (!is_at_hand(others)) {
    if (follows_closely || mode_ == LaunchThreads::on) call_up(others);
    if (mode_ == LaunchThreads::automatic) return false;
    for (SpinWait wait;
         !std::ranges::all_of(others, [&](int device) { return member(device).has_begun.load(); });
         wait.turn()) {
      if (mode_ == LaunchThreads::off) return false;
    }
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    member(others[i]).index = i + 1;
    member(others[i]).job = &job;
  }
  // One that has fallen asleep in between has looked for a job before it did so, or is seen to sleep here.
  if (!is_at_hand(others)) wake();
  job.call(job.work, 0);
  const Time delay = wait_for(others) - begin;
  latest_launch_ = now();
  if (mode_ == LaunchThreads::automatic && delay > longest_delay) rests_until_ = latest_launch_.load() + rest;
  return true;
}

bool LaunchCrew::is_at_hand(std::span<const int> devices) const {
  return std::ranges::all_of(devices, [this](int device) { return member(device).is_awake.load(); });
}

void LaunchCrew::call_up(std::span<const int> devices) {
  try {
    for (const int device : devices) {
      Member& called = member(device);
      if (!called.thread.joinable()) called.thread = std::thread([this, device] { work_for(device); });
    }
  } catch (const std::exception& error) {
    disband(error.what());
  }
  wake();
}

void LaunchCrew::disband(const char* reason) noexcept {
  if (mode_.exchange(LaunchThreads::off) == LaunchThreads::off) return;
  try {
    log_warning(fmt::format("launches have no threads beside them from now on: {}", reason));
  } catch (const std::exception&) {  // no host memory to say it
  }
}

void LaunchCrew::wake() {
  ++wake_ups_;
  wake_ups_.notify_all();
}

LaunchCrew::Time LaunchCrew::wait_for(std::span<const int> devices) {
  Time last{0};
  for (const int device : devices) {
    SpinWait wait;
    while (member(device).job.load(std::memory_order_acquire) != nullptr) wait.turn();
    last = std::max(last, member(device).taken_up);
  }
  return last;
}

void LaunchCrew::work_for(int device) {
  try {
    const backend::DeviceScope scope(runtime_.backend());
    runtime_.backend().set_current_device(device);
    Member& self = member(device);
    self.is_awake = true;
    self.has_begun = true;
    while (const Job* const job = next_job(self)) {
      self.taken_up = now();
      job->call(job->work, self.index);
      self.job.store(nullptr, std::memory_order_release);
    }
  } catch (const std::exception& error) {  // before it was at hand
    disband(error.what());
  }
}

const LaunchCrew::Job* LaunchCrew::next_job(Member& self) {
  constexpr int turns_per_look_at_the_clock = 64;
  SpinWait wait;
  Time until = now() + spin_time;
  while (true) {
    for (int turn = 0; turn < turns_per_look_at_the_clock; ++turn) {
      if (const Job* const job = self.job.load(std::memory_order_acquire)) return job;
      wait.turn();
    }
    if (is_over_) return nullptr;
    if (now() < until) continue;
    const std::uint32_t wake_ups = wake_ups_.load();
    self.is_awake = false;
    if (self.job.load() == nullptr && !is_over_) wake_ups_.wait(wake_ups);
    self.is_awake = true;
    until = now() + spin_time;
  }
}

}  // namespace tutti::transport
