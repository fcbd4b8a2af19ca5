// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/group.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/clique.hpp"
#include "collectives/nccl_api/growing.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/joining.hpp"
#include "collectives/nccl_api/nccl_calls.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

/// Returns the batch of the call's rank, which is made if it is not there.
Batch& batch_of(std::vector<Batch>& batches, const Call& call) {
  const auto found = std::ranges::find(batches, call.comm, &Batch::comm);
  return found != batches.end() ? *found : batches.emplace_back(Batch{.comm = call.comm});
}

std::vector<Batch> batches_of(std::span<const Call> calls) {
  std::vector<Batch> batches;
  for (const Call& call : calls) {
    Batch& batch = batch_of(batches, call);
    (is_message(call.kind) ? batch.messages : batch.collectives).push_back(call);
  }
  return batches;
}

/// Returns the cliques in the order of their first calls. But those that wait for calls of other threads,
/// which may have them in another order, are in that of `Clique::place`, in the positions that they take.
std::vector<const Clique*> cliques_of(std::span<const Batch> batches) {
  std::vector<const Clique*> order;
  for (const Batch& batch : batches) {
    if (std::ranges::find(order, batch.comm->clique.get()) == order.end())
      order.push_back(batch.comm->clique.get());
  }
  const auto waits = [&](const Clique* clique) {
    const auto called = std::ranges::count(batches, clique, [](const Batch& batch) {
      return static_cast<const Clique*>(batch.comm->clique.get());
    });
    return called < clique->size();
  };
  std::vector<const Clique*> waiting;
  std::ranges::copy_if(order, std::back_inserter(waiting), waits);
  std::ranges::sort(waiting, {}, &Clique::place);
  auto next = waiting.cbegin();
  for (const Clique*& clique : order) {
    if (waits(clique)) clique = *next++;
  }
  return order;
}

/// Returns true if the calls are one collective of each member of one clique.
bool are_of_all_members(std::span<const Call> calls) {
  const Clique& clique = *calls.front().comm->clique;
  if (calls.size() != static_cast<std::size_t>(clique.size())) return false;
  for (auto call = calls.begin(); call != calls.end(); ++call) {
    if (call->comm->clique.get() != &clique || is_message(call->kind)) return false;
    if (std::find_if(calls.begin(), call, [&](const Call& other) { return other.comm == call->comm; }) !=
        call)
      return false;
  }
  return true;
}

/// Returns true if the calls are messages of one rank.
bool are_messages_of_one(std::span<const Call> calls) {
  return std::ranges::all_of(
      calls, [&](const Call& call) { return is_message(call.kind) && call.comm == calls.front().comm; });
}

}  // namespace

Group& Group::of_thread() {
  thread_local Group group;
  return group;
}

void Group::end() {
  if (depth_ == 0)
    throw Refusal{ncclInvalidUsage,
                  "ncclGroupEnd: no group has been started, expected ncclGroupStart before"};
  if (--depth_ > 0) return;
  const ncclResult_t failure = std::exchange(failure_, ncclSuccess);
  if (failure != ncclSuccess) {
    for (const Joining& joining : joinings_) joining.give_up();
    const std::string sentence = last_error();
    clear();
    leave();
    throw Refusal{
        failure, fmt::format("ncclGroupEnd: a call of the group has failed, and none is made: {}", sentence)};
  }
  carry_out();
}

void Group::abandon() noexcept {
  if (--depth_ == 0) clear();
}

void Group::carry_out() {
  try {
    require_kept();
    join(with_members(std::exchange(joinings_, {}), std::exchange(growings_, {})));
    split(std::exchange(splittings_, {}));
    carry_out_calls();
    forward_calls();
  } catch (...) {
    clear();
    leave();
    throw;
  }
  clear();
  leave();
}

void Group::forward_calls() {
  if (forwarded_.empty()) return;
  const std::vector<Forwarded> all = std::exchange(forwarded_, {});
  NcclGroup group;
  for (const Forwarded& one : all)
    group.take(one.function, one.comm == nullptr ? nullptr : one.comm->nccl, one.call());
  group.end();
  for (const Forwarded& one : all) {
    if (one.finish) one.finish();
  }
}

