// SPDX-License-Identifier: Apache-2.0
#include "transport/probes/self_test.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/pinned_allocator.hpp"
#include "base/rounding.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

/// Enough for every lane of a link to carry some; odd, so that the last bytes go another way than the many
/// before.
constexpr std::size_t long_slot_bytes = (std::size_t{32} << 10) + 13;
/// No machine has so many GPUs, and the links of virtual devices have no lanes.
constexpr std::size_t short_slot_bytes = (std::size_t{1} << 10) + 13;
constexpr std::size_t most_pairs_with_long_slots = 1024;
/// The most memory for the slots of one round, on all devices together.
constexpr std::size_t round_bytes = std::size_t{128} << 20;
/// Patterns of different pairs are parts of one sequence of random bytes. They overlap, but none is equal to
/// another one: each begins so many bytes later.
constexpr std::size_t pattern_shift = 16;
constexpr std::size_t ways = 3;

constexpr std::size_t aligned(std::size_t bytes) {
  return round_up(bytes, 512);
}

/// The finalizer of the SplitMix64 generator (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, 2014).
std::uint64_t split_mix(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

void fill_with_random_bytes(std::span<std::byte> bytes, int device) {
  std::uint64_t counter = static_cast<std::uint64_t>(device) << 32U;
  for (std::size_t done = 0; done < bytes.size(); done += sizeof counter) {
    const std::uint64_t word = split_mix(counter += 0x9e3779b97f4a7c15ULL);
    std::memcpy(&bytes[done], &word, std::min(sizeof word, bytes.size() - done));
  }
}

}  // namespace

SelfTest::SelfTest(Runtime& runtime, std::span<const backend::StreamRef> streams,
                   std::span<const DevicePair> pairs)
    : runtime_(runtime), streams_(streams), pairs_(pairs) {
  add_participants();
  order_pairs();
  for (std::size_t round = 0; round < round_count(); ++round) lay_out_round(round);
  try {
    allocate();
  } catch (...) {
    release();
    throw;
  }
}

SelfTest::~SelfTest() {
  // After `run` was left by an error, which is on its way to the caller: nothing may use the memory any more.
  if (has_work_queued_) synchronize();
  release();
}

std::vector<std::string> SelfTest::run() {
  // Nothing of the test is queued yet: what is reported here is somebody else's.
  for (const Participant& participant : participants_)
    runtime_.backend().synchronize_stream(participant.stream);

  write_patterns();
  has_work_queued_ = true;
  upload();
  synchronize();
  std::vector<std::string> findings(pairs_.size());
  for (std::size_t round = 0; round < round_count(); ++round) {
    // From the second round on, slots hold patterns of other pairs, which are as wrong as none.
    lay_out_round(round);
    run_kernels();
    run_copies();
    synchronize();
    download();
    synchronize();
    check(findings);
  }
  has_work_queued_ = false;

  for (const Participant& participant : participants_) {
    if (participant.failure && !participant.failed_the_test) std::rethrow_exception(participant.failure);
  }
  return findings;
}

void SelfTest::check(std::vector<std::string>& findings) {
  for (const Transfer& transfer : transfers_) {
    const std::byte* expected = participants_[transfer.source].host_memory + transfer.source_offset;
    const std::byte* found = participants_[transfer.target].host_memory + transfer.target_offset;
    if (std::memcmp(expected, found, slot_bytes_) == 0) continue;
    participants_[transfer.actor].failed_the_test = true;
    participants_[transfer.target].failed_the_test = true;
    if (findings[transfer.pair].empty()) findings[transfer.pair] = in_words(transfer);
  }
}

std::size_t SelfTest::participant_of(int device) const {
  const auto found = std::ranges::lower_bound(participants_, device, {},
                                              [](const auto& known) { return known.stream.device; });
  return static_cast<std::size_t>(found - participants_.begin());
}

void SelfTest::add_participants() {
  std::set<int> devices;
  for (const DevicePair& pair : pairs_) devices.insert({pair.device, pair.peer});
  slot_bytes_ = pairs_.size() <= most_pairs_with_long_slots ? long_slot_bytes : short_slot_bytes;
  pattern_bytes_ = aligned(slot_bytes_ + ways * devices.size() * pattern_shift);
  for (const int device : devices) {
    Participant& participant = participants_.emplace_back();
    participant.stream = streams_[static_cast<std::size_t>(device)];
    participant.bytes = pattern_bytes_;
  }
}

