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
  /// `own_window` is where the worker finds the window's bytes, `shift` how far behind that of round 0 the
  /// slot or the inbox is.
  Sources(const TeamWindowLayout& layout, const std::byte* own_window, std::uint64_t shift)
      : shift_(shift), slot_(own_window + layout.slots_offset() + shift) {}

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

void require_running(const AbortWord& abort) {
  if (!abort.is_set()) return;
  const AbortReason& reason = abort.reason();
  throw Ended(static_cast<ErrorCode>(reason.code), std::string(reason.text()));
}

void end_team(AbortWord& abort, std::uint32_t process) noexcept {
  const Escaped escaped = Escaped::current();
  std::array<char, sizeof(AbortReason::bytes)> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "rank {}: {}", process, escaped.what);
  abort.set(process, static_cast<std::uint32_t>(escaped.code), {text.data(), end.out});
}

void TeamTask::run() {
  if (!ready()) {
    BlockInUse window(window_);  // who waits writes that it sleeps
    const std::uint32_t before = rounds_before_.get();
    for (const Condition& condition : conditions_) {
      while (!wait_for_flag(*condition.flag, before + condition.round, abort_, turn) && !abort_.is_set())
        window.make_way();
    }
  }
  require_running(abort_);
  try {
    work_->run();
  } catch (...) {
    end_team(abort_, process_);
    throw;
  }
}

bool TeamTask::ready() const noexcept {
  const std::uint32_t before = rounds_before_.get();
  return abort_.is_set() || std::ranges::all_of(conditions_, [before](const Condition& condition) {
           return has_reached(condition.flag->value.load(std::memory_order_acquire),
                              before + condition.round);
         });
}

std::unique_ptr<Task> TeamTask::clone() const {
  return std::make_unique<TeamTask>(conditions_, rounds_before_, window_, abort_, process_, work_->clone());
}

void Machine::team_round(StreamRef stream, const TeamRound& task) {
  enqueue_part(stream, task);
  if (task.relay != nullptr) enqueue_part(stream, *task.relay);
  end_kernel(stream);
}

RoundCount Machine::rounds_before(const TeamRound& task) const {
  if (task.counters == nullptr) return {nullptr, nullptr, task.rounds_before};
  const auto* const place = reinterpret_cast<const std::byte*>(task.counters);
  std::shared_ptr<const Allocation> block = addresses_.find(place);
  if (block == nullptr) return {nullptr, nullptr, task.rounds_before};
  std::byte* const found = block->memory + (place - block->base);
  return {std::move(block), reinterpret_cast<TeamCounters*>(found), task.rounds_before};
}

void Machine::enqueue_part(StreamRef stream, const TeamRound& task) {
  const TeamWindowLayout layout = task.layout;
  const std::uint32_t member = task.member;
  const Pointers windows(task.windows.begin(), task.windows.end());

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

  // Rounds are numbered when the part runs: a graph may have been launched in between, or hold it.
  const RoundCount rounds = rounds_before(task);
  const auto shift_now = [rounds, layout, round = task.round, is_low_latency = task.is_low_latency] {
    const std::uint32_t now = rounds.get() + round;
    return is_low_latency ? layout.inbox_shift(now) : layout.slot_shift(now);
  };
  const bool gives = task.given_count != 0;
  const auto close = [rounds, ends_call = task.ends_call, finished = task.finished, done = task.done,
                      counts_done = task.counts_done, value = task.done_value] {
    if (ends_call) rounds.add(finished);
    if (counts_done) rounds.set_done(value);
    if (done != nullptr) backend::set_flag(*done, value);
  };
  const auto say_finished = [rounds, layout, windows, member, round = task.round, finished = task.finished,
                             gives, close](Translation& translation) {
    const std::uint32_t before = rounds.get();
    const bool is_milestone = TeamWindowLayout::is_milestone(before + round - 1, before + finished);
    for (std::byte* const window : windows) {
      if (is_milestone)
        backend::set_flag(translation.flag(window + layout.ready_offset(member)), before + finished);
      backend::set_flag(translation.flag(window + layout.finished_offset(member)), before + finished);
    }
    if (!gives) close();
  };
  const auto submit_part = [&](std::vector<TeamTask::Condition> conditions, auto work) {
    auto accepted = accept(stream, virtual_devices::Operation::kernel, "team_round", std::move(work));
    submit(worker_of(stream),
           std::make_unique<TeamTask>(std::move(conditions), rounds, own_window, *task.abort, task.process,
                                      make_task("team_round", std::move(accepted))));
  };

  // The first half: puts, and telling the readers.
  const bool has_second_half =
      !task.sources.empty() || !task.copies.segments.empty() || !task.reductions.segments.empty();
  std::vector<TeamTask::Condition> room;
  if (gives || !task.puts.segments.empty()) {
    for (std::uint32_t other = 0; other < layout.members; ++other) {
      room.push_back(
          {&flag_at(own_flags, layout.finished_offset(other)), task.round - TeamWindowLayout::slot_count});
    }
  }
  submit_part(
      std::move(room),
      [own_window, puts_some = !task.puts.segments.empty(), puts = FanOutWork(task.puts), layout, windows,
       member, rounds, round = task.round, readers = std::vector(task.readers.begin(), task.readers.end()),
       has_second_half, given = Pointers(task.given.begin(), task.given.end()),
       given_count = task.given_count, shift_now, say_finished](Translation& translation) mutable {
        const std::uint64_t shift = shift_now();
        if (puts_some) translation.add(own_window);
        puts.shift_targets(shift);
        puts(translation);
        for (std::size_t i = 0; i < readers.size(); ++i) {
          const auto addresses = std::as_bytes(std::span(given).subspan(i * given_count, given_count));
          translation.begin_segment();
          std::byte* const slot =
              windows[readers[i]] + layout.slots_offset() + shift + layout.given_offset(member);
          std::ranges::copy(addresses, translation.write(slot, addresses.size()));
        }
        for (const std::uint32_t reader : readers) {
          backend::set_flag(translation.flag(windows[reader] + layout.ready_offset(member)),
                            rounds.get() + round);
        }
        if (!has_second_half) say_finished(translation);
      });
  const auto submit_end = [&] {
    if (!gives) return;
    std::vector<TeamTask::Condition> over;
    for (const std::uint32_t reader : task.readers) {
      over.push_back({&flag_at(own_flags, layout.finished_offset(reader)), task.round});
    }
    submit_part(std::move(over), [close](Translation&) { close(); });
  };
  if (!has_second_half) return submit_end();

  std::vector<TeamTask::Condition> arrived;
  for (const std::uint32_t source : task.sources) {
    arrived.push_back({&flag_at(own_flags, layout.ready_offset(source)), task.round});
  }
  const auto submit_second = [&](auto work) {
    submit_part(std::move(arrived),
                [own_window, work = std::move(work), say_finished](Translation& translation) mutable {
                  translation.add(own_window);
                  work(translation);
                  say_finished(translation);
                });
  };
  if (!task.reductions.segments.empty()) {
    submit_second([work = OrderedReductionWork(task.reductions), layout, own_flags,
                   shift_now](Translation& translation) mutable {
      work.find_operands(Sources(layout, own_flags, shift_now()));
      work(translation);
    });
  } else {
    submit_second(
        [work = FanOutWork(task.copies), layout, own_flags, shift_now](Translation& translation) mutable {
          work.find_sources(Sources(layout, own_flags, shift_now()));
          work(translation);
        });
  }
  submit_end();
}

}  // namespace tutti::backend::host
