// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/base/at_once.hpp"
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "os/thread.hpp"
#include "tutti/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::nccl_api {

/// Collects the parts that the members of a clique have in one call, such as a split: one thread brings those
/// of some members, and one of the threads carries all of them out. A `Part` has the handle of its member,
/// `comm`.
template <class Part>
class MemberParts {
 public:
  using Lock = std::unique_lock<std::mutex>;
  using Work = std::function<void(std::vector<Part>)>;

  /// `function` is the interface's, `changed` belongs to the mutex that every call of this is made with.
  MemberParts(const char* function, std::condition_variable& changed)
      : function_(function), changed_(changed) {}

  /// Calls `work` in one thread with the parts of all `members`, in order of ranks, once they are there.
  /// Throws what `work` throws, in all threads, or a `Refusal` if a member's part does not come in time; the
  /// communicator has ended then.
  void carry_out(Lock& lock, Communicator& communicator, int members, std::vector<Part> own,
                 const Work& work) {
    const auto deadline = std::chrono::steady_clock::now() + Settings::get().patience;
    Brought brought{.parts = std::move(own)};
    all_.push_back(&brought);
    require_different_members(brought);
    if (static_cast<int>(in_order().size()) == members) carry_out_all(lock, work);
    while (!brought.is_done) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (brought.is_done || is_carrying_out_) continue;
      const bool is_running = communicator.is_running();
      if (is_running && std::chrono::steady_clock::now() < deadline) continue;
      give_up(brought, communicator, is_running, members);
    }
    if (brought.error) std::rethrow_exception(brought.error);
  }

 private:
  /// Holds what one thread has brought.
  struct Brought {
    std::vector<Part> parts{};
    bool is_done = false;
    std::exception_ptr error{};
  };

  [[nodiscard]] std::vector<Part> in_order() const {
    std::vector<Part> all;
    for (const Brought* const one : all_) all.insert(all.end(), one->parts.begin(), one->parts.end());
    std::ranges::stable_sort(all, {}, [](const Part& part) { return part.comm->rank; });
    return all;
  }
  /// Withdraws the latest parts and throws a `Refusal` if one is of a rank that has a part already.
  void require_different_members(const Brought& latest) {
    const std::vector<Part> all = in_order();
    const auto twice = std::ranges::adjacent_find(all, {}, [](const Part& part) { return part.comm->rank; });
    if (twice == all.end()) return;
    std::erase(all_, &latest);
    throw Refusal{
        ncclInvalidUsage,
        fmt::format("{}: rank {} calls it a second time before the first call has been carried out, "
                    "expected one for a communicator at a time",
                    function_, twice->comm->rank)};
  }
  void carry_out_all(Lock& lock, const Work& work) {
    const std::vector<Part> all = in_order();
    is_carrying_out_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      work(all);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    is_carrying_out_ = false;
    for (Brought* const one : std::exchange(all_, {})) {
      one->error = error;
      one->is_done = true;
    }
    changed_.notify_all();
  }
  [[noreturn]] void give_up(const Brought& brought, Communicator& communicator, bool is_running,
                            int members) {
    const std::string sentence = fmt::format(
        "{}: {} of {} ranks of this process have called it, expected all of them in one group or in several "
        "threads, which call it for communicators in the same order",
        function_, in_order().size(), members);
    std::erase(all_, &brought);
    if (!is_running) communicator.check();
    communicator.abort(sentence);
    throw Refusal{ncclTimeout, sentence};
  }

  const char* function_;
  std::condition_variable& changed_;
  std::vector<Brought*> all_;
  bool is_carrying_out_ = false;
};

/// Calls `work` with each clique and the parts of its members, in order of ranks, all at the same time: other
/// threads and processes may have the cliques of a group in another order. `role` is that of the threads.
template <class Part, class Work>
void for_each_clique(std::vector<Part> all, const backend::Thread::Role& role, const Work& work) {
  std::ranges::stable_sort(all, {}, [](const Part& part) { return part.comm->rank; });
  std::vector<std::shared_ptr<Clique>> cliques;
  std::vector<std::vector<Part>> parts;
  for (Part& part : all) {
    const auto known = std::ranges::find(cliques, part.comm->clique);
    const auto place = static_cast<std::size_t>(known - cliques.begin());
    if (known == cliques.end()) {
      cliques.push_back(part.comm->clique);
      parts.emplace_back();
    }
    parts[place].push_back(std::move(part));
  }
  do_at_once(cliques.size(), role, [&](std::size_t i) { work(*cliques[i], std::move(parts[i])); });
}

}  // namespace tutti::nccl_api
