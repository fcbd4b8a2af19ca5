// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/admission.hpp"

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "tutti/error.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

using transport::team::Applicant;
using transport::team::Ticket;

/// The way of a process to the ranks that let it in: it comes again and again until one does.
class Candidate {
 public:
  Candidate(const Place& place, const Wait& wait, int losses) : place_(place), wait_(wait), losses_(losses) {}

  Admission await() {
    for (; !wait_.is_over(); pause()) {
      std::optional<Line> line = reach();
      if (!line) continue;
      if (const std::optional<Ticket> ticket = ask(*line))
        return {.line = std::move(*line), .ticket = *ticket};
    }
    throw Error(ErrorCode::timeout,
                fmt::format("Communicator::join: after {} s, no rank has let this process in at {}: {}",
                            in_seconds(place_.rendezvous.timeout), place_of(place_.rendezvous), account()));
  }

 private:
  /// Says what has become of its attempts.
  [[nodiscard]] std::string account() const {
    const std::string state = state_.value_or(losses_ > 0 ? "its time is over" : "nobody listens there");
    if (losses_ == 0) return state;
    return fmt::format(
        "{}; ranks have asked it {}, and gone on without it: call Communicator::join again before they "
        "next call grow or replace",
        state, losses_ == 1 ? "once" : fmt::format("{} times", losses_));
  }

  /// Returns a connection on which both ends have proven themselves; nothing if there is nobody now.
  std::optional<Line> reach() {
    std::string state = "nobody listens there";
    for (const Address& address : place_.addresses) {
      Descriptor socket = connect_to(address, wait_);
      if (!socket.is_open()) continue;
      state = "what listens there does not answer";
      Session session;
      if (introduce(socket, place_.rendezvous, wait_, session) == Introduction::admitted)
        return Line(std::move(socket), session);
    }
    // An attempt that the end cuts short says less than the one before.
    if (!wait_.is_over() || (!state_ && losses_ == 0)) state_ = std::move(state);
    return std::nullopt;
  }
  /// Asks to be let in. Returns nothing if the rank closes the connection without an answer.
  std::optional<Ticket> ask(Line& line) {
    const Applicant own = Applicant::own();
    line.expect(sizeof(Ticket));
    line.add(object_bytes(own));
    if (line.flush(wait_) == Progress::halfway) return std::nullopt;
    state_ = "it waits there, and the ranks have not called Communicator::grow or replace for it";
    const Progress progress = receive(line);
    if (progress == Progress::closed) note_end(line);
    if (progress != Progress::complete) return std::nullopt;
    line.rethrow();
    if (!line.is_as_expected()) {
      throw Error(ErrorCode::invalid_argument,
                  "Communicator::join: the ranks use another build of tutti, expected the same build");
    }
    Ticket ticket;
    std::memcpy(&ticket, line.body().data(), sizeof(ticket));
    return ticket;
  }
  [[nodiscard]] Progress receive(Line& line) const {
    for (;;) {
      const Progress progress = line.receive();
      if (progress != Progress::halfway || wait_.is_over()) return progress;
      wait_.until_ready(line.socket(), POLLIN);
    }
  }
  void note_end(Line& line) {
    const std::optional<std::string> reason = line.take_note();
    is_turned_away_ = reason.has_value();
    state_ = reason.value_or("what listens there closes the connection: ranks meet there, or let others in");
  }
  /// Where there is no room, it asks less often.
  void pause() {
    constexpr int looks = 20;
    for (int look = 0; look < (is_turned_away_ ? looks : 1) && !wait_.is_over(); ++look)
      wait_.until_ready({});
    is_turned_away_ = false;
  }

  const Place& place_;
  const Wait& wait_;
  const int losses_;
  std::optional<std::string> state_;  ///< of its last attempt
  bool is_turned_away_ = false;
};

}  // namespace

Admission await_admission(const Place& place, const Wait& wait, int losses) {
  return Candidate(place, wait, losses).await();
}

}  // namespace tutti::tcp
