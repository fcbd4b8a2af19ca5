// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"
#include "backend/host/queues/team_part.hpp"

#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tutti::backend::host {

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
  std::byte* const address = task.windows[task.member];
  std::shared_ptr<const Allocation> window = addresses_.find(address);
  if (window == nullptr) {
    throw Error(
        ErrorCode::device_failure,
        fmt::format("team_round: the window of member {}, at address {}, is neither device memory nor "
                    "pinned memory",
                    task.member, fmt::ptr(address)));
  }
  const auto part = std::make_shared<const TeamPart>(task, std::move(window), rounds_before(task));
  bool begins = true;
  const auto enqueue_task = [&](std::span<const TeamPart::Condition> conditions,
                                void (TeamPart::*body)(Translation&) const) {
    auto work = accept(stream, virtual_devices::Operation::kernel, "team_round",
                       [part, body](Translation& translation) { ((*part).*body)(translation); });
    submit(worker_of(stream), std::make_unique<TeamTask>(part, std::exchange(begins, false), conditions,
                                                         make_task("team_round", std::move(work))));
  };
  enqueue_task(part->until_free(), &TeamPart::put);
  if (part->takes()) enqueue_task(part->until_arrived(), &TeamPart::take);
  if (part->exposes()) enqueue_task(part->until_read(), &TeamPart::end);
}

}  // namespace tutti::backend::host
