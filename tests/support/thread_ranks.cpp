// SPDX-License-Identifier: Apache-2.0
#include "support/thread_ranks.hpp"

#include "support/environment.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {
namespace {

/// Where the threads of one process meet; the last to come gathers for all of them.
class ThreadMeeting {
 public:
  ThreadMeeting(Exchange& processes, int threads) : processes_(processes), threads_(threads) {}

  [[nodiscard]] int first_rank() const { return processes_.rank() * threads_; }
  [[nodiscard]] int size() const { return processes_.size() * threads_; }
  void all_gather(int thread, std::span<const std::byte> mine, std::span<std::byte> all) {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    parts_.resize(mine.size() * static_cast<std::size_t>(threads_));
    std::ranges::copy(mine, parts_.begin() + thread * static_cast<std::ptrdiff_t>(mine.size()));
    if (++arrived_ == threads_) {
      arrived_ = 0;
      gathered_.resize(all.size());
      if (processes_.size() > 1) {
        processes_.all_gather(parts_, gathered_);
      } else {
        std::ranges::copy(parts_, gathered_.begin());  // it may be more than the exchange takes
      }
      ++round_;
      meets_.notify_all();
    } else if (!meets_.wait_for(lock, hang_limit(), [&] { return round_ != round; })) {
      throw std::runtime_error("all_gather: a rank does not come");
    }
    // Nobody gathers again before all have been here: the next round needs them all.
    std::ranges::copy(gathered_, all.begin());
  }

 private:
  Exchange& processes_;
  const int threads_;
  std::mutex mutex_;
  std::condition_variable meets_;
  std::vector<std::byte> parts_;
  std::vector<std::byte> gathered_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
};

class ThreadExchange final : public Exchange {
 public:
  ThreadExchange(ThreadMeeting& meeting, int thread) : meeting_(meeting), thread_(thread) {}

  [[nodiscard]] int rank() const override { return meeting_.first_rank() + thread_; }
  [[nodiscard]] int size() const override { return meeting_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    meeting_.all_gather(thread_, mine, all);
  }

 private:
  ThreadMeeting& meeting_;
  const int thread_;
};

}  // namespace

void run_threads(Exchange& processes, int threads, const Ranks::Body& body) {
  ThreadMeeting meeting(processes, threads);
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&meeting, &body, thread] {
      ThreadExchange exchange(meeting, thread);
      try {
        body(exchange);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << exchange.rank() << " threw: " << error.what();
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}

void expect_threads_right(int processes, int threads, const Ranks::Body& body, std::chrono::seconds limit) {
  expect_all_right(
      processes, [&](Exchange& exchange) { run_threads(exchange, threads, body); }, limit);
}

}  // namespace tutti::test
