// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/shard_replicas.hpp"

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/team_call.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/message.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <array>

namespace tutti::collectives {
namespace {

using Age = ShardReplicas::Age;
using Copies = ShardReplicas::Copies;
using Tensors = ShardReplicas::Tensors;

/// What a rank has, for the others.
struct Holding {
  static constexpr std::size_t most = 4;
  struct Item {
    Age age;
    ShardReplicas::Cut cut;
    std::int64_t locals = 0;
  };
  Age sure;
  std::array<Item, most> items{};
  std::int64_t communicator = -1;  ///< the number of the one before
  std::int64_t first_member = 0;   ///< of the rank, in the communicator that restores
};

std::vector<Holding> gather_holdings(Communicator& communicator, const Holding& mine) {
  if (communicator.rank_count() == 1) return {mine};
  TeamCall call(CommunicatorAccess::context(communicator), Collective::all_gather, {});
  call.signature().set_purpose("ShardedOptimizer");
  transport::team::TeamExchange exchange(CommunicatorAccess::context(communicator).team(),
                                         call.post_without_work());
  return transport::team::gather(exchange, mine);
}

/// Where a copy of a member's shard is.
struct Source {
  int root = 0;  ///< the member of the new communicator that has it
  bool is_own = true;
  std::int64_t local = 0;  ///< of the rank that has it
};

/// Returns the members before a rank's own that are in the places of its own.
std::int64_t member_before(std::int64_t member, std::int64_t locals, std::int64_t members) {
  return (member + members - locals) % members;
}

std::optional<Source> source_of(std::int64_t member, const Age& age, const std::vector<Holding>& holdings) {
  for (const bool is_own : {true, false}) {
    for (const Holding& holding : holdings) {
      for (const Holding::Item& item : holding.items) {
        if (item.age != age) continue;
        for (std::int64_t local = 0; local < item.locals; ++local) {
          const std::int64_t own = item.cut.first + local;
          if ((is_own ? own : member_before(own, item.locals, item.cut.members)) == member)
            return Source{static_cast<int>(holding.first_member + local), is_own, local};
        }
      }
    }
  }
  return std::nullopt;
}

/// Returns how buffers were cut when copies of this age were made.
ShardReplicas::Cut cut_of(const Age& age, const std::vector<Holding>& holdings) {
  for (const Holding& holding : holdings) {
    for (const Holding::Item& item : holding.items) {
      if (item.age == age) return item.cut;
    }
  }
  return {};
}

/// Returns where the shards of all members are, or nothing if some are nowhere.
std::optional<std::vector<Source>> sources_of(const Age& age, const std::vector<Holding>& holdings) {
  if (age.communicator < 0) return std::nullopt;
  std::vector<Source> sources;
  for (std::int64_t member = 0; member < cut_of(age, holdings).members; ++member) {
    const std::optional<Source> source = source_of(member, age, holdings);
    if (!source) return std::nullopt;
    sources.push_back(*source);
  }
  return sources;
}

Tensors whole_buffers(const ParameterShard& shard, std::int64_t elements) {
  Tensors full{zeros({elements}, {.dtype = shard.parameters.dtype(), .device = shard.parameters.device()})};
  for (const Tensor& state : shard.state)
    full.push_back(zeros({elements}, {.dtype = state.dtype(), .device = state.device()}));
  return full;
}

Tensors empty_copies(const ParameterShard& shard) {
  Tensors tensors{empty_like(shard.parameters)};
  for (const Tensor& state : shard.state) tensors.push_back(empty_like(state));
  return tensors;
}

Tensors tensors_of(const ParameterShard& shard) {
  Tensors tensors{shard.parameters};
  tensors.insert(tensors.end(), shard.state.begin(), shard.state.end());
  return tensors;
}

/// Fills the part of a member from whole buffers, as far as these have it.
void take_part(const Tensors& target, const Tensors& full, std::int64_t member) {
  for (std::size_t t = 0; t < target.size(); ++t) {
    const std::int64_t elements = target[t].numel();
    const std::int64_t begin = member * elements;
    const std::int64_t count = std::clamp<std::int64_t>(full[t].numel() - begin, 0, elements);
    if (count < elements) target[t].fill_(0);
    if (count > 0) target[t].narrow(0, 0, count).copy_(full[t].narrow(0, begin, count));
  }
}

void keep_on_current_stream(const Tensors& tensors) {
  for (const Tensor& tensor : tensors) tensor.record_stream(current_stream(tensor.device()));
}

}  // namespace

ShardReplicas::ShardReplicas(Communicator& communicator, const std::vector<ParameterShard>& shards,
                             const Start& start, const ShardReplicas* before)
    : communicator_(communicator), shards_(shards), number_(start.communicator), ends_(shards.size()) {
  const auto locals = static_cast<std::int64_t>(shards.size());
  for (Copies& copies : copies_) {
    copies.cut = {communicator.member_count(), communicator.first_member(),
                  shards.front().parameters.numel()};
    for (const ParameterShard& shard : shards) {
      copies.own.push_back(empty_copies(shard));
      if (has_others()) copies.others.push_back(empty_copies(shard));
    }
  }
  if (!start.age) return;
  Copies& first = copies_[newest_];
  first.age = {number_, start.age->step};
  for (std::size_t local = 0; local < shards.size(); ++local) {
    const std::int64_t member = first.cut.first + static_cast<std::int64_t>(local);
    take_part(first.own[local], start.full[local], member);
    if (has_others()) {
      take_part(first.others[local], start.full[local], member_before(member, locals, first.cut.members));
    }
  }
  if (before == nullptr) return;
  sure_ = before->sure_;
  for (const Copies* copies : before->all()) {
    if (copies->age == *start.age) inherited_.push_back(*copies);
  }
}

std::vector<const Copies*> ShardReplicas::all() const {
  std::vector<const Copies*> all;
  for (const Copies& copies : inherited_) all.push_back(&copies);
  for (const Copies& copies : copies_) {
    if (copies.age.communicator >= 0) all.push_back(&copies);
  }
  return all;
}

void ShardReplicas::begin_step() {
  if (!is_awaited() || !std::ranges::all_of(ends_, &Event::query)) return;
  if (communicator_.is_running()) become_sure();
}

bool ShardReplicas::is_awaited() const {
  return is_marked_ && sure_ != copies_[newest_].age;
}

void ShardReplicas::become_sure() {
  sure_ = copies_[newest_].age;
  inherited_.clear();
}

void ShardReplicas::save(std::int64_t step) {
  if (is_awaited()) {
    for (const Event& end : ends_) end.synchronize();
    communicator_.check();
    become_sure();
  }
  newest_ = 1 - newest_;
  is_marked_ = false;
  Copies& copies = copies_[newest_];
  copies.age = {number_, step};
  std::vector<Message> messages;
  const auto locals = static_cast<std::int64_t>(shards_.size());
  for (std::size_t local = 0; local < shards_.size(); ++local) {
    const Tensors tensors = tensors_of(shards_[local]);
    const std::int64_t member = copies.cut.first + static_cast<std::int64_t>(local);
    const auto next = static_cast<int>((member + locals) % copies.cut.members);
    const auto before = static_cast<int>(member_before(member, locals, copies.cut.members));
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      copies.own[local][t].copy_(tensors[t]);
      if (!has_others()) continue;
      messages.push_back(Message::send(copies.own[local][t], next));
      messages.push_back(Message::recv(copies.others[local][t], before));
    }
    keep_on_current_stream(copies.own[local]);
  }
  if (!messages.empty()) communicator_.batch_send_recv(messages);
}