void Group::leave() {
  if (!leaving_.empty()) destroy(std::exchange(leaving_, {}));
}

void Group::keep(ncclComm_t comm) {
  const bool is_kept = std::ranges::any_of(kept_, [&](const auto& handle) { return handle.get() == comm; });
  if (!is_kept) kept_.push_back(comm->shared_from_this());
}

void Group::require_kept() const {
  const auto lost =
      std::ranges::find_if(kept_, [](const auto& handle) { return handle->is_given_back.load(); });
  if (lost == kept_.end()) return;
  throw Refusal{ncclInvalidUsage,
                fmt::format("ncclGroupEnd: another thread has aborted or destroyed the communicator of rank "
                            "{}, of which the group has calls: none is made",
                            (*lost)->rank)};
}

void Group::carry_out_calls() {
  if (calls_.empty()) return;
  const std::shared_ptr<Clique> first_clique = calls_.front().comm->clique;  // an abort frees the handle
  if (calls_.size() == 1 && first_clique->size() == 1) return first_clique->carry_out(calls_.front());
  if (first_clique->size() == 1 && are_messages_of_one(calls_)) return first_clique->send_and_receive(calls_);
  if (are_of_all_members(calls_)) {
    std::ranges::sort(calls_, {}, [](const Call& call) { return call.comm->local; });
    if (first_clique->carry_out_at_once(calls_)) return;
  }
  std::vector<Batch> batches = batches_of(calls_);
  // Those of one clique one behind the other.
  const std::vector<const Clique*> order = cliques_of(batches);
  std::ranges::stable_sort(batches, {}, [&](const Batch& batch) {
    return std::ranges::find(order, batch.comm->clique.get()) - order.begin();
  });
  for (auto first = batches.begin(); first != batches.end();) {
    const auto end = std::find_if(
        first, batches.end(), [&](const Batch& batch) { return batch.comm->clique != first->comm->clique; });
    const std::shared_ptr<Clique> clique = first->comm->clique;  // an abort frees the handle
    clique->carry_out(std::span(first, end));
    first = end;
  }
}

void Group::add(const Call& call) {
  if (depth_ == 0 && call.comm->clique->size() == 1) {
    const std::shared_ptr<Clique> clique = call.comm->clique;  // an abort frees the handle
    return clique->carry_out(call);
  }
  keep(call.comm);
  calls_.push_back(call);
  if (depth_ == 0) carry_out();
}

void Group::add(const Joining& joining) {
  joinings_.push_back(joining);
  if (depth_ == 0) carry_out();
}

void Group::add(const Splitting& splitting) {
  keep(splitting.comm);
  splittings_.push_back(splitting);
  if (depth_ == 0) carry_out();
}

void Group::add(Growing growing) {
  keep(growing.comm);
  growings_.push_back(std::move(growing));
  if (depth_ == 0) carry_out();
}

void Group::add(Forwarded forwarded) {
  if (forwarded.comm != nullptr) keep(forwarded.comm);
  forwarded_.push_back(std::move(forwarded));
  if (depth_ == 0) carry_out();
}

void Group::drop(ncclComm_t comm) noexcept {
  std::erase_if(calls_, [&](const Call& call) { return call.comm == comm; });
  std::erase_if(splittings_, [&](const Splitting& splitting) { return splitting.comm == comm; });
  std::erase_if(growings_, [&](const Growing& growing) { return growing.comm == comm; });
  std::erase_if(forwarded_, [&](const Forwarded& one) { return one.comm == comm; });
  std::erase_if(kept_, [&](const auto& handle) { return handle.get() == comm; });
}

void Group::clear() noexcept {
  calls_.clear();
  joinings_.clear();
  splittings_.clear();
  growings_.clear();
  forwarded_.clear();
  kept_.clear();
}

}  // namespace tutti::nccl_api
