// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_launcher.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "stream/event_pool.hpp"
#include "stream/streams.hpp"
#include "transport/rounds/launch_on_threads.hpp"
#include "transport/rounds/round_watch.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <exception>
#include <utility>

namespace tutti::transport::team {
namespace {

using Pointers = std::vector<std::byte*>;

/// Addresses and places of one local member.
class Resolver {
 public:
  Resolver(const RoundPlan& plan, const Windows& windows, std::size_t local,
           std::span<std::byte* const> addresses)
      : plan_(plan), windows_(windows.seen_by(local)), layout_(windows.layout()), addresses_(addresses) {}

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
    if (place.buffer < plan_.exposed_buffer(0))
      return windows_[place.buffer - plan_.inbox_buffer(0)] + layout_.inboxes_offset() + place.offset;
    return backend::SourcePlace::exposed(place.buffer - plan_.exposed_buffer(0), place.offset);
  }

  const RoundPlan& plan_;
  std::span<std::byte* const> windows_;
  const backend::TeamWindowLayout& layout_;
  std::span<std::byte* const> addresses_;
};

/// Returns the bytes of the slot that a part fills.
std::uint64_t bytes_put(const RoundPart& part) {
  std::uint64_t bytes = 0;
  for (const backend::FanOutSegment& segment : part.puts.segments) {
    const Place slot = part.puts.pointers[segment.first_target];
    bytes = std::max(bytes, slot.offset + segment.row_bytes * segment.rows);
  }
  return bytes;
}

/// Returns for how many blocks the largest of a local member's parts has work, or some more.
std::uint32_t blocks_with_work(const RoundPlan& plan, std::size_t local) {
  constexpr std::uint64_t most_tiles =
      std::uint64_t{backend::most_team_blocks} * backend::team_warps_per_block;
  const bool is_low_latency = plan.protocol == Protocol::low_latency;
  const std::uint64_t tile = is_low_latency ? backend::smallest_team_tile : backend::smallest_team_copy_tile;
  const auto tiles_of = [tile](const backend::FanOutSegment& rows) {
    return rows.row_bytes > tile ? (rows.row_bytes / tile + 1) * rows.rows
                                 : 2 * rows.row_bytes * rows.rows / tile + 1;
  };
  std::uint64_t most = 1;
  for (const RoundPart& part : plan.parts[local]) {
    std::uint64_t puts = 0;
    std::uint64_t gets = 0;
    for (const auto& segment : part.puts.segments) puts += tiles_of(segment);
    for (const auto& segment : part.copies.segments) gets += tiles_of(segment);
    for (const auto& segment : part.reductions.segments)
      gets += segment.count * size_of(part.dtype) / backend::smallest_team_tile + 1;
    most = std::max({most, puts, gets});
    if (most >= most_tiles) return backend::most_team_blocks;
  }
  return static_cast<std::uint32_t>((most + backend::team_warps_per_block - 1) /
                                    backend::team_warps_per_block);
}

}  // namespace

void RoundLauncher::begin(std::span<const backend::StreamRef> streams) {
  is_captured_ = false;
  team_.abort().require_running();
  is_captured_ = capture_.begin(streams);
  if (is_captured_) return;
  for (std::size_t i = 0; i < latest_.size(); ++i) {
    latest_[i].is_same_stream = is_same(latest_[i], streams[i]);
    if (!latest_[i].is_same_stream) follow(latest_[i], streams[i]);
  }
}

bool RoundLauncher::is_same(const Latest& latest, backend::StreamRef stream) const {
  if (latest.stream != stream) return false;
  backend::Backend& backend = runtime_.backend();
  return latest.lasts ||
         (!backend.is_of_calling_thread(stream) && backend.stream_id(stream) == latest.number);
}

void RoundLauncher::follow(const Latest& latest, backend::StreamRef stream) {
  if (!latest.lasts) return runtime_.part<Streams>().wait_event(stream, latest.event->handle());
  if (runtime_.backend().is_capturing(latest.stream)) {
    throw Error(ErrorCode::unsupported,
                "Communicator: the stream of the previous call is being captured, and this call is on "
                "another stream, "
                "expected the same stream or the end of the capture before");
  }
  runtime_.part<Streams>().order(latest.stream, stream);
}