void ShardReplicas::note_end_of_step() {
  if (is_marked_ || copies_[newest_].age.communicator < 0) return;
  is_marked_ = true;
  for (std::size_t local = 0; local < shards_.size(); ++local)
    ends_[local].record(current_stream(shards_[local].parameters.device()));
}

void ShardReplicas::forget() {
  ++number_;
  inherited_.clear();
  for (Copies& copies : copies_) copies.age = {};
  sure_ = {};
  is_marked_ = false;
}

ShardReplicas::Start ShardReplicas::restore(Communicator& communicator, const ShardReplicas* held,
                                            const std::vector<ParameterShard>& like) {
  const std::vector<const Copies*> mine = held == nullptr ? std::vector<const Copies*>{} : held->all();
  Holding holding{.sure = {}, .items = {}, .first_member = communicator.first_member()};
  if (held != nullptr) {
    holding.sure = held->sure_;
    holding.communicator = held->number_;
  }
  for (std::size_t i = 0; i < mine.size(); ++i)
    holding.items.at(i) = {mine[i]->age, mine[i]->cut, static_cast<std::int64_t>(mine[i]->own.size())};
  const std::vector<Holding> holdings = gather_holdings(communicator, holding);
  Start start{.communicator = 1 + std::ranges::max(holdings, {}, &Holding::communicator).communicator,
              .age = std::nullopt,
              .full = {}};
  const Age newest = std::ranges::max(holdings, {}, &Holding::sure).sure;
  const std::optional<std::vector<Source>> sources = sources_of(newest, holdings);
  if (!sources) return start;

  start.age = newest;
  const std::int64_t elements = cut_of(newest, holdings).shard_elements;
  for (const ParameterShard& shard : like)
    start.full.push_back(whole_buffers(shard, elements * static_cast<std::int64_t>(sources->size())));
  const auto own = std::ranges::find(mine, newest, &Copies::age);
  for (std::size_t member = 0; member < sources->size(); ++member) {
    const Source& source = (*sources)[member];
    const std::int64_t local = source.root - communicator.first_member();
    const bool is_here = local >= 0 && local < static_cast<std::int64_t>(like.size());
    for (std::size_t t = 0; t < start.full.front().size(); ++t) {
      std::vector<Tensor> parts;
      for (const Tensors& full : start.full)
        parts.push_back(full[t].narrow(0, static_cast<std::int64_t>(member) * elements, elements));
      if (is_here) {
        const std::vector<Tensors>& copies = source.is_own ? (*own)->own : (*own)->others;
        parts[static_cast<std::size_t>(local)].copy_(copies[static_cast<std::size_t>(source.local)][t]);
        keep_on_current_stream(copies[static_cast<std::size_t>(source.local)]);
      }
      communicator.broadcast(parts, source.root);
    }
  }
  return start;
}

}  // namespace tutti::collectives
