// SPDX-License-Identifier: Apache-2.0
#include "backend/team_exercise.hpp"

#include "support/environment.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <new>
#include <numeric>

#include <gtest/gtest.h>

namespace tutti::backend {
namespace {

using namespace std::chrono_literals;

constexpr std::byte untouched{0xa5};

}  // namespace

TeamPart& TeamCall::part(std::uint32_t member, std::uint32_t round) {
  std::vector<TeamPart>& own = parts[member];
  const auto place = std::ranges::lower_bound(own, round, {}, &TeamPart::round);
  if (place != own.end() && place->round == round) return *place;
  TeamPart& made = *own.emplace(place);
  made.round = round;
  return made;
}

TeamExercise::TeamExercise(Backend& machine, std::span<const int> devices, WindowMemory memory,
                           std::uint32_t rounds_before)
    : machine_(machine),
      memory_(memory),
      layout_{.members = static_cast<std::uint32_t>(devices.size()),
              .slot_bytes = slot_bytes,
              .inbox_bytes = memory == WindowMemory::pinned ? 0 : inbox_bytes,
              .lines = memory == WindowMemory::device_with_wide_lines ? TeamLines::wide : TeamLines::narrow},
      members_(devices.size()),
      rounds_before_(rounds_before),
      random_(test::test_seed()) {
  words_ = new (machine.allocate_pinned(sizeof(Words))) Words;
  std::vector<std::byte> flags(layout_.slots_offset());  // and inboxes
  for (std::uint32_t member = 0; member < members(); ++member)
    std::memcpy(flags.data() + layout_.finished_offset(member), &rounds_before, sizeof rounds_before);
  for (std::uint32_t index = 0; index < members(); ++index) {
    Member& member = members_[index];
    member.device = devices[index];
    member.stream = machine.create_stream(member.device, 0);
    member.side_stream = machine.create_stream(member.device, 0);
    if (memory != WindowMemory::pinned) {
      member.window = static_cast<std::byte*>(machine.allocate_device(member.device, layout_.bytes()));
    } else {
      member.window = static_cast<std::byte*>(machine.allocate_pinned(layout_.bytes()));
    }
    windows_.push_back(member.window);
    transfer(member.stream, member.window, flags.data(), flags.size());

    member.counters = reinterpret_cast<TeamCounters*>(allocate(index, sizeof(TeamCounters)));
    const TeamCounters counters{.rounds = rounds_before};
    transfer(member.stream, member.counters, &counters, sizeof counters);

    member.input_bytes = random_input(index);
    member.input = allocate(index, member.input_bytes.size());
    transfer(member.stream, member.input, member.input_bytes.data(), member.input_bytes.size());

    member.output = allocate(index, output_bytes);
    fill_output(member, 0);
    machine.synchronize_stream(member.stream);
  }
  watchdog_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    if (ending_.wait_for(lock, test::patient(60s), [this] { return is_ending_; })) return;
    ADD_FAILURE() << "still running after a minute";
    give_up();
  });
}

TeamExercise::~TeamExercise() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_all();
  watchdog_.join();
  // Nobody may wait any more when memory is freed; a test that passes has waited for all its work.
  give_up();
  for (std::uint32_t index = 0; index < members(); ++index) synchronize(index);
  for (Member& member : members_) {
    machine_.destroy_stream(member.stream);
    machine_.destroy_stream(member.side_stream);
    if (memory_ != WindowMemory::pinned) {
      machine_.free_device(member.device, member.window);
    } else {
      machine_.free_pinned(member.window);
    }
    for (void* address : member.extra) machine_.free_device(member.device, address);
  }
  machine_.free_pinned(words_);
}

Numbers TeamExercise::everyone_but(std::uint32_t member) const {
  Numbers others;
  for (std::uint32_t other = 0; other < members(); ++other) {
    if (other != member) others.push_back(other);
  }
  return others;
}

