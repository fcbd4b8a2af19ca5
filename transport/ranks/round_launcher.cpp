#include "transport/ranks/round_launcher.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport::ranks {
namespace {

using Pointers = std::vector<std::byte*>;

/// Addresses and places of one own member.
class Resolver {
 public:
  Resolver(const RoundPlan& plan, const Windows& windows, std::size_t own_member,
           std::span<std::byte* const> addresses)
      : plan_(plan),
        windows_(windows.seen_by(own_member)),
        layout_(windows.layout()),
        addresses_(addresses) {}

  std::span<std::byte* const> resolve(const std::vector<Place>& places, Pointers& pointers) const {
    pointers.clear();
    for (const Place& place : places) pointers.push_back(resolve(place));
    return pointers;
  }

 private:
  [[nodiscard]] std::byte* resolve(const Place& place) const {
    if (place.buffer < plan_.operand_count) return addresses_[place.buffer] + place.offset;
    if (place.buffer < plan_.own_source(0))
      return windows_[place.buffer - plan_.slot_buffer(0)] + layout_.slots_offset() + place.offset;
    if (place.buffer < plan_.inbox_buffer(0))
      return backend::SourcePlace::own(addresses_[place.buffer - plan_.own_source(0)] + place.offset);
    if (place.buffer < plan_.given_buffer(0))
      return windows_[place.buffer - plan_.inbox_buffer(0)] + layout_.inboxes_offset() + place.offset;
    return backend::SourcePlace::given(place.buffer - plan_.given_buffer(0), place.offset);
  }

  const RoundPlan& plan_;
  std::span<std::byte* const> windows_;
  const backend::TeamWindowLayout& layout_;
  std::span<std::byte* const> addresses_;
};

/// Bytes of the slot that a part fills.
std::uint64_t bytes_put(const RoundPart& part) {
  std::uint64_t bytes = 0;
  for (const backend::FanOutSegment& segment : part.puts.segments) {
    const Place slot = part.puts.pointers[segment.first_target];
    bytes = std::max(bytes, slot.offset + segment.row_bytes * segment.rows);
  }
  return bytes;
}

}  // namespace

void RoundLauncher::begin(std::span<const backend::StreamRef> streams) {
  captured_.reset();
  for (const backend::StreamRef stream : streams) {
    if (runtime_.backend().is_capturing(stream)) captured_ = stream;
  }
  if (captured_) {
    for (const backend::StreamRef stream : streams) runtime_.order(*captured_, stream);
    for (std::size_t i = 0; i < latest_captured_.size(); ++i) {
      if (runtime_.backend().is_capturing(latest_captured_[i]))
        runtime_.order(latest_captured_[i], streams[i]);
    }
    latest_captured_.assign(streams.begin(), streams.end());
    return;
  }
  for (std::size_t i = 0; i < latest_streams_.size(); ++i) {
    if (latest_streams_[i] == streams[i]) continue;
    if (runtime_.backend().is_capturing(latest_streams_[i])) {
      throw Error(
          ErrorCode::unsupported,
          "Communicator: the stream of the call before is being captured, and this call, on another stream, "
          "would have to follow it");
    }
    runtime_.order(latest_streams_[i], streams[i]);
  }
  latest_streams_.assign(streams.begin(), streams.end());
}

void RoundLauncher::end(std::span<const backend::StreamRef> streams) {
  if (!captured_) return;
  for (const backend::StreamRef stream : streams) runtime_.order(stream, *captured_);
}

void RoundLauncher::launch(std::uint64_t sequence, const RoundPlan& plan,
                           std::span<std::byte* const> addresses,
                           std::span<const backend::StreamRef> streams) {
  if (plan.round_count == 0) return finish(sequence, streams);
  const Windows& windows = team_.windows();
  next_.assign(plan.parts.size(), 0);
  for (std::uint32_t round = 1; round <= plan.round_count; ++round) {
    // Member by member within a round: no member's later work is queued before another's that it needs.
    for (std::size_t own = 0; own < plan.parts.size(); ++own) {
      const std::vector<RoundPart>& parts = plan.parts[own];
      if (next_[own] == parts.size() || parts[next_[own]].round != round) continue;
      const RoundPart& part = parts[next_[own]++];
      const Resolver resolver(plan, windows, own, addresses);
      backend::TeamRound task;
      task.layout = windows.layout();
      task.windows = windows.seen_by(own);
      task.member = static_cast<std::uint32_t>(team_.first_local() + own);
      task.counters = windows.counters(own);
      task.abort = &team_.abort_word();
      task.rounds_before = rounds_;
      task.round = part.round;
      task.finished = part.finished;
      task.ends_call = next_[own] == parts.size();
      task.is_low_latency = plan.protocol == Protocol::low_latency;
      task.puts = {part.puts.segments, resolver.resolve(part.puts.pointers, resolved_[0])};
      task.readers = part.readers;
      task.sources = part.sources;
      task.copies = {part.copies.segments, resolver.resolve(part.copies.pointers, resolved_[1])};
      task.sums = {.dtype = part.dtype,
                   .input_count = part.input_count,
                   .output_count = 1,
                   .segments = part.sums.segments,
                   .pointers = resolver.resolve(part.sums.pointers, resolved_[2])};
      task.given_count = static_cast<std::uint32_t>(part.given.size());
      task.given = give(part, addresses);
      if (task.ends_call && !captured_) {
        task.done = &team_.done_flag_of_rounds(own);
        task.done_value = static_cast<std::uint32_t>(sequence);
      }
      runtime_.backend().team_round(streams[own], task);
      if (Courier* const courier = team_.courier(); courier != nullptr && !part.readers.empty())
        courier->expect(task.member, task.rounds_before + task.round, bytes_put(part), part.readers);
    }
  }
  rounds_ += plan.round_count;
}

std::span<std::byte* const> RoundLauncher::give(const RoundPart& part,
                                                std::span<std::byte* const> addresses) {
  const std::size_t count = part.given.size();
  given_.resize(part.readers.size() * count);
  for (std::size_t i = 0; i < count; ++i) {
    const Registrations::Given given = team_.registrations()->find(addresses[part.given[i]]);
    for (std::size_t reader = 0; reader < part.readers.size(); ++reader)
      given_[reader * count + i] = given.seen_by(part.readers[reader]);
  }
  return given_;
}

void RoundLauncher::finish(std::uint64_t sequence, std::span<const backend::StreamRef> streams) {
  if (captured_) return;
  for (std::size_t own = 0; own < streams.size(); ++own) team_.done_after(own, sequence, streams[own]);
}

}  // namespace tutti::transport::ranks
