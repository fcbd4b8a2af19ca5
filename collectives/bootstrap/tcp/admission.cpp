// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/admission.hpp"

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "tutti/error.hpp"

#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

using transport::team::Applicant;
using transport::team::Ticket;

/// Returns a connection on which both ends have proven themselves; nothing if there is nobody now.
std::optional<Line> reach_entrance(const Place& place, const Wait& wait) {
  for (const Address& address : place.addresses) {
    Descriptor socket = connect_to(address, wait);
    if (!socket.is_open()) continue;
    Session session;
    if (introduce(socket, place.rendezvous, wait, session) == Introduction::admitted)
      return Line(std::move(socket), session);
  }
  return std::nullopt;
}

/// Asks to be let in. Returns nothing if the rank closes the connection without an answer.
std::optional<Ticket> ask(Line& line, const Wait& wait) {
  const Applicant own = Applicant::own();
  line.expect(sizeof(Ticket));
  line.add(object_bytes(own));
  if (line.flush(wait) != Progress::complete) return std::nullopt;
  Progress progress = line.receive();
  for (; progress == Progress::halfway && !wait.is_over(); progress = line.receive())
    wait.until_ready(line.socket(), POLLIN);
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

}  // namespace

Admission await_admission(const Place& place, const Wait& wait) {
  for (; !wait.is_over(); wait.until_ready({})) {
    std::optional<Line> line = reach_entrance(place, wait);
    if (!line) continue;
    if (const std::optional<Ticket> ticket = ask(*line, wait))
      return {.line = std::move(*line), .ticket = *ticket};
  }
  throw Error(ErrorCode::timeout,
              fmt::format("Communicator::join: after {} s, no rank has let this process in at {}",
                          in_seconds(place.rendezvous.timeout), place_of(place.rendezvous)));
}

}  // namespace tutti::tcp
