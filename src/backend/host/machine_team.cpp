// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"
#include "backend/host/table_work.hpp"
#include "backend/thread.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Rounds of teams, whose windows lie in device memory or in pinned memory. A member's part is one task, or
/// two if it waits for others half-way. Messages lie in inboxes without lines, and flags tell of them.
namespace tutti::backend::host {
namespace {

constexpr int turn = 5;  // milliseconds, after which a waiting task lets its window move

SharedFlag& flag_at(std::byte* window, std::size_t offset) {
  return *reinterpret_cast<SharedFlag*>(window + offset);
}

using Pointers = std::vector<std::byte*>;

/// Where places are, once they have been given.
class Sources {
 public:
  /// `own_window` is where the worker finds the window's bytes.
  Sources(const TeamRound& task, const std::byte* own_window, std::uint64_t shift)
      : shift_(shift), slot_(own_window + task.layout.slots_offset() + shift) {}

  [[nodiscard]] std::byte* operator()(std::byte* place) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(place);
    if (SourcePlace::is_in_slot(bits)) return place + shift_;
    if (SourcePlace::is_own(bits)) return reinterpret_cast<std::byte*>(SourcePlace::address(bits));
    return reinterpret_cast<std::byte* const*>(slot_)[SourcePlace::number(bits)] + SourcePlace::offset(bits);
  }

 private:
  std::uint64_t shift_;
  const std::byte* slot_;
};

}  // namespace

void TeamTask::run() {
  if (!ready()) {
    BlockInUse window(window_);  // who waits writes that it sleeps
    for (const Condition& condition : conditions_) {
      while (!wait_for_flag(*condition.flag, condition.value, abort_, turn) && !abort_.is_set())
        window.make_way();
    }
  }
  if (abort_.is_set()) {
    const AbortReason& reason = abort_.reason();
    throw Ended(static_cast<ErrorCode>(reason.code), std::string(reason.text()));
  }
  try {
    work_();
  } catch (...) {
    const Escaped escaped = Escaped::current();
    std::array<char, sizeof(AbortReason::bytes)> text{};
    const auto end = fmt::format_to_n(text.data(), text.size(), "rank {}: {}", process_, escaped.what);
    abort_.set(process_, static_cast<std::uint32_t>(escaped.code), {text.data(), end.out});
    throw;
  }
}

bool TeamTask::ready() const noexcept {
  return abort_.is_set() || std::ranges::all_of(conditions_, [](const Condition& condition) {
           return has_reached(condition.flag->value.load(std::memory_order_acquire), condition.value);
         });
}

void Machine::team_round(StreamRef stream, const TeamRound& task) {
  enqueue_part(stream, task);
  if (task.relay != nullptr) enqueue_part(stream, *task.relay);
  end_kernel(stream);
}

