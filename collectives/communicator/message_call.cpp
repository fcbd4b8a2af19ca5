// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/message_call.hpp"

#include "backend/work_label.hpp"
#include "collectives/call/disjoint.hpp"
#include "device/foreign_memory.hpp"
#include "transport/launch/launch.hpp"
#include "transport/launch/stand_ins.hpp"
#include "transport/select/select.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::team::LinkHalf;

constexpr std::size_t most_messages_named = 4;

}  // namespace

std::size_t LinkCall::member(const LinkItem& item) const {
  return team_.membership().first_local() + item.local;
}

bool LinkCall::is_local(const LinkItem& item) const {
  return team_.membership().is_local(static_cast<std::size_t>(item.message.peer()));
}

bool LinkCall::is_received(const LinkItem& item) {
  return item.message.kind() == Message::Kind::recv;
}

void LinkCall::add(const Message& message, const Name& tensor_name, const Name& peer_name) {
  const auto members = static_cast<int>(team_.membership().member_count());
  if (message.peer() < 0 || message.peer() >= members)
    arguments_.fail("{} is {}, expected 0 to {}", peer_name, message.peer(), members - 1);
  const Tensor& tensor = message.tensor();
  arguments_.usable(tensor, tensor_name);
  const std::vector<Device>& devices = context_.devices();
  const auto device = std::ranges::find(devices, tensor.device());
  if (device == devices.end()) {
    arguments_.fail("{} is on {}, expected the device of a local member, the first of which is {}",
                    tensor_name, to_string(tensor.device()), to_string(devices.front()));
  }
  if (message.kind() == Message::Kind::recv) arguments_.writable(tensor, tensor_name);
  items_.push_back({message, tensor_name, static_cast<std::size_t>(device - devices.begin()), {}});
}

void LinkCall::require_means() const {
  const bool is_far = std::ranges::any_of(items_, [&](const LinkItem& item) { return !is_local(item); });
  if (!is_far) return;
  if (const std::string refusal = context_.messages().refusal(); !refusal.empty())
    arguments_.unsupported("{}", refusal);
}

void LinkCall::require_apart() const {
  MemoryRuns runs;
  runs.start_inputs();
  for (const LinkItem& item : items_) {
    if (!is_received(item)) runs.add(item.message.tensor());
  }
  runs.start_outputs();
  for (const LinkItem& item : items_) {
    if (is_received(item)) runs.add(item.message.tensor());
  }
  if (runs.are_disjoint()) return;
  std::vector<Named> sent;
  std::vector<Named> received;
  for (const LinkItem& item : items_) {
    (is_received(item) ? received : sent)
        .push_back({item.name.argument, {&item.message.tensor(), 1}, static_cast<int>(item.name.row), true});
  }
  require_disjoint_one_by_one(arguments_, sent, received, InPlace::forbidden, false);
}

void LinkCall::pair_up() {
  std::map<std::pair<std::size_t, std::size_t>, std::array<std::vector<std::size_t>, 2>> links;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const LinkItem& item = items_[i];
    if (!is_local(item)) continue;
    const auto peer = static_cast<std::size_t>(item.message.peer());
    const bool receives = is_received(item);
    const auto link = receives ? std::pair(peer, member(item)) : std::pair(member(item), peer);
    links[link][receives ? 1 : 0].push_back(i);
  }
  for (const auto& [link, sides] : links) {
    const auto& [sent, received] = sides;
    if (sent.size() != received.size()) {
      arguments_.fail(
          "{} messages are sent from member {} to member {} and {} are received, expected equal numbers: "
          "a message inside a process needs both sides in one batch",
          sent.size(), link.first, link.second, received.size());
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const LinkItem& from = items_[sent[i]];
      const LinkItem& to = items_[received[i]];
      arguments_.same_dtype(to.message.tensor(), to.name, from.message.tensor().dtype(), from.name);
      if (to.message.tensor().numel() != from.message.tensor().numel()) {
        arguments_.fail("{} has {} elements, expected {} as {}", to.name, to.message.tensor().numel(),
                        from.message.tensor().numel(), from.name);
      }
      pairs_.push_back({sent[i], received[i]});
    }
  }
}

void LinkCall::pack() {
  for (LinkItem& item : items_) {
    const Tensor& tensor = item.message.tensor();
    if (tensor.is_contiguous()) {
      item.dense = tensor;
      continue;
    }
    const LayoutPtr dense = layout_in(*tensor.layout(), MemoryFormat::contiguous);
    item.dense = is_received(item) ? packing_.output(tensor, *dense, item.name, stream(item.local))
                                   : packing_.input(tensor, *dense, item.name);
  }
}

