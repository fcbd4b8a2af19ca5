// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_memory.hpp"
#include "transport/team/joining/build_mark.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/shared/survivor_board.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

namespace tutti::transport::team {

/// A process that wants to become a rank, as it describes itself to the rank that may let it in.
struct Applicant {
  BuildMark build;
  pid_t process = 0;
  std::uint64_t process_space = 0;

  [[nodiscard]] static Applicant own();
};

/// Lets a process that is to become a rank take part in the agreement: it opens the memory of the ranks.
struct Ticket {
  BuildMark build;
  SharedMemory::Handle memory;
  SharedState::Shape shape;
  std::size_t participant = 0;  ///< its number in the agreement
  std::uint32_t attempt = 0;
  RankChange change = RankChange::grow;
  bool leaves_out_late = false;
  std::chrono::milliseconds timeout{};
};

/// Takes in processes that are to become ranks; one rank at a time watches it.
class Entrance {
 public:
  /// Decides about those who come: the agreement's part.
  struct Host {
    /// Returns a ticket, or nothing if there are as many newcomers as there can be.
    std::function<std::optional<Ticket>(const Applicant& applicant)> admit;
    /// Notes that a process has left which had got the ticket of this participant. Another may have got it
    /// since then.
    std::function<void(std::size_t participant, pid_t process)> note_departure;
  };

  Entrance() = default;
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;
  virtual ~Entrance() = default;

  /// Lets in who has come, without waiting.
  virtual void look(const Host& host) = 0;
  /// Says who has come and was not let in: "; 1 connection said nothing". Empty if there was nobody.
  [[nodiscard]] virtual std::string account() const = 0;
};

}  // namespace tutti::transport::team