void RoundLauncher::end(std::span<const backend::StreamRef> streams) {
  if (is_captured_) return capture_.end();
  latest_.resize(streams.size());
  std::exception_ptr failure;  // of a device; the others' streams have their ends all the same
  for (std::size_t i = 0; i < streams.size(); ++i) {
    try {
      end(latest_[i], streams[i]);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void RoundLauncher::end(Latest& latest, backend::StreamRef stream) {
  auto& streams = runtime_.part<Streams>();
  const bool lasts =
      latest.stream == stream ? latest.lasts || streams.is_permanent(stream) : streams.lasts(stream);
  if (!lasts || marks_calls_) record(latest, stream);
  if (!lasts && !latest.is_same_stream) latest.number = runtime_.backend().stream_id(stream);
  latest.stream = stream;
  latest.lasts = lasts;
}

bool RoundLauncher::may_follow_on(std::span<const backend::StreamRef> streams) {
  if (!latest_.empty() && std::ranges::equal(latest_, streams, {}, &Latest::stream)) {
    is_latest_marked_ = false;
    return true;
  }
  if (!std::ranges::all_of(
          streams, [this](backend::StreamRef stream) { return runtime_.part<Streams>().lasts(stream); }))
    return false;
  if (!std::exchange(is_latest_marked_, true)) {
    is_latest_marked_ = std::ranges::none_of(
        latest_, [this](const Latest& latest) { return runtime_.backend().is_capturing(latest.stream); });
    if (!is_latest_marked_) return false;
    mark();
  }
  if (!has_passed()) return false;
  latest_.clear();
  is_latest_marked_ = false;
  return true;
}

void RoundLauncher::record(Latest& latest, backend::StreamRef stream) {
  const bool is_free = latest.event != nullptr && latest.event.use_count() == 1;
  std::shared_ptr<PooledEvent> event =
      is_free && latest.event_device == stream.device
          ? latest.event
          : std::make_shared<PooledEvent>(runtime_.part<EventPool>(), stream.device);
  event->record(stream);
  latest.event = std::move(event);
  latest.event_device = stream.device;
}

std::shared_ptr<const PooledEvent> RoundLauncher::end_of_call(std::size_t local) const {
  if (is_captured_) return nullptr;
  const Latest& latest = latest_[local];
  return !latest.lasts || marks_calls_ ? latest.event : nullptr;
}

void RoundLauncher::mark() noexcept {
  for (Latest& latest : latest_) {
    try {
      if (latest.lasts && !marks_calls_ && !runtime_.backend().is_capturing(latest.stream))
        record(latest, latest.stream);
    } catch (const std::exception&) {
      // Failed work is over.
    }
  }
}

bool RoundLauncher::has_passed() const noexcept {
  return std::ranges::all_of(latest_, [this](const Latest& latest) {
    return latest.event == nullptr || runtime_.backend().has_passed(latest.event->handle());
  });
}

void RoundLauncher::check() const {
  for (const Latest& latest : latest_) {
    if (latest.event != nullptr) static_cast<void>(runtime_.backend().query_event(latest.event->handle()));
  }
}

bool RoundLauncher::may_expose(const RoundPlan& plan, std::span<std::byte* const> addresses) const {
  const std::uintptr_t alignment = alignment_of_exposed(runtime_.backend().kind());
  auto& allocators = runtime_.part<Allocators>();
  for (std::size_t member = 0; member < plan.exposed.size(); ++member) {
    const int device = team_.membership().devices()[member];
    CachingAllocator::Extent segment;  // mostly the next operand's as well
    for (const BufferId buffer : plan.exposed[member]) {
      const std::byte* const address = addresses[buffer];
      if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) return false;
      if (segment.contains(address, plan.reaches[buffer])) continue;
      segment = allocators.memory_around(device, address);
      if (segment.address == nullptr || !segment.contains(address, plan.reaches[buffer])) return false;
    }
  }
  return true;
}

void RoundLauncher::launch(std::uint64_t sequence, const RoundPlan& plan, const Binding& binding) {
  const std::span<const backend::StreamRef> lanes = binding.lanes;
  const auto streams = lanes.subspan(team_.membership().first_local(), team_.membership().local_count());
  if (plan.round_count == 0) return finish(sequence, lanes);
  Streams::LaunchLocks gate;
  if (plan.parts.size() > 1) gate = runtime_.part<Streams>().launch_together(team_.membership().devices());
  const Launch launch{sequence, plan, binding.addresses, streams, binding.reducing};
  take_room(plan, binding.most_multiprocessors);
  if (runtime_.backend().is_watched())
    tell_of_rounds(runtime_.backend(), plan, team_.windows().layout(), binding.addresses, streams);
  if (launching_ == Launching::from_one_thread || is_captured_) {
    launch_in_turn(launch);
  } else {
    launch_apart(launch);
  }
  for (std::size_t local = 0; local < streams.size(); ++local) {
    if (room_[local].is_counted) team_.live_teams().note_end(team_.calls(), streams[local]);
  }
  rounds_ += plan.round_count;
}

void RoundLauncher::take_room(const RoundPlan& plan, std::uint32_t most_multiprocessors) {
  const std::uint32_t overlapping = is_captured_ ? 2 : 1;
  room_.clear();
  for (std::size_t local = 0; local < plan.parts.size(); ++local) {
    DeviceRoom& room = team_.live_teams().room_on(team_.membership().devices()[local]);
    room_.push_back(room.take(&team_.calls(), is_captured_, [&] {
      return overlapping * std::min(blocks_with_work(plan, local), most_multiprocessors);
    }));
    room_.back().blocks = std::min(room_.back().blocks, most_multiprocessors);
  }
}

void RoundLauncher::launch_in_turn(const Launch& launch) {
  const std::vector<std::vector<RoundPart>>& parts = launch.plan.parts;
  LaunchHelpers::Lease lease(*helpers_, may_have_help(launch) ? parts.size() : 0);
  next_.assign(parts.size(), 0);
  for (std::uint32_t round = 1; round <= launch.plan.round_count; ++round) {
    // Round by round: no member's later work is queued before another's that it needs, but for relays, where
    // that of the same round follows at once.
    in_round_.clear();
    for (std::size_t local = 0; local < parts.size(); ++local) {
      const std::size_t next = next_[local];
      if (next < parts[local].size() && parts[local][next].round == round) in_round_.push_back(local);
    }
    lease.for_each(in_round_.size(), [&](std::size_t i) {
      const std::size_t local = in_round_[i];
      next_[local] = launch_part(launch, local, next_[local], tasks_[local]);
    });
  }
}

bool RoundLauncher::may_have_help(const Launch& launch) const {
  const backend::Backend& backend = runtime_.backend();
  // The calls of a capture are in the order of their nodes, reports name the calling thread's place in the
  // program, work of streams is not held up by full queues, and helpers have default streams of their own.
  return launch.plan.parts.size() > 1 && !is_captured_ && !backend.is_watched() &&
         !backend.is_in_stream_work() && std::ranges::none_of(launch.streams, [&](backend::StreamRef stream) {
           return backend.is_of_calling_thread(stream);
         });
}

void RoundLauncher::launch_apart(const Launch& launch) const {
  launch_on_threads(team_.abort(), launch.plan.parts.size(), [&](std::size_t local) {
    Tasks tasks;
    for (std::size_t next = 0; next < launch.plan.parts[local].size();)
      next = launch_part(launch, local, next, tasks);
  });
}

std::size_t RoundLauncher::launch_part(const Launch& launch, std::size_t local, std::size_t next,
                                       Tasks& tasks) const {
  const std::vector<RoundPart>& parts = launch.plan.parts[local];
  const std::size_t first = next;
  prepare(tasks.task, launch, local, next++);
  if (next < parts.size() && parts[next].is_relay) {
    prepare(tasks.relay, launch, local, next++);
    tasks.task.round.relay = &tasks.relay.round;
  }
  // Before the work is queued: that may wait until there is room, or until the work is over.
  if (HostProxy* const host_proxy = team_.host_proxy()) {
    for (const RoundPart& part : std::span(parts).subspan(first, next - first)) {
      if (!part.readers.empty())
        host_proxy->expect(tasks.task.round.member, rounds_ + part.round, bytes_put(part), part.readers);
    }
  }
  runtime_.backend().team_round(launch.streams[local], tasks.task.round);
  return next;
}

void RoundLauncher::prepare(Task& task, const Launch& launch, std::size_t local, std::size_t index) const {
  const RoundPlan& plan = launch.plan;
  const std::span<std::byte* const> addresses = launch.addresses;
  const Windows& windows = team_.windows();
  const Progress& progress = team_.progress();
  const RoundPart& part = plan.parts[local][index];
  const Resolver resolver(plan, windows, local, addresses);
  expose(plan, part, addresses, task.exposed);
  task.round = {.layout = windows.layout(),
                .windows = windows.seen_by(local),
                .member = static_cast<std::uint32_t>(team_.membership().first_local() + local),
                .counters = windows.counters(local),
                .rounds_before = rounds_,
                .call = launch.sequence,
                .is_captured = is_captured_,
                .record = progress.expects_replays() ? progress.record_of(local) : nullptr,
                .abort = &team_.abort().word(),
                .process = static_cast<std::uint32_t>(team_.membership().rank()),
                .most_multiprocessors = room_[local].blocks,
                .round = part.round,
                .finished = part.finished,
                .ends_call = index + 1 == plan.parts[local].size(),
                .is_low_latency = plan.protocol == Protocol::low_latency,
                .is_direct = plan.protocol == Protocol::direct,
                .writes_exposed = plan.writes_exposed,
                .swaps = plan.swaps,
                .puts = {part.puts.segments, resolver.resolve(part.puts.pointers, task.puts)},
                .readers = part.readers,
                .sources = part.sources,
                .copies = {part.copies.segments, resolver.resolve(part.copies.pointers, task.copies)},
                .reductions = {.dtype = part.dtype,
                               .reducing = launch.reducing,
                               .input_count = part.input_count,
                               .output_count = part.output_count,
                               .segments = part.reductions.segments,
                               .pointers = resolver.resolve(part.reductions.pointers, task.reductions)},
                .exposed_count = static_cast<std::uint32_t>(part.exposed.size()),
                .exposed = task.exposed};
  if (task.round.ends_call && !is_captured_) {
    task.round.done = team_.progress().flag_of_rounds(local);
    task.round.counts_done = task.round.done == nullptr;
    task.round.done_value = static_cast<std::uint32_t>(launch.sequence);
  }
}

void RoundLauncher::expose(const RoundPlan& plan, const RoundPart& part,
                           std::span<std::byte* const> addresses, std::vector<std::byte*>& exposed) const {
  const std::size_t count = part.exposed.size();
  exposed.resize(part.readers.size() * count);
  const auto is_in_place = [&](BufferId buffer) { return std::ranges::binary_search(plan.in_place, buffer); };
  const bool are_some = !plan.in_place.empty() && std::ranges::any_of(part.exposed, is_in_place);
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const address = addresses[part.exposed[i]];
    Registrations::Exposed memory(address);
    if (Registrations* const opened = team_.registrations()) memory = opened->find(address);
    for (std::size_t reader = 0; reader < part.readers.size(); ++reader) {
      std::byte* const seen = memory.seen_by(part.readers[reader]);
      exposed[reader * count + i] =
          are_some ? backend::ExposedAddress::marked(seen, is_in_place(part.exposed[i]), i == 0) : seen;
    }
  }
}

void RoundLauncher::finish(std::uint64_t sequence, std::span<const backend::StreamRef> lanes) {
  if (is_captured_) return;
  const auto streams = lanes.subspan(team_.membership().first_local(), team_.membership().local_count());
  for (std::size_t local = 0; local < streams.size(); ++local)
    team_.progress().mark(local, sequence, streams[local]);
}

}  // namespace tutti::transport::team
