// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/folder/network.hpp"

#include "transport/team/shared/agreement.hpp"
#include "tutti/error.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::shared_folder {
namespace {

using Clock = std::chrono::steady_clock;
using Number = std::array<char, 32>;

/// How long a network counts as busy after something has come.
constexpr std::chrono::milliseconds while_busy{50};
/// How often who gets nothing looks whether another rank has told of its end.
constexpr std::chrono::milliseconds between_looks{100};

/// Returns what rank 0 of the exchange has drawn.
std::string common_number(tutti::Exchange& exchange) {
  Number mine{};
  draw_name().copy(mine.data(), mine.size());
  const Number first = transport::team::gather(exchange, mine).front();
  return {first.data(), first.size()};
}

/// Takes a step on all ranks of the exchange. Throws on all of them, and only when all have taken it, if it
/// fails on one.
void take_step(tutti::Exchange& exchange, const std::function<void()>& step) {
  std::optional<Error> own;
  try {
    step();
  } catch (const Error& error) {
    own = error;
  }
  const std::string complaint = transport::team::first_complaint(exchange, own ? own->what() : "");
  if (own) throw Error(*own);
  if (!complaint.empty())
    throw Error(ErrorCode::peer_unavailable, "shared_folder: not all ranks have a network: " + complaint);
}

/// A message is a file "m-SOURCE-COUNT" in the folder "to-TARGET" of the network's folder, which the target
/// removes when it has read it. Messages of a source have consecutive counts from 1. A rank that fails, as
/// the disk is full for instance, tells the others by "end" in the network's folder, for which it has
/// reserved "spare-RANK".
class FolderNetwork final : public Network {
 public:
  FolderNetwork(std::shared_ptr<const Session> session, const tutti::Exchange& exchange, std::string name)
      : session_(std::move(session)),
        rank_(exchange.rank()),
        name_(std::move(name)),
        box_(session_->box().inner(name_)),
        inbox_(box_.inner(inbox_name(rank_))),
        sent_(static_cast<std::size_t>(exchange.size()), 0),
        received_(sent_) {
    box_.reserve(session_->key(), name_, spare_name());
  }
  ~FolderNetwork() override {
    box_.remove_inner(inbox_name(rank_));
    box_.remove(spare_name());
    session_->box().remove_empty(name_);
  }

  /// Opens the folders of all targets, which have made them.
  void open_outboxes() {
    for (std::size_t target = 0; target < sent_.size(); ++target)
      outboxes_.push_back(box_.inner(inbox_name(static_cast<int>(target))));
  }
  [[nodiscard]] std::string name() const override { return "a shared folder"; }
  void send(int target, std::vector<std::byte> bytes) override;
  [[nodiscard]] std::optional<Message> receive() override;
  [[nodiscard]] bool is_delivered() override;
  [[nodiscard]] bool is_busy() override { return !is_delivered() || Clock::now() - latest_ < while_busy; }
  [[nodiscard]] std::unique_ptr<Network> part(std::span<const int> /*ranks*/,
                                              tutti::Exchange& exchange) override {
    return make_network(session_, exchange);
  }

 private:
  [[nodiscard]] static std::string inbox_name(int rank) { return fmt::format("to-{}", rank); }
  [[nodiscard]] static std::string message_name(int source, std::uint64_t count) {
    return fmt::format("m-{}-{}", source, count);
  }
  [[nodiscard]] std::string spare_name() const { return fmt::format("spare-{}", rank_); }
  [[nodiscard]] std::string place_of(int target) const { return name_ + "/" + inbox_name(target); }
  /// Calls `work`, and tells the others if it throws.
  template <class Work>
  auto told(const Work& work);
  void tell(const Error& error) const noexcept;
  /// Throws what another rank has told, if it is time to look.
  void require_going_on();
  void write(int target, const std::vector<std::byte>& bytes);
  [[nodiscard]] bool has_left(int target) const noexcept;
  [[nodiscard]] std::optional<Message> next_message();
  [[nodiscard]] bool has_been_delivered();

