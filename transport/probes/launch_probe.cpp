// SPDX-License-Identifier: Apache-2.0
#include "transport/probes/launch_probe.hpp"

#include "device/blocking_call.hpp"
#include "os/thread.hpp"
#include "settings/log.hpp"
#include "storage/storage.hpp"
#include "tutti/error.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <thread>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

/// Far longer than a launch takes. A thread that loses the processor for so long between two calls is given
/// more tries.
constexpr std::chrono::milliseconds longest_launch = 100ms;
constexpr int tries = 3;
/// The time for two threads to start, on a busy machine under a slow tool.
constexpr std::chrono::milliseconds longest_meeting = 5000ms;

/// A kernel that waits, on a stream of its own.
class WaitingKernel {
 public:
  WaitingKernel(Runtime& runtime, int device)
      : backend_(runtime.backend()),
        memory_(PinnedStorage::allocate(runtime, 2 * sizeof(backend::SharedFlag))),
        flags_(static_cast<backend::SharedFlag*>(memory_->data())),
        stream_(backend_.create_stream(device, 0)) {
    std::uninitialized_value_construct_n(flags_, 2);
  }
  WaitingKernel(const WaitingKernel&) = delete;
  WaitingKernel& operator=(const WaitingKernel&) = delete;
  ~WaitingKernel() {
    try {
      backend_.synchronize_stream(stream_);
    } catch (const Error&) {
      // A kernel that has failed is over, too.
    }
    backend_.destroy_stream(stream_);
  }

  /// Returns the flag that it waits for, unless another is given.
  [[nodiscard]] backend::SharedFlag& flag() noexcept { return flags_[0]; }
  /// Not 0 once it is over.
  [[nodiscard]] backend::SharedFlag& outcome() noexcept { return flags_[1]; }
  void launch(backend::SharedFlag& until, std::chrono::milliseconds longest) {
    backend_.wait_in_kernel(stream_, until, longest, outcome());
  }
  /// After the launch: whether what it waited for has come.
  [[nodiscard]] bool has_seen() {
    backend_.synchronize_stream(stream_);
    return outcome().value.load() == 1;
  }

 private:
  backend::Backend& backend_;
  detail::IntrusivePtr<Storage> memory_;
  backend::SharedFlag* flags_;
  backend::StreamRef stream_;
};

bool returns_before_the_end(Runtime& runtime, int device) {
  for (int attempt = 0; attempt < tries; ++attempt) {
    WaitingKernel kernel(runtime, device);
    kernel.launch(kernel.flag(), longest_launch);
    backend::set_flag(kernel.flag(), 1);
    if (kernel.has_seen()) return true;
  }
  return false;
}

/// A kernel that waits for one of another device, which another thread launches meanwhile.
bool meet(Runtime& runtime, int device, int other) {
  WaitingKernel waiting(runtime, device);
  WaitingKernel awaited(runtime, other);
  backend::set_flag(awaited.flag(), 1);
  std::exception_ptr failure;
  std::atomic<bool> is_there = false;
  backend::Thread thread(
      {.name = "tutti-launch", .purpose = "that finds out how kernels can be launched"},
      [&] {
        is_there = true;
        try {
          waiting.launch(awaited.outcome(), longest_meeting);
        } catch (...) {
          failure = std::current_exception();
        }
      },
      [](const backend::Escaped&) {});
  while (!is_there) std::this_thread::sleep_for(1ms);
  // By now the other thread is in its launch. If not, the kernels meet all the same, and nothing more is
  // known than before.
  std::this_thread::sleep_for(10ms);
  try {
    awaited.launch(awaited.flag(), longest_meeting);
  } catch (...) {
    thread.join();
    throw;
  }
  thread.join();
  if (failure) std::rethrow_exception(failure);
  return waiting.has_seen() && awaited.has_seen();
}

}  // namespace

Launching LaunchProbe::find(std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  if (known_) return *known_;
  const BlockingCall blocks("the first call that has several devices' kernels wait for one another");
  if (returns_before_the_end(runtime_, devices[0])) return known_.emplace(Launching::from_one_thread);
  const bool do_meet = meet(runtime_, devices[0], devices[1]);
  log_info(fmt::format("{}: {}", launches_block,
                       do_meet ? "a thread for each device launches kernels that wait for one another"
                               : "kernels of several devices cannot wait for one another"));
  return known_.emplace(do_meet ? Launching::from_own_threads : Launching::impossible);
}

}  // namespace tutti::transport
