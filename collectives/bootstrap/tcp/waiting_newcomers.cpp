// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/waiting_newcomers.hpp"

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "transport/team/shared/survivor_board.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <pthread.h>

namespace tutti::tcp {
namespace {

using transport::team::Applicant;
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
           "that see one another's processes";
  }
  return {};
}

}  // namespace

/// Lists all of the process, and has forked children close them. Never destroyed.
struct WaitingNewcomers::OfProcess {
  OfProcess() {
    const int status = pthread_atfork([] { get().lock(); }, [] { get().unlock(); },
                                      [] {
                                        for (WaitingNewcomers* const each : get().all)
                                          each->leave_to_parent();
                                        get().unlock();
                                      });
    if (status != 0) throw std::bad_alloc();
  }
  static OfProcess& get() {
    static auto* const of_process = new OfProcess;
    return *of_process;
  }
  void lock() {
    mutex.lock();
    for (WaitingNewcomers* const each : all) each->mutex_.lock();
  }
  void unlock() {
    for (WaitingNewcomers* const each : all) each->mutex_.unlock();
    mutex.unlock();
  }

  std::mutex mutex;  ///< held also while one begins or ends to listen, so that no fork comes in between
  std::list<WaitingNewcomers*> all;
};

WaitingNewcomers::WaitingNewcomers(const Place& place, std::size_t most)
    : key_(key_of(place.rendezvous)),
      most_(most),
      visitors_(key_, place.rendezvous.encrypts, transport::team::SurvivorBoard::most_newcomers) {
  OfProcess& of_process = OfProcess::get();
  const std::lock_guard lock(of_process.mutex);
  listener_ = listen_at(place.addresses, place.rendezvous);
  address_ = own_address_of(listener_).text();
  of_process.all.push_back(this);
}

WaitingNewcomers::~WaitingNewcomers() {
  OfProcess& of_process = OfProcess::get();
  const std::lock_guard lock(of_process.mutex);
  close();
  of_process.all.remove(this);
}

void WaitingNewcomers::set_owner(const std::shared_ptr<OpenPlace>& owner) {
  const std::lock_guard lock(OfProcess::get().mutex);
  owner_ = owner;
}

std::shared_ptr<OpenPlace> WaitingNewcomers::owner_at(const Place& place) {
  OfProcess& of_process = OfProcess::get();
  const std::lock_guard lock(of_process.mutex);
  for (const WaitingNewcomers* const each : of_process.all) {
    std::shared_ptr<OpenPlace> owner = each->is_at(place) ? each->owner_.lock() : nullptr;
    if (owner != nullptr) return owner;
  }
  return nullptr;
}

void WaitingNewcomers::leave_to_parent() noexcept {
  close();
  owner_.reset();
}

void WaitingNewcomers::close() noexcept {
  listener_.close();
  visitors_.close();
  for (Guest& guest : guests_) guest.line.close();
}

void WaitingNewcomers::look() {
  static_cast<void>(without_those_gone());
}

void WaitingNewcomers::look(const Host& host) {
  for (const Guest& guest : without_those_gone()) {
    if (guest.ticket) host.note_departure(guest.ticket->participant, guest.applicant->process);
  }
  for (Guest& guest : guests_) {
    if (!guest.waits()) continue;
    const std::optional<Ticket> ticket = host.admit(*guest.applicant);
    if (!ticket) return;
    if (!send_ticket(guest, *ticket)) host.note_departure(ticket->participant, guest.applicant->process);
  }
}

WaitingNewcomers::Guests WaitingNewcomers::without_those_gone() {
  Guests gone;
  const std::lock_guard lock(mutex_);
  visitors_.accept_from(listener_);
  visitors_.hear([this](Claim claim, Line line) { greet(claim, std::move(line)); });
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto each = guest++;
    if (hear(*each)) continue;
    each->line.close();
    gone.splice(gone.end(), guests_, each);
  }
  return gone;
}

void WaitingNewcomers::greet(Claim claim, Line line) {
  if (claim.rank != Claim::newcomer) {
    line.send_failure(ErrorCode::invalid_argument,
                      fmt::format("rank {} has come to a meeting point at which running ranks let new "
                                  "processes in: those call Communicator::join",
                                  claim.rank));
  } else if (guests_.size() >= most_) {
    static_cast<void>(line.send_note(fmt::format("no more than {} may wait there, and so many do", most_)));
  } else {
    line.expect(sizeof(Applicant));
    guests_.push_back({.line = std::move(line)});
  }
}

bool WaitingNewcomers::hear(Guest& guest) {
  const Progress progress = guest.line.receive();
  if (progress == Progress::halfway) return true;
  if (progress == Progress::closed || guest.applicant) return false;
  std::string reason = "Communicator::join: the ranks use another build of tutti, expected the same build";
  if (guest.line.is_as_expected()) {
    std::memcpy(&guest.applicant.emplace(), guest.line.body().data(), sizeof(Applicant));
    reason = reason_against(*guest.applicant);
  }
  guest.line.expect(0);  // it has nothing more to say
  if (!reason.empty()) guest.line.send_failure(ErrorCode::invalid_argument, reason);
  return reason.empty();
}

bool WaitingNewcomers::send_ticket(Guest& guest, const Ticket& ticket) {
  const std::lock_guard lock(mutex_);
  guest.ticket = ticket;
  guest.line.add(object_bytes(*guest.ticket));
  if (guest.line.flush() == Progress::complete) return true;  // so little fits
  guest.line.close();
  guest.ticket.reset();
  return false;
}

void WaitingNewcomers::forget_admitted() {
  const std::lock_guard lock(mutex_);
  std::erase_if(guests_, [](const Guest& guest) { return guest.ticket.has_value(); });
}

std::size_t WaitingNewcomers::count() const {
  return static_cast<std::size_t>(std::ranges::count_if(guests_, &Guest::waits));
}

bool WaitingNewcomers::add_sockets(std::vector<pollfd>& sockets) const {
  visitors_.add_sockets(listener_, sockets);
  for (const Guest& guest : guests_)
    sockets.push_back({.fd = guest.line.socket().number(), .events = POLLIN, .revents = 0});
  return visitors_.has_room();
}

bool WaitingNewcomers::is_at(const Place& place) const {
  return std::ranges::any_of(place.addresses,
                             [&](const Address& address) { return address.text() == address_; });
}

}  // namespace tutti::tcp
