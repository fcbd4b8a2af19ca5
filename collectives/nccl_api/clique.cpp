// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/clique.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/issue.hpp"
#include "collectives/nccl_api/meeting/meeting.hpp"
#include "collectives/nccl_api/meeting/meeting_host.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> latest{0};
  return latest.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Clique::Clique(Communicator communicator, const Token& token)
    : communicator_(std::move(communicator)),
      token_(token),
      number_(next_number()),
      devices_(communicator_.devices()),
      first_rank_(communicator_.first_member()),
      ranks_(communicator_.member_count()),
      collectives_(devices_.size()) {}

Clique::~Clique() {
  if (growth_) call_off(*growth_);
}

void Clique::carry_out(const Call& call) {
  const Caller caller(*this);
  nccl_api::issue(communicator_, call);
}

void Clique::send_and_receive(std::span<const Call> messages) {
  const Caller caller(*this);
  nccl_api::issue_messages(communicator_, messages);
}

template <class Work>
std::exception_ptr Clique::issue_alone(Lock& lock, const Work& work) {
  is_issuing_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  is_issuing_ = false;
  return error;
}

bool Clique::carry_out_at_once(std::span<const Call> calls) {
  const Caller caller(*this);
  Lock lock(mutex_);
  if (is_issuing_ || !std::ranges::all_of(collectives_, &Queue::empty)) return false;
  const std::exception_ptr error = issue_alone(lock, [&] { issue_of_all(communicator_, calls); });
  changed_.notify_all();
  if (error) std::rethrow_exception(error);
  return true;
}

void Clique::carry_out(std::span<Batch> batches) {
  const Caller caller(*this);
  if (size() == 1) {
    Batch* const only = batches.data();
    issue_collectives(communicator_, std::span(&only, 1));
    return nccl_api::issue_messages(communicator_, std::span(&only, 1));
  }
  carry_out_collectives(batches);
  carry_out_messages(batches);
}

void Clique::carry_out_collectives(std::span<Batch> batches) {
  Lock lock(mutex_);
  for (Batch& batch : batches) {
    batch.is_done = batch.collectives.empty();
    if (!batch.is_done) collectives_[static_cast<std::size_t>(batch.comm->local)].push_back(&batch);
  }
  await(lock, batches, [&] {
    while (!is_issuing_ && have_all_called()) issue_next(lock);
  });
}

void Clique::carry_out_messages(std::span<Batch> batches) {
  Lock lock(mutex_);
  for (Batch& batch : batches) {
    batch.is_done = batch.messages.empty();
    if (!batch.is_done) messages_.push_back(&batch);
  }
  await(lock, batches, [&] {
    while (!is_issuing_ && !messages_.empty() && are_messages_paired()) issue_messages(lock);
  });
}

bool Clique::have_all_called() const noexcept {
  return std::ranges::none_of(collectives_, &Queue::empty);
}

std::map<std::pair<int, int>, int> Clique::unpaired_messages() const {
  std::map<std::pair<int, int>, int> unpaired;
  for (const Batch* const batch : messages_) {
    for (const Call& call : batch->messages) {
      const bool is_local = call.peer >= first_rank_ && call.peer < first_rank_ + size();
      if (!is_local) continue;
      if (call.kind == Kind::send) {
        ++unpaired[{batch->comm->rank, call.peer}];
      } else {
        --unpaired[{call.peer, batch->comm->rank}];
      }
    }
  }
  std::erase_if(unpaired, [](const auto& entry) { return entry.second == 0; });
  return unpaired;
}

bool Clique::are_messages_paired() const {
  return unpaired_messages().empty();
}

void Clique::issue_next(Lock& lock) {
  std::vector<Batch*> batches;
  for (Queue& queue : collectives_) {
    batches.push_back(queue.front());
    queue.pop_front();
  }
  issue(lock, batches, [&] { issue_collectives(communicator_, batches); });
}

void Clique::issue_messages(Lock& lock) {
  const std::vector<Batch*> batches = std::exchange(messages_, {});
  issue(lock, batches, [&] { nccl_api::issue_messages(communicator_, batches); });
}

void Clique::issue(Lock& lock, std::span<Batch* const> batches, const std::function<void()>& work) {
  const std::exception_ptr error = issue_alone(lock, work);
  for (Batch* const batch : batches) {
    batch->error = error;
    batch->is_done = true;
  }
  changed_.notify_all();
}

void Clique::await(Lock& lock, std::span<Batch> batches, const std::function<void()>& progress) {
  const auto deadline = std::chrono::steady_clock::now() + Settings::get().patience;
  for (;;) {
    progress();
    if (std::ranges::all_of(batches, &Batch::is_done)) break;
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (is_issuing_) continue;  // these may be the ones
    if (!communicator_.is_running()) {
      withdraw(batches);
      communicator_.check();
    }
    if (std::chrono::steady_clock::now() < deadline) continue;
    const int missing = missing_rank(batches);
    withdraw(batches);
    const std::string sentence =
        fmt::format("rank {} waits for rank {} of the same process, whose call has not come",
                    batches.front().comm->rank, missing);
    communicator_.abort(sentence);
    throw Refusal{ncclTimeout, sentence};
  }
  for (const Batch& batch : batches) {
    if (batch.error) std::rethrow_exception(batch.error);
  }
}

void Clique::withdraw(std::span<Batch> batches) {
  for (Batch& batch : batches) {
    std::erase(collectives_[static_cast<std::size_t>(batch.comm->local)], &batch);
    std::erase(messages_, &batch);
  }
}

int Clique::missing_rank(std::span<Batch> batches) const {
  const bool has_message = std::ranges::any_of(batches, [this](const Batch& batch) {
    return std::ranges::find(messages_, &batch) != messages_.end();
  });
  if (const auto unpaired = unpaired_messages(); has_message && !unpaired.empty()) {
    const auto& [ends, count] = *unpaired.begin();
    return count > 0 ? ends.second : ends.first;
  }
  const auto empty = std::ranges::find_if(collectives_, &Queue::empty);
  return first_rank_ + static_cast<int>(empty == collectives_.end() ? 0 : empty - collectives_.begin());
}

void Clique::split(std::vector<Splitting> own, const std::function<void(std::vector<Splitting>)>& work) {
  const Caller caller(*this);
  Lock lock(mutex_);
  splits_.carry_out(lock, communicator_, size(), std::move(own), work);
}

void Clique::grow(std::vector<Growing> own, const std::function<void(std::vector<Growing>)>& work) {
  const Caller caller(*this);
  Lock lock(mutex_);
  growths_.carry_out(lock, communicator_, size(), std::move(own), work);
}

MeetingAddress Clique::announce_growth() {
  const MeetingAddress address = MeetingHost::get().announce(ranks());
  if (const std::optional<MeetingAddress> before = exchange_growth(address)) call_off(*before);
  return address;
}

std::optional<MeetingAddress> Clique::exchange_growth(std::optional<MeetingAddress> address) {
  const Lock lock(mutex_);
  return std::exchange(growth_, address);
}

void Clique::abort() {
  communicator_.abort("ncclCommAbort");
  {
    const Lock lock(mutex_);
    changed_.notify_all();
  }
  for (int callers = callers_.load(std::memory_order_acquire); callers != 0;
       callers = callers_.load(std::memory_order_acquire))
    callers_.wait(callers, std::memory_order_acquire);
}

}  // namespace tutti::nccl_api