  std::shared_ptr<const Session> session_;
  int rank_;
  std::string name_;
  Box box_;
  Box inbox_;
  std::vector<Box> outboxes_;                 ///< by target
  std::vector<std::uint64_t> sent_;           ///< by target
  std::vector<std::uint64_t> received_;       ///< by source
  std::vector<std::uint64_t> taken_ = sent_;  ///< by target: known to have been received
  Clock::time_point latest_{};                ///< when something came
  Clock::time_point next_look_{};             ///< for what other ranks tell
  std::size_t next_source_ = 0;
};

template <class Work>
auto FolderNetwork::told(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    tell(error);
    throw;
  }
}

void FolderNetwork::tell(const Error& error) const noexcept {
  try {
    const std::string text = fmt::format("rank {} cannot go on: {}", rank_, error.what());
    box_.put_by(spare_name(), session_->key(), name_, "end", bytes_of(text));
  } catch (const std::exception&) {
    // It has told already, or its silence tells.
  }
}

void FolderNetwork::require_going_on() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + between_looks;
  const std::optional<Bytes> text = box_.get(session_->key(), name_, "end");
  if (!text) return;
  throw Error(ErrorCode::peer_unavailable, "shared_folder: " + text_of(*text));
}

bool FolderNetwork::has_left(int target) const noexcept {
  try {
    return !box_.has(inbox_name(target));
  } catch (const std::exception&) {
    return false;
  }
}

void FolderNetwork::send(int target, std::vector<std::byte> bytes) {
  told([&] { write(target, bytes); });
}

void FolderNetwork::write(int target, const std::vector<std::byte>& bytes) {
  const auto index = static_cast<std::size_t>(target);
  const std::string name = message_name(rank_, sent_[index] + 1);
  try {
    outboxes_[index].put(session_->key(), place_of(target), name, bytes);
  } catch (const Error&) {
    if (has_left(target)) return;
    throw;
  }
  ++sent_[index];
}

std::optional<Network::Message> FolderNetwork::receive() {
  std::optional<Message> message = told([this] { return next_message(); });
  if (!message) require_going_on();
  return message;
}

bool FolderNetwork::is_delivered() {
  return told([this] { return has_been_delivered(); });
}

std::optional<Network::Message> FolderNetwork::next_message() {
  const std::size_t sources = received_.size();
  // One listing tells of all sources; the first one in turn is served, so that none is left behind.
  std::vector<bool> has_come(sources, false);
  for (const std::string& name : inbox_.names()) {
    for (std::size_t source = 0; source < sources; ++source) {
      if (name == message_name(static_cast<int>(source), received_[source] + 1)) has_come[source] = true;
    }
  }
  for (std::size_t i = 0; i < sources; ++i) {
    const std::size_t source = (next_source_ + i) % sources;
    if (!has_come[source]) continue;
    const std::string name = message_name(static_cast<int>(source), received_[source] + 1);
    std::optional<Bytes> bytes = inbox_.get(session_->key(), place_of(rank_), name);
    if (!bytes) {
      throw Error(ErrorCode::transport_failure,
                  fmt::format("shared_folder: {}/{} has been changed by others", inbox_.path(), name));
    }
    inbox_.remove(name);
    ++received_[source];
    next_source_ = source + 1;
    latest_ = Clock::now();
    return Message{static_cast<int>(source), std::move(*bytes)};
  }
  return std::nullopt;
}

bool FolderNetwork::has_been_delivered() {
  for (std::size_t target = 0; target < sent_.size(); ++target) {
    if (taken_[target] == sent_[target]) continue;
    if (outboxes_[target].has(message_name(rank_, sent_[target]))) return false;
    taken_[target] = sent_[target];
  }
  return true;
}

}  // namespace

std::unique_ptr<Network> make_network(std::shared_ptr<const Session> session, tutti::Exchange& exchange) {
  const std::string name = "net-" + common_number(exchange);
  std::unique_ptr<FolderNetwork> network;
  take_step(exchange, [&] { network = std::make_unique<FolderNetwork>(std::move(session), exchange, name); });
  take_step(exchange, [&] { network->open_outboxes(); });
  return network;
}

}  // namespace tutti::shared_folder
