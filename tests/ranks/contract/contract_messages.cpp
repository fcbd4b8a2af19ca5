// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_messages.hpp"

#include "settings/environment.hpp"
#include "support/errors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

/// A message, of which both members know what it should hold.
struct Letter {
  int from;
  int to;
  DType dtype;
  std::int64_t count;
  std::uint64_t seed;
  Placement placement = Placement::contiguous;

  [[nodiscard]] HostArray text() const { return random_bits(dtype, {count}, seed); }
};

/// The sides of letters that local members have.
class Letters {
 public:
  Letters(const Group& group, const std::vector<Letter>& letters) : group_(group) {
    const auto add_sides = [&](bool sent) {
      for (const Letter& letter : letters) {
        const int member = sent ? letter.from : letter.to;
        if (!group.is_local(member)) continue;
        const Device device = group.device(member - group.member(0));
        if (sent) {
          sent_.emplace_back(letter.text(), device, letter.placement);
          messages_.push_back(Message::send(sent_.back(), letter.to));
        } else {
          received_.push_back(TestTensor::poisoned(letter.dtype, {letter.count}, device, letter.placement));
          expected_.push_back(letter.text());
          messages_.push_back(Message::recv(received_.back(), letter.from));
        }
      }
    };
    // The order in a batch is another one on neighbours.
    const bool sends_first = group.communicator.rank() % 2 == 0;
    add_sides(sends_first);
    add_sides(!sends_first);
  }

  void send(StreamList streams = {}) const { group_.communicator.batch_send_recv(messages_, streams); }
  void check() const {
    for (std::size_t i = 0; i < received_.size(); ++i) EXPECT_TRUE(received_[i].holds(expected_[i]));
    for (const TestTensor& tensor : sent_) EXPECT_TRUE(tensor.untouched());
  }

 private:
  const Group& group_;
  std::vector<TestTensor> sent_;
  std::vector<TestTensor> received_;
  std::vector<HostArray> expected_;
  std::vector<Message> messages_;
};

/// From every member to every member, itself too.
std::vector<Letter> letters_of_all(const Group& group, const Sizes& counts, DType dtype, std::uint64_t seed,
                                   Placement placement = Placement::contiguous) {
  std::vector<Letter> letters;
  for (const std::int64_t least : counts) {
    for (int from = 0; from < group.members(); ++from) {
      for (int to = group.members() - 1; to >= 0; --to)
        letters.push_back({from, to, dtype, least + from, ++seed, placement});
    }
  }
  return letters;
}

void check_letters(const Group& group, const std::vector<Letter>& letters, StreamList streams = {}) {
  const Letters post(group, letters);
  post.send(streams);
  for (const Stream& stream : streams) stream.synchronize();
  post.check();
}