std::byte* TeamExercise::allocate(std::uint32_t member, std::size_t bytes) {
  void* address = machine_.allocate_device(members_[member].device, bytes);
  EXPECT_NE(address, nullptr);
  members_[member].extra.push_back(address);
  return static_cast<std::byte*>(address);
}

std::span<const std::byte> TeamExercise::random_input(std::uint32_t member) {
  static std::deque<std::vector<std::byte>> inputs;
  while (inputs.size() <= member) {
    test::Random random(test::test_seed() + inputs.size());
    std::vector<std::byte>& input = inputs.emplace_back(
        test::random_bits(DType::uint8, {static_cast<std::int64_t>(bits_bytes)}, random.next()).bytes);
    input.resize(numbers_offset(all_dtypes.back(), SumAlignment::none) + 2 * numbers_bytes);
    for (const DType dtype : all_dtypes) {
      for (const SumAlignment alignment : {SumAlignment::alike, SumAlignment::element, SumAlignment::none}) {
        const auto count = static_cast<std::int64_t>(numbers_bytes / size_of(dtype));
        std::ranges::copy(test::random_numbers(dtype, {count}, random.next()).bytes,
                          input.data() + numbers_offset(dtype, alignment));
      }
    }
  }
  return inputs[member];
}

void TeamExercise::fill_outputs() {
  for (Member& member : members_) fill_output(member, output_bytes);
}

void TeamExercise::fill_output(Member& member, std::size_t bytes) {
  const std::size_t filled = member.expected.size();
  const std::size_t needed = std::min(bytes + 2 * vector_bytes, output_bytes);
  if (needed <= filled) return;
  member.expected.resize(std::min(2 * needed, output_bytes), untouched);
  transfer(member.side_stream, member.output + filled, member.expected.data() + filled,
           member.expected.size() - filled);
  machine_.synchronize_stream(member.side_stream);
}

void TeamExercise::transfer(StreamRef stream, void* target, const void* source, std::size_t bytes) {
  machine_.copy(stream, {.target = static_cast<std::byte*>(target),
                         .source = static_cast<const std::byte*>(source),
                         .row_bytes = bytes});
}

void TeamExercise::prepare(Task& task, const TeamCall& call, std::uint32_t member, std::size_t index) {
  const std::vector<TeamPart>& parts = call.parts[member];
  const TeamPart& part = parts[index];
  const bool is_last = index + 1 == parts.size();
  TeamRound& round = task.round;
  round.layout = layout_;
  round.windows = windows_;
  round.member = member;
  round.counters = members_[member].counters;
  round.rounds_before = rounds_before_;
  round.abort = &words_->abort;
  round.round = part.round;
  round.finished = is_last ? call.rounds : parts[index + 1].round - 1;
  round.ends_call = is_last;
  round.is_low_latency = part.is_low_latency;
  round.is_direct = part.is_direct;
  round.writes_exposed = part.writes_exposed;
  round.swaps = part.swaps;
  round.puts = {part.puts, part.put_pointers};
  round.readers = part.readers;
  round.sources = part.sources;
  round.copies = {part.copies, part.copy_pointers};
  round.reductions = {.dtype = part.dtype,
                      .input_count = part.input_count,
                      .output_count = part.output_count,
                      .segments = part.sums,
                      .pointers = part.sum_pointers};
  for (std::size_t reader = 0; reader < part.readers.size(); ++reader)
    task.exposed.insert(task.exposed.end(), part.exposed.begin(), part.exposed.end());
  round.exposed = task.exposed;
  round.exposed_count = static_cast<std::uint32_t>(part.exposed.size());
  if (is_last && call.tells_host) {
    round.done = &done(member);
    round.done_value = calls_ + 1;
  } else if (is_last && call.counts_done) {
    round.counts_done = true;
    round.done_value = members_[member].counted = calls_ + 1;
  }
}

