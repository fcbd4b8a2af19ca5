// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/team_turn.hpp"
#include "transport/rounds/link_launcher.hpp"
#include "tutti/message.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// A batch of messages of a communicator's members to one another: checks, announcement, launch. It takes its
/// turn among the calls of this rank. Other ranks know of it what is sent to them and received from them.
class LinkCall final : public TeamTurn {
 public:
  /// `name`: of the function that is called, for messages of errors.
  LinkCall(TeamContext& context, std::string_view name, StreamList streams)
      : TeamTurn(context, name, streams) {}

  /// Adds a message, `names` being those of its tensor and of its other member. Throws
  /// Error(invalid_argument).
  void add(const Message& message, const Name& tensor_name, const Name& peer_name);
  /// Throws before anything is queued if the messages do not go together; then announces and enqueues them.
  void run();

 private:
  struct Item {
    Message message;
    Name name;
    std::size_t local;  ///< whose side it is
    Tensor dense;       ///< it, or a stand-in
  };
  /// Both sides of a message between two members of this process.
  struct LocalPair {
    std::size_t sent;  ///< index of an item
    std::size_t received;
  };

  [[nodiscard]] std::size_t member(const Item& item) const;
  [[nodiscard]] bool is_local(const Item& item) const;
  [[nodiscard]] bool is_received(const Item& item) const;
  /// What goes to other processes.
  [[nodiscard]] bool is_by_nccl() const;
  void require_means() const;
  void require_apart() const;
  /// The sides of messages inside this process, in order.
  void pair_up();
  void pack();
  void copy_pairs();
  void enqueue(std::uint64_t number, const std::vector<transport::team::LinkHalf>& made);
  /// Whether a message of so many bytes, to or from another process, is written where it is received, if that
  /// can be.
  [[nodiscard]] bool is_direct(std::uint64_t bytes) const;
  /// Of the batch of this number. What is received, if it is large, invites its sender, whose process is
  /// to open the memory.
  [[nodiscard]] std::vector<transport::team::LinkTransfer> transfers(
      std::uint64_t number, const std::vector<transport::team::LinkHalf>& made) const;
  void keep_memory() const;
  [[nodiscard]] std::vector<transport::team::LinkHalf> halves() const;
  [[nodiscard]] PlanSummary summary() const;
  /// "4000 float32 to member 1, 10 int8 from member 2 and 3 more".
  [[nodiscard]] std::string messages_in_words() const;
  [[nodiscard]] watching::WatchedCall watched() const;
  [[nodiscard]] std::string call_in_words() const override { return std::string(name_); }

  std::vector<Item> items_;
  std::vector<LocalPair> pairs_;
};

}  // namespace tutti::collectives