/// Each element type, in numbers that differ.
void check_every_type(const Group& group) {
  std::vector<Letter> letters;
  const Sizes counts{0, 1, 13, 251, 4'099};
  for (const DType dtype : all_dtypes) {
    const std::int64_t count = counts[letters.size() / 2 % counts.size()];
    letters.push_back({0, group.members() - 1, dtype, count, 700 + letters.size()});
    letters.push_back({group.members() - 1, 0, dtype, count + 1, 700 + letters.size()});
  }
  check_letters(group, letters);
}

/// So many that no log and no ring has room for them.
void check_many(const Group& group) {
  std::vector<Letter> letters;
  for (int i = 0; i < 100; ++i) {
    letters.push_back({0, group.members() - 1, DType::int32, 10 + i % 3, 7000ULL + static_cast<unsigned>(i)});
    letters.push_back({group.members() - 1, 0, DType::int32, 20 + i % 5, 8000ULL + static_cast<unsigned>(i)});
  }
  check_letters(group, letters);
}

/// One at a time: the first rank sends first, and each of the others when it has received.
void check_single_calls(Group& group) {
  if (group.communicator.rank_count() != group.members() || group.members() < 2) return;
  const int member = group.member(0);
  const int next = (member + 1) % group.members();
  const int previous = (member + group.members() - 1) % group.members();
  const TestTensor sent(random_bits(DType::float64, {501}, 60ULL + static_cast<unsigned>(member)),
                        group.device(0));
  const HostArray expected = random_bits(DType::float64, {501}, 60ULL + static_cast<unsigned>(previous));
  const auto make = [&] { return TestTensor::poisoned(DType::float64, {501}, group.device(0)); };
  const TestTensor in_turn = make();
  if (member == 0) group.communicator.send(sent, next);
  group.communicator.recv(in_turn, previous);
  if (member != 0) group.communicator.send(sent, next);
  check_all_reduce(group, DType::float32, {100}, false, 61);
  const TestTensor at_once = make();
  group.communicator.sendrecv(sent, next, at_once, previous);
  EXPECT_TRUE(in_turn.holds(expected));
  EXPECT_TRUE(at_once.holds(expected));
  const std::string transport = group.communicator.last_plan().transport;
  EXPECT_TRUE(transport == "p2p" || transport == "staged") << transport;
  const TestTensor own = make();
  group.communicator.sendrecv(sent, member, own, member);
  EXPECT_TRUE(own.holds(random_bits(DType::float64, {501}, 60ULL + static_cast<unsigned>(member))));
  EXPECT_TRUE(sent.untouched());
}

/// So many elements of 4 bytes make a large message.
std::int64_t large_messages_from() {
  return backend_kind() == BackendKind::cuda ? 300'000 : 70'000;
}

/// Written where they are received, but for those whose memory does not begin where devices can write; among
/// small ones, and others of the same length.
void check_large(const Group& group) {
  const int last = group.members() - 1;
  const std::int64_t large = 2 * large_messages_from() + 1;
  std::vector<Letter> letters;
  for (const Placement placement : {Placement::contiguous, Placement::misaligned, Placement::gapped}) {
    for (const std::int64_t count : std::array<std::int64_t, 5>{large, 3, large, 131'073, 2 * large}) {
      letters.push_back({0, last, DType::int16, count, 40 + letters.size(), placement});
      letters.push_back({last, 0, DType::int16, count, 40 + letters.size(), placement});
    }
  }
  check_letters(group, letters);
  if (group.is_local(0) == group.is_local(last)) return;
  const PlanSummary plan = group.communicator.last_plan();
  const bool are_direct = plan.transport == "p2p" && Environment::get().direct;
  EXPECT_EQ(plan.algorithm, are_direct ? "messages, large ones direct" : "messages through slots");
}

void check_beside_collectives(const Group& group) {
  const Letters first(group, letters_of_all(group, {700}, DType::int32, 200));
  const Letters second(group, letters_of_all(group, {70'000, 1}, DType::int16, 300));
  const Check sum = start_all_reduce(group, DType::int32, {5000}, true, 62);
  first.send();
  const Check gathered = start_all_gather(group, DType::float32, 333, 63);
  second.send();
  const Check copy = start_broadcast(group, DType::float32, {40'000}, group.members() - 1, 64);
  for (const Check& check : {sum, gathered, copy}) check();
  first.check();
  second.check();
}

void check_refusals(Group& group) {
  Communicator& communicator = group.communicator;
  const auto bad = ErrorCode::invalid_argument;
  const TensorOptions options{.device = group.device(0)};
  const Tensor tensor = zeros({8}, options);
  const Tensor out = zeros({8}, options);
  const int self = group.member(0);
  EXPECT_TRUE(
      refuses([&] { communicator.send(tensor, group.members()); }, bad, {"send: to is", "expected 0"}));
  EXPECT_TRUE(refuses([&] { communicator.recv(tensor, -1); }, bad, {"recv: from is -1"}));
  EXPECT_TRUE(refuses([&] { communicator.send(Tensor(), self); }, bad, {"send: tensor"}));
  EXPECT_TRUE(refuses([&] { communicator.send(zeros({8}, {.device = Device::host()}), self); }, bad,
                      {"send: tensor is on", "local member"}));
  EXPECT_TRUE(
      refuses([&] { communicator.send(tensor, self); }, bad, {"1 messages are sent", "in one batch"}));
  EXPECT_TRUE(refuses([&] { communicator.sendrecv(tensor, self, zeros({7}, options), self); }, bad,
                      {"sendrecv: out has 7 elements, expected 8"}));
  EXPECT_TRUE(refuses(
      [&] {
        communicator.batch_send_recv(
            {Message::send(tensor, self), Message::recv(tensor.narrow(0, 0, 4), self)});
      },
      bad, {"batch_send_recv", "messages[0]", "messages[1]"}));
  communicator.batch_send_recv({});
  communicator.check();
}

}  // namespace

void messages_go_from_member_to_member(Group& group) {
  check_letters(group, letters_of_all(group, {0, 1, 7, 1000, 33'333}, DType::float32, 100));
  check_letters(group, letters_of_all(group, {15, 0, 3000}, DType::int8, 400, Placement::misaligned));
  check_letters(group, letters_of_all(group, {999}, DType::complex128, 500, Placement::gapped));
  check_large(group);
  std::vector<Stream> streams;
  for (int i = 0; i < group.locals(); ++i) streams.emplace_back(group.device(i).index());
  for (int i = 0; i < group.locals(); ++i) current_stream(group.device(i).index()).synchronize();
  check_letters(group, letters_of_all(group, {500}, DType::bfloat16, 600), streams);
  check_letters(group, {{0, group.members() - 1, DType::float32, 2'200'001, 650}});  // more than a window
  check_every_type(group);
  check_many(group);
  check_single_calls(group);
  check_beside_collectives(group);
  check_refusals(group);
}

void messages_can_be_captured(Group& group) {
  // Of what goes between hosts, graphs replay no calls of all ranks.
  const bool sums_too = group.communicator.explain().find(" hosts:") == std::string::npos;
  const auto letters = letters_of_all(group, {300, large_messages_from()}, DType::int32, 900);
  std::vector<Stream> streams;
  for (int i = 0; i < group.locals(); ++i) streams.emplace_back(group.device(i).index());
  std::optional<Letters> captured(std::in_place, group, letters);
  std::vector<Tensor> sums;
  for (int i = 0; i < group.locals(); ++i)
    sums.push_back(full({100}, 1, {.dtype = DType::int32, .device = group.device(i)}));
  for (int i = 0; i < group.locals(); ++i) current_stream(group.device(i).index()).synchronize();
  const Graph graph = Graph::capture(streams, [&] {
    captured->send(streams);
    if (sums_too) group.communicator.all_reduce_add(sums, sums, streams);
    captured->send(streams);
  });
  std::int32_t expected = 1;
  for (int launch = 0; launch < 3; ++launch) {
    graph.launch(streams.front());
    for (const Stream& stream : streams) stream.wait_stream(streams.front());
    if (sums_too) expected *= group.members();
    check_letters(group, letters_of_all(group, {1, 5000}, DType::int32, 950), streams);
  }
  captured->check();
  for (const Tensor& sum : sums) EXPECT_TRUE(holds(sum, expected));

  const Letters bound(group, letters_of_all(group, {64, 9000}, DType::float32, 980));
  for (int i = 0; i < group.locals(); ++i) current_stream(group.device(i).index()).synchronize();
  PersistentCollective step = group.communicator.persistent([&bound] { bound.send(); });
  for (int launch = 0; launch < 3; ++launch) step.launch(streams.front());
  streams.front().synchronize();
  bound.check();
}

}  // namespace tutti::test::ranks
