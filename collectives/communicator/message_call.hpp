// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/message_scratch.hpp"
#include "collectives/communicator/team_turn.hpp"
#include "transport/launch/messages.hpp"
#include "tutti/message.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// A batch of messages of a communicator's members to one another: checks, announcement, launch. It takes its
/// turn among the calls of this rank. Other ranks know of it what is sent to them and received from them.
class LinkCall final : public TeamTurn {
 public:
  /// Begins a batch. `name` is the function that is called, for messages of errors.
  LinkCall(TeamContext& context, std::string_view name, StreamList streams)
      : TeamTurn(context, name, streams),
        items_(context.scratch().links.items),
        halves_(context.scratch().links.halves),
        transfers_(context.scratch().links.transfers),
        inside_(context.scratch().links.inside),
        operands_(context.scratch().operands) {}

  /// Adds a message, `names` being those of its tensor and of its other member. Throws
  /// Error(invalid_argument).
  void add(const Message& message, const Name& tensor_name, const Name& peer_name);
  /// Announces and enqueues the messages. Throws before anything is queued if they do not go together.
  void run();

 private:
  /// Both sides of a message between two members of this process.
  struct LocalPair {
    std::size_t sent;  ///< index of an item
    std::size_t received;
  };

  [[nodiscard]] std::size_t member(const LinkItem& item) const;
  [[nodiscard]] bool is_local(const LinkItem& item) const;
  [[nodiscard]] static bool is_received(const LinkItem& item);
  void require_means() const;
  void require_apart() const;
  /// Pairs the sides of messages inside this process, in order; messages from one member to another become
  /// adjacent.
  void pair_up();
  void pack();
  /// Collects messages that stay inside this process.
  void collect_inside();
  /// Replaces tensors of messages inside this process that the other side's device has no access to.
  void replace_closed();
  /// Queues the copies of what is sent and has been replaced.
  void copy_in();
  void copy_back();
  /// Collects messages to other ranks and from them.
  void collect_transfers();
  /// Returns the shape of the messages that have been collected.
  [[nodiscard]] transport::MessageShape find_shape() const;
  [[nodiscard]] std::shared_ptr<const transport::Plan> find_plan();
  [[nodiscard]] bool has_copies_between_members() const;
  /// Launches the messages. `number` is the batch's number on the links; 0: there is none.
  void enqueue(std::uint64_t number);
  /// Marks the batch as complete once the local members' streams have passed the end of the call.
  void mark(std::uint64_t number);
  /// Binds the operands of a round.
  void bind();
  void keep_memory() const;
  /// Describes the batch: "4000 float32 to member 1, 10 int8 from member 2 and 3 more".
  [[nodiscard]] std::string messages_in_words() const;
  [[nodiscard]] watching::WatchedCall watched() const;
  [[nodiscard]] std::string call_in_words() const override { return std::string(name_); }

  std::vector<LinkItem>& items_;
  std::vector<transport::team::LinkHalf>& halves_;
  std::vector<transport::team::LinkTransfer>& transfers_;
  std::vector<transport::InsideMessage>& inside_;
  transport::Operands& operands_;  ///< of a round
  std::vector<LocalPair> pairs_;
  struct StandIn {
    std::size_t item;  ///< whose `dense` is the stand-in
    Tensor replaced;
  };
  std::vector<StandIn> stand_ins_;
  std::shared_ptr<const transport::Plan> plan_;
  std::uint64_t sequence_ = 0;  ///< of a round among the calls
};

}  // namespace tutti::collectives