void LinkCall::collect_transfers() {
  halves_.clear();
  transfers_.clear();
  for (const LinkItem& item : items_) {
    if (is_local(item)) continue;
    const LinkHalf& half =
        halves_.emplace_back(LinkHalf{.member = member(item),
                                      .peer = static_cast<std::size_t>(item.message.peer()),
                                      .is_sent = !is_received(item),
                                      .elements = static_cast<std::uint64_t>(item.dense.numel()),
                                      .dtype = item.dense.dtype()});
    transfers_.push_back({.half = half, .address = address_of(item.dense), .bytes = item.dense.nbytes()});
  }
}

void LinkCall::collect_inside() {
  inside_.clear();
  for (const LocalPair& pair : pairs_) {
    const LinkItem& from = items_[pair.sent];
    const LinkItem& to = items_[pair.received];
    if (from.dense.nbytes() == 0) continue;
    inside_.push_back({.sender = from.local,
                       .receiver = to.local,
                       .source = address_of(from.dense),
                       .target = address_of(to.dense),
                       .bytes = from.dense.nbytes()});
  }
}

transport::MessageShape LinkCall::find_shape() const {
  transport::MessageShape shape;
  for (const transport::team::LinkTransfer& transfer : transfers_) shape.far.add(transfer.bytes);
  std::array<bool, transport::team::most_local_members> has_part{};
  for (const transport::InsideMessage& message : inside_) {
    shape.inside.add(message.bytes);
    if (message.sender != message.receiver) has_part[message.sender] = has_part[message.receiver] = true;
  }
  const auto involved = static_cast<std::size_t>(std::ranges::count(has_part, true));
  shape.is_among_all = involved > 0 && involved == team_.membership().member_count();
  return shape;
}

std::shared_ptr<const transport::Plan> LinkCall::find_plan() {
  const transport::MessageShape shape = find_shape();
  // Copies between devices make the streams wait for one another, which those of different graphs cannot.
  const bool avoids_copies = context_.launcher().captured().size() > 1 && has_copies_between_members();
  if (transport::may_be_a_round(shape, context_.capabilities(), avoids_copies)) {
    std::shared_ptr<const transport::Plan> plan = context_.plan_for(inside_);
    const transport::team::RoundPlan& rounds = *transport::rounds_of(*plan);
    bind();
    if ((avoids_copies || transport::are_better_than_copies(rounds)) &&
        context_.launcher().may_expose(rounds, operands_.addresses))
      return plan;
  }
  if (avoids_copies) {
    arguments_.unsupported(
        "messages between members of this process: their streams are being captured into different graphs, "
        "expected one graph");
  }
  return context_.messages().plan_for(shape);
}

bool LinkCall::has_copies_between_members() const {
  return std::ranges::any_of(
      inside_, [](const transport::InsideMessage& message) { return message.sender != message.receiver; });
}

void LinkCall::bind() {
  operands_.addresses.clear();
  for (const transport::InsideMessage& message : inside_)
    operands_.addresses.insert(operands_.addresses.end(), {message.source, message.target});
  operands_.lanes = streams_;
  operands_.storages.clear();
  operands_.operation = {};
}

void LinkCall::replace_closed() {
  const auto replace = [this](std::size_t index, std::size_t other) {
    LinkItem& item = items_[index];
    const std::array peers{device_of(items_[other].local).index()};
    if (is_open_to_all(item.dense.storage().get()) ||
        runtime().part<ForeignMemory>().is_open_to(peers, {address_of(item.dense), item.dense.nbytes()}))
      return;
    context_.tell_of_stand_ins(item.local, closed_to_peers, address_of(item.dense));
    const backend::StreamRef stream = streams_[item.local];
    detail::IntrusivePtr<Storage> storage =
        transport::allocate_stand_in(runtime(), stream, item.dense.nbytes());
    void* const memory = storage->data();
    Tensor stand_in(std::move(storage), TensorView(memory, item.dense.layout(), item.dense.device()));
    stand_ins_.push_back({index, std::exchange(item.dense, std::move(stand_in))});
  };
  for (const LocalPair& pair : pairs_) {
    if (items_[pair.sent].local == items_[pair.received].local) continue;
    replace(pair.sent, pair.received);
    replace(pair.received, pair.sent);
  }
}

