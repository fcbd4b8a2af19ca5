// SPDX-License-Identifier: Apache-2.0
#include "transport/team/joining/build_mark.hpp"

#include "backend/backend.hpp"
#include "backend/team_round.hpp"
#include "base/hash.hpp"
#include "os/shared_flag.hpp"
#include "os/shared_memory.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/link_log.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/shared/registration_tables.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/shared/survivor_board.hpp"
#include "tutti/error.hpp"
#include "tutti/version.hpp"

#include <bit>
#include <cstddef>
#include <vector>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

template <class... Types>
constexpr std::uint64_t mixed_sizes(std::uint64_t hash) {
  ((hash = mix(mix(hash, sizeof(Types)), alignof(Types))), ...);
  return hash;
}

/// The version of the shared and exchanged structures. Increment it when a structure changes its meaning but
/// not its size, as sizes are compared anyway.
constexpr std::uint64_t meaning = 10;

constexpr std::uint64_t layout_of_this_build() {
  std::uint64_t hash =
      mixed_sizes<RankStatus, RankStatus::Entry, FirstCalls, Mailbox, LinkLog, RegistrationTable,
                  RegistrationTable::Entry, RegistrationView, ShrinkSlot, Signature, Note,
                  backend::SharedFlag, backend::AbortWord, backend::AbortReason, backend::TeamWindowLayout,
                  backend::LinkLabel, backend::TeamRecord, backend::MemoryHandle, SharedMemory::Handle>(
          meaning);
  for (const std::size_t number :
       {LinkLog::history, std::size_t{backend::TeamWindowLayout::link_slots},
        std::size_t{backend::TeamWindowLayout::smallest_link_piece},
        std::size_t{backend::TeamWindowLayout::smallest_line_piece},
        std::size_t{backend::TeamWindowLayout::largest_line_piece}, RankStatus::history, Mailbox::capacity,
        RegistrationTable::capacity, SurvivorBoard::most_newcomers,
        std::size_t{backend::TeamWindowLayout::slot_count}, std::size_t{backend::TeamWindowLayout::alignment},
        std::size_t{std::endian::native == std::endian::little}})
    hash = mix(hash, number);
  return hash;
}

}  // namespace

BuildMark BuildMark::own() {
  BuildMark mark{.version = {}, .layout = layout_of_this_build()};
  tutti::version().copy(mark.version.data(), mark.version.size() - 1);
  return mark;
}

std::string BuildMark::string() const {
  return fmt::format("tutti {} (layout {:016x})", version.data(), layout);
}

void require_same_build(Exchange& exchange) {
  const std::vector<BuildMark> marks = gather(exchange, BuildMark::own());
  for (std::size_t rank = 1; rank < marks.size(); ++rank) {
    if (marks[rank] == marks[0]) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("Communicator: rank {} uses {} and rank 0 {}; expected the same build on all ranks", rank,
                    marks[rank].string(), marks[0].string()));
  }
}

}  // namespace tutti::transport::team