void Machine::enqueue_part(StreamRef stream, const TeamRound& task) {
  const TeamWindowLayout layout = task.layout;
  const std::uint32_t round = task.rounds_before + task.round;
  const std::uint32_t finished = task.rounds_before + task.finished;
  const std::uint32_t member = task.member;
  const Pointers windows(task.windows.begin(), task.windows.end());
  const std::uint64_t shift = task.is_low_latency ? layout.inbox_shift(round) : layout.slot_shift(round);

  // Where this member's flags can be looked at; the bytes never move to another address.
  const std::shared_ptr<const Allocation> own_window = addresses_.find(windows[member]);
  if (own_window == nullptr) {
    throw Error(
        ErrorCode::device_failure,
        fmt::format("team_round: the window of member {}, at address {}, is neither device memory nor "
                    "pinned memory",
                    member, fmt::ptr(windows[member])));
  }
  std::byte* const own_flags = own_window->memory + (windows[member] - own_window->base);

  const bool is_milestone = TeamWindowLayout::is_milestone(round - 1, finished);
  const bool gives = task.given_count != 0;
  const auto say_done = [done = task.done, value = task.done_value] {
    if (done != nullptr) backend::set_flag(*done, value);
  };
  const auto say_finished = [layout, windows, member, finished, is_milestone, gives,
                             say_done](Translation& translation) {
    for (std::byte* const window : windows) {
      if (is_milestone) backend::set_flag(translation.flag(window + layout.ready_offset(member)), finished);
      backend::set_flag(translation.flag(window + layout.finished_offset(member)), finished);
    }
    if (!gives) say_done();
  };

  // The first half: puts, and telling the readers.
  const bool has_second_half =
      !task.sources.empty() || !task.copies.segments.empty() || !task.sums.segments.empty();
  std::vector<TeamTask::Condition> room;
  Pointers put_pointers(task.puts.pointers.begin(), task.puts.pointers.end());
  if (gives || !task.puts.segments.empty()) {
    for (std::uint32_t other = 0; other < layout.members; ++other) {
      room.push_back(
          {&flag_at(own_flags, layout.finished_offset(other)), round - TeamWindowLayout::slot_count});
    }
    for (const FanOutSegment& segment : task.puts.segments) {
      for (std::uint32_t i = 0; i < segment.target_count; ++i)
        put_pointers[segment.first_target + i] += shift;
    }
  }
  auto put = accept(
      stream, virtual_devices::Operation::kernel, "team_round",
      [own_window, puts_some = !task.puts.segments.empty(),
       puts = FanOutWork({task.puts.segments, put_pointers}), layout, windows, member, round,
       readers = std::vector(task.readers.begin(), task.readers.end()), has_second_half,
       given = Pointers(task.given.begin(), task.given.end()), given_count = task.given_count,
       place = layout.slots_offset() + shift + layout.given_offset(member),
       say_finished](Translation& translation) {
        if (puts_some) translation.add(own_window);
        puts(translation);
        for (std::size_t i = 0; i < readers.size(); ++i) {
          const auto addresses = std::as_bytes(std::span(given).subspan(i * given_count, given_count));
          translation.begin_segment();
          std::ranges::copy(addresses, translation.write(windows[readers[i]] + place, addresses.size()));
        }
        for (const std::uint32_t reader : readers) {
          backend::set_flag(translation.flag(windows[reader] + layout.ready_offset(member)), round);
        }
        if (!has_second_half) say_finished(translation);
      });
  StreamWorker& worker = worker_of(stream);
  submit(worker,
         std::make_unique<TeamTask>(std::move(room), own_window, *task.abort, task.process, std::move(put)));
  const auto submit_end = [&] {
    if (!gives) return;
    std::vector<TeamTask::Condition> over;
    for (const std::uint32_t reader : task.readers) {
      over.push_back({&flag_at(own_flags, layout.finished_offset(reader)), round});
    }
    auto end = accept(stream, virtual_devices::Operation::kernel, "team_round",
                      [say_done](Translation&) { say_done(); });
    submit(worker, std::make_unique<TeamTask>(std::move(over), own_window, *task.abort, task.process,
                                              std::move(end)));
  };
  if (!has_second_half) return submit_end();

  std::vector<TeamTask::Condition> arrived;
  for (const std::uint32_t source : task.sources) {
    arrived.push_back({&flag_at(own_flags, layout.ready_offset(source)), round});
  }
  const auto submit_second = [&](auto work) {
    auto get = accept(stream, virtual_devices::Operation::kernel, "team_round",
                      [own_window, work = std::move(work), say_finished](Translation& translation) mutable {
                        translation.add(own_window);
                        work(translation);
                        say_finished(translation);
                      });
    submit(worker, std::make_unique<TeamTask>(std::move(arrived), own_window, *task.abort, task.process,
                                              std::move(get)));
  };
  const Sources sources(task, own_flags, shift);
  if (!task.sums.segments.empty()) {
    submit_second([work = OrderedSumWork(task.sums), sources](Translation& translation) mutable {
      work.find_inputs(sources);
      work(translation);
    });
  } else {
    submit_second([work = FanOutWork(task.copies), sources](Translation& translation) mutable {
      work.find_sources(sources);
      work(translation);
    });
  }
  submit_end();
}

}  // namespace tutti::backend::host