void LinkCall::copy_in() {
  for (const auto& [index, replaced] : stand_ins_) {
    const LinkItem& item = items_[index];
    if (is_received(item)) continue;
    runtime().backend().copy(
        streams_[item.local],
        {.target = address_of(item.dense), .source = address_of(replaced), .row_bytes = replaced.nbytes()});
  }
}

void LinkCall::copy_back() {
  for (const auto& [index, replaced] : stand_ins_) {
    const LinkItem& item = items_[index];
    if (!is_received(item)) continue;
    runtime().backend().copy(
        streams_[item.local],
        {.target = address_of(replaced), .source = address_of(item.dense), .row_bytes = replaced.nbytes()});
  }
  packing_.unpack();
}

std::string LinkCall::messages_in_words() const {
  std::string text;
  for (const LinkItem& item : std::span(items_).first(std::min(items_.size(), most_messages_named))) {
    const Tensor& tensor = item.message.tensor();
    text +=
        fmt::format("{}{} {} {} member {}", text.empty() ? "" : ", ", tensor.numel(),
                    tutti::name_of(tensor.dtype()), is_received(item) ? "from" : "to", item.message.peer());
  }
  if (items_.size() > most_messages_named)
    text += fmt::format(" and {} more", items_.size() - most_messages_named);
  return text;
}

watching::WatchedCall LinkCall::watched() const {
  watching::WatchedCall watched = TeamTurn::watched(plan_->summary);
  watched.member->sequence = sequence_;
  watched.name = name_;
  watched.messages = messages_in_words();
  for (const LinkItem& item : items_) watched.bytes += item.message.tensor().nbytes();
  return watched;
}

void LinkCall::run() {
  team_.abort().require_running();
  require_means();
  require_apart();
  pair_up();
  if (items_.empty()) return;
  context_.launcher().begin(streams_);
  pack();
  collect_inside();
  collect_transfers();
  plan_ = find_plan();
  if (transport::rounds_of(*plan_) == nullptr) {
    replace_closed();
    if (!stand_ins_.empty()) collect_inside();
  }
  if (transport::rounds_of(*plan_) != nullptr) {
    const transport::team::Signature signature{.operands = transport::team::CallOperands::messages,
                                               .tensors = static_cast<std::uint32_t>(inside_.size())};
    sequence_ = team_.calls().post(signature, is_captured());
  }
  // What fails here ends the team, too: some halves may have got their numbers.
  std::uint64_t number = 0;
  const auto launch = [&] {
    const watching::CallRange range([this] { return watched(); });
    if (!stand_ins_.empty()) range.note_stand_ins();
    if (!halves_.empty()) number = team_.links().post(halves_, is_captured());
    enqueue(number);
  };
  carry_out(launch, [&] {
    if (number != 0) mark(number);
  });
  if (sequence_ != 0) team_.calls().has_queued(sequence_);
}

void LinkCall::enqueue(std::uint64_t number) {
  keep_memory();
  const backend::WorkLabel label(this, [](const void* call) {
    const auto* const link_call = static_cast<const LinkCall*>(call);
    return fmt::format("{} of a communicator: {}", link_call->name_, link_call->messages_in_words());
  });
  if (transport::rounds_of(*plan_) != nullptr) {
    transport::launch_of_team(context_.runtime(), *plan_, operands_, {}, {context_.launcher(), sequence_});
  } else {
    copy_in();
    context_.messages().copy(inside_, streams_);
    if (!transfers_.empty())
      context_.messages().launch(context_.launcher().launching(), number, transfers_, streams_);
  }
  context_.set_last_plan(plan_, !stand_ins_.empty());
  copy_back();
}

void LinkCall::mark(std::uint64_t number) {
  for (std::size_t local = 0; local < streams_.size(); ++local) {
    if (auto event = context_.launcher().end_of_call(local)) {
      team_.progress().mark_batch(local, number, std::move(event));
    } else {
      team_.progress().mark_batch(local, number, streams_[local]);
    }
  }
}

void LinkCall::keep_memory() const {
  TeamTurn::keep_memory([this](const auto& visit) {
    for (const LinkItem& item : items_) visit(item.dense, item.local);
    for (const auto& [item, replaced] : stand_ins_) visit(replaced, items_[item].local);
    // Who sends does the copy.
    for (const LocalPair& pair : pairs_) visit(items_[pair.received].dense, items_[pair.sent].local);
  });
}

}  // namespace tutti::collectives