void SelfTest::order_pairs() {
  order_.resize(pairs_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  // Every device begins with its next neighbour: the pairs of a round are spread over all devices.
  const auto distance = [this](std::size_t pair) {
    const std::size_t device = participant_of(pairs_[pair].device);
    const std::size_t peer = participant_of(pairs_[pair].peer);
    return (peer + participants_.size() - device) % participants_.size();
  };
  std::vector<std::size_t> distances(pairs_.size());
  std::ranges::transform(order_, distances.begin(), distance);
  std::ranges::stable_sort(order_, {}, [&](std::size_t pair) { return distances[pair]; });
}

std::size_t SelfTest::round_count() const noexcept {
  const std::size_t pairs_per_round = round_bytes / (ways * aligned(slot_bytes_));
  return divide_up(pairs_.size(), pairs_per_round);
}

void SelfTest::lay_out_round(std::size_t round) {
  const std::size_t first = pairs_.size() * round / round_count();
  const std::size_t last = pairs_.size() * (round + 1) / round_count();
  std::vector<std::size_t> used(participants_.size(), pattern_bytes_);
  transfers_.clear();
  for (const std::size_t pair : std::span(order_).subspan(first, last - first)) {
    const std::size_t device = participant_of(pairs_[pair].device);
    const std::size_t peer = participant_of(pairs_[pair].peer);
    const auto add = [&](Way way, std::size_t source, std::size_t target) {
      const std::size_t part = static_cast<std::size_t>(way) * participants_.size() + target;
      transfers_.push_back({.pair = pair,
                            .way = way,
                            .actor = device,
                            .source = source,
                            .source_offset = part * pattern_shift,
                            .target = target,
                            .target_offset = used[target]});
      used[target] += aligned(slot_bytes_);
    };
    add(Way::kernel_write, device, peer);
    add(Way::engine_write, device, peer);
    add(Way::kernel_read, peer, device);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    participants_[i].bytes = std::max(participants_[i].bytes, used[i]);
}

void SelfTest::allocate() {
  std::size_t total = 0;
  for (Participant& participant : participants_) {
    participant.block = runtime_.part<Allocators>()
                            .of(participant.stream.device)
                            .allocate(participant.bytes, participant.stream);
    participant.device_memory = static_cast<std::byte*>(CachingAllocator::address(participant.block));
    total += participant.bytes;
  }
  pinned_ = runtime_.part<PinnedAllocator>().allocate(total);
  auto* host_memory = static_cast<std::byte*>(PinnedAllocator::address(pinned_));
  for (Participant& participant : participants_) {
    participant.host_memory = host_memory;
    host_memory += participant.bytes;
  }
}

void SelfTest::release() noexcept {
  if (pinned_ != nullptr) runtime_.part<PinnedAllocator>().free(pinned_);
  for (const Participant& participant : participants_) {
    if (participant.block != nullptr)
      runtime_.part<Allocators>().of(participant.stream.device).free(participant.block);
  }
}

void SelfTest::write_patterns() {
  for (const Participant& participant : participants_) {
    const std::span memory(participant.host_memory, participant.bytes);
    fill_with_random_bytes(memory.first(pattern_bytes_), participant.stream.device);
    std::ranges::fill(memory.subspan(pattern_bytes_), std::byte{0});
  }
}

void SelfTest::upload() {
  // The slots go up too: memory from the cache may still hold the right bytes of an earlier test.
  for (const Participant& participant : participants_) {
    runtime_.backend().copy(participant.stream, {.target = participant.device_memory,
                                                 .source = participant.host_memory,
                                                 .row_bytes = participant.bytes});
  }
}

void SelfTest::run_kernels() {
  struct Kernel {
    std::vector<backend::FanOutSegment> segments;
    std::vector<std::byte*> pointers;
  };
  std::vector<Kernel> kernels(participants_.size());
  for (const Transfer& transfer : transfers_) {
    if (transfer.way == Way::engine_write) continue;
    auto& [segments, pointers] = kernels[transfer.actor];
    const auto source = static_cast<std::uint32_t>(pointers.size());
    pointers.push_back(participants_[transfer.source].device_memory + transfer.source_offset);
    pointers.push_back(participants_[transfer.target].device_memory + transfer.target_offset);
    segments.push_back(
        {.row_bytes = slot_bytes_, .source = source, .first_target = source + 1, .target_count = 1});
  }
  for (std::size_t actor = 0; actor < kernels.size(); ++actor) {
    const auto& [segments, pointers] = kernels[actor];
    if (!segments.empty()) runtime_.backend().fan_out(participants_[actor].stream, {segments, pointers});
  }
}

void SelfTest::run_copies() {
  for (const Transfer& transfer : transfers_) {
    if (transfer.way != Way::engine_write) continue;
    const backend::Copy2D copy{
        .target = participants_[transfer.target].device_memory + transfer.target_offset,
        .source = participants_[transfer.source].device_memory + transfer.source_offset,
        .row_bytes = slot_bytes_,
    };
    runtime_.backend().copy(participants_[transfer.actor].stream, copy);
  }
}

void SelfTest::download() {
  for (const Participant& participant : participants_) {
    runtime_.backend().copy(participant.stream, {.target = participant.host_memory + pattern_bytes_,
                                                 .source = participant.device_memory + pattern_bytes_,
                                                 .row_bytes = participant.bytes - pattern_bytes_});
  }
}

void SelfTest::synchronize() noexcept {
  for (Participant& participant : participants_) {
    try {
      runtime_.backend().synchronize_stream(participant.stream);
    } catch (const std::exception& error) {
      // The bytes will tell whose failure it is.
      if (participant.failure) continue;
      participant.failure = std::current_exception();
      participant.failure_message = error.what();
    }
  }
}

std::string SelfTest::in_words(const Transfer& transfer) const {
  const DevicePair& pair = pairs_[transfer.pair];
  const std::string_view what = [&] {
    switch (transfer.way) {
      case Way::kernel_write:
        return "bytes a kernel wrote";
      case Way::engine_write:
        return "bytes a copy engine wrote";
      case Way::kernel_read:
        break;
    }
    return "bytes a kernel read";
  }();
  std::string text =
      fmt::format("peer access from device {} to device {} fails its test: {} did not arrive intact",
                  pair.device, pair.peer, what);
  for (const std::size_t participant : {transfer.actor, transfer.target}) {
    const std::string& failure = participants_[participant].failure_message;
    if (failure.empty()) continue;
    text += fmt::format(" (device {}: {})", participants_[participant].stream.device, failure);
    break;
  }
  return text;
}

}  // namespace tutti::transport
