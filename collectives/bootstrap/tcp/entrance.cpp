// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/entrance.hpp"

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "collectives/bootstrap/tcp/line.hpp"
#include "collectives/bootstrap/tcp/visitors.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/types.h>

namespace tutti::tcp {
namespace {

using transport::team::Applicant;
using transport::team::Entrance;
using transport::team::SurvivorBoard;
using transport::team::Ticket;

/// Returns why the process cannot become a rank; empty if it can.
std::string reason_against(const Applicant& applicant) {
  const Applicant own = Applicant::own();
  if (applicant.build != own.build) {
    return fmt::format("Communicator::join: this process uses {} and the ranks {}; expected the same build",
                       applicant.build.string(), own.build.string());
  }
  if (applicant.process_space != own.process_space) {
    return "Communicator::join: this process and the ranks are in different PID namespaces, expected ones "
           "that "
           "see one another's processes";
  }
  return {};
}

class TcpEntrance final : public Entrance {
 public:
  explicit TcpEntrance(const Place& place)
      : listener_(listen_at(place.addresses, place.rendezvous)),
        visitors_(key_of(place.rendezvous), place.rendezvous.encrypts, SurvivorBoard::most_newcomers) {}

  void look(const Host& host) override {
    visitors_.accept_from(listener_);
    visitors_.hear([this](Claim claim, Line line) { greet(claim, std::move(line)); });
    guests_.remove_if([&](Guest& guest) { return !is_there(guest, host); });
  }
  [[nodiscard]] std::string account() const override { return visitors_.account(); }

 private:
  /// A process that has proven that it belongs to the job.
  struct Guest {
    Line line;
    std::optional<Ticket> ticket;
    pid_t process = 0;
  };

  void greet(Claim claim, Line line) {
    if (claim.rank != Claim::newcomer) {
      line.send_failure(ErrorCode::invalid_argument,
                        fmt::format("rank {} comes where ranks that have met let new ones in "
                                    "(Communicator::join)",
                                    claim.rank));
      return;
    }
    line.expect(sizeof(Applicant));
    guests_.push_back({.line = std::move(line), .ticket = std::nullopt, .process = 0});
  }
  static bool is_there(Guest& guest, const Host& host) {
    const Progress progress = guest.line.receive();
    if (progress == Progress::halfway) return true;
    if (guest.ticket) {
      host.note_departure(guest.ticket->participant, guest.process);
      return false;
    }
    return progress == Progress::complete && admit(guest, host);
  }
  static bool admit(Guest& guest, const Host& host) {
    Applicant applicant;
    std::string reason = "Communicator::join: the ranks use another build of tutti, expected the same build";
    if (guest.line.is_as_expected()) {
      std::memcpy(&applicant, guest.line.body().data(), sizeof(applicant));
      reason = reason_against(applicant);
    }
    if (!reason.empty()) {
      guest.line.send_failure(ErrorCode::invalid_argument, reason);
      return false;
    }
    guest.ticket = host.admit(applicant);
    if (!guest.ticket) return false;  // it comes again
    guest.process = applicant.process;
    guest.line.add(object_bytes(*guest.ticket));
    guest.line.expect(0);
    if (guest.line.flush() == Progress::complete) return true;  // so little fits
    host.note_departure(guest.ticket->participant, guest.process);
    return false;
  }

  Descriptor listener_;
  Visitors visitors_;
  std::list<Guest> guests_;
};

}  // namespace

Place place_at(const MeetingPoint& point, std::chrono::milliseconds timeout, std::string_view function) {
  Place place;
  place.rendezvous = {.rank = Claim::newcomer,
                      .address = point.address,
                      .port = point.port,
                      .secret = point.secret,
                      .job = point.job,
                      .timeout = timeout,
                      .address_name = "options.meeting_point.address",
                      .port_name = "options.meeting_point.port"};
  place.addresses = checked_addresses_of(place.rendezvous, function, "options.meeting_point.secret");
  return place;
}

std::unique_ptr<Entrance> open_entrance(const Place& place) {
  return std::make_unique<TcpEntrance>(place);
}

}  // namespace tutti::tcp