void TeamExercise::submit(const TeamCall& call, std::uint32_t member, std::size_t& index) {
  const std::vector<TeamPart>& parts = call.parts[member];
  Task task;
  Task relay;
  prepare(task, call, member, index++);
  if (index < parts.size() && parts[index].is_relay) {
    prepare(relay, call, member, index++);
    task.round.relay = &relay.round;
  }
  machine_.team_round(members_[member].stream, task.round);
}

void TeamExercise::enqueue(const TeamCall& call) {
  Numbers order(members());
  std::iota(order.begin(), order.end(), 0U);
  std::vector<std::size_t> next(members(), 0);
  for (std::uint32_t round = 1; round <= call.rounds; ++round) {
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(random_.next() % members()),
                order.end());
    for (const std::uint32_t member : order) {
      const std::vector<TeamPart>& parts = call.parts[member];
      std::size_t& index = next[member];
      if (index < parts.size() && parts[index].round == round) submit(call, member, index);
    }
  }
  ++calls_;
  count_call(call);
}

void TeamExercise::enqueue(const TeamCall& call, std::uint32_t member) {
  for (std::size_t index = 0; index < call.parts[member].size();) submit(call, member, index);
}

void TeamExercise::delay(std::uint32_t member) {
  machine_.launch_host_function(
      members_[member].stream, [](void*) { std::this_thread::sleep_for(2ms); }, nullptr);
}

bool TeamExercise::synchronize(std::uint32_t member) {
  try {
    machine_.synchronize_stream(members_[member].stream);
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(words_->abort.is_set()) << error.what();
    return false;
  }
}

void TeamExercise::check() {
  for (std::uint32_t index = 0; index < members(); ++index) ASSERT_TRUE(synchronize(index));
  ASSERT_FALSE(words_->abort.is_set());
  for (std::uint32_t index = 0; index < members(); ++index) {
    Member& member = members_[index];
    const std::size_t bytes = std::min(member.used + 2 * vector_bytes, member.expected.size());
    std::vector<std::byte> found(bytes);
    transfer(member.stream, found.data(), member.output, bytes);
    machine_.synchronize_stream(member.stream);
    const auto [wrong, right] = std::mismatch(found.begin(), found.end(), member.expected.begin());
    ASSERT_TRUE(wrong == found.end())
        << "member " << index << ": byte " << wrong - found.begin() << " of " << bytes << " is "
        << std::to_integer<int>(*wrong) << " instead of " << std::to_integer<int>(*right);
    std::fill_n(member.expected.begin(), bytes, untouched);
    transfer(member.stream, member.output, member.expected.data(), bytes);
    machine_.synchronize_stream(member.stream);
    member.used = 0;
  }
}

void TeamExercise::check_if_full() {
  if (std::ranges::any_of(members_, [](const Member& member) { return member.used > full_at; })) check();
}

template <class Value>
Value TeamExercise::flag(std::uint32_t member, std::size_t offset) {
  Value value = 0;
  transfer(members_[member].side_stream, &value, members_[member].window + offset, sizeof value);
  machine_.synchronize_stream(members_[member].side_stream);
  return value;
}

void TeamExercise::check_counts() {
  for (Member& member : members_) {
    TeamCounters counters;
    transfer(member.side_stream, &counters, member.counters, sizeof counters);
    machine_.synchronize_stream(member.side_stream);
    EXPECT_EQ(counters.done, member.counted);
    EXPECT_EQ(counters.parts_done, 0U);
  }
}

std::uint32_t TeamExercise::ready_flag(std::uint32_t member, std::uint32_t from) {
  std::uint64_t latest = 0;
  for (std::uint32_t slot = 0; slot < TeamWindowLayout::slot_count; ++slot)
    latest = std::max(
        latest, flag<std::uint64_t>(member, layout_.ready_offset(from, slot) + offsetof(SharedFlag, round)));
  return static_cast<std::uint32_t>(latest);
}

std::uint32_t TeamExercise::finished_flag(std::uint32_t member, std::uint32_t from) {
  return flag<std::uint32_t>(member, layout_.finished_offset(from));
}

}  // namespace tutti::backend
