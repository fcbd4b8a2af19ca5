// SPDX-License-Identifier: Apache-2.0
#include "backend/rounding.hpp"
#include "backend/shared_memory.hpp"
#include "environment.hpp"
#include "log.hpp"
#include "transport/team/agreement.hpp"
#include "transport/team/build_mark.hpp"
#include "transport/team/common_memory.hpp"
#include "transport/team/team.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

/// How a team begins and ends: who its ranks are, what they share, and where it lies.
namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

/// How long others are waited for that should come at once.
constexpr std::chrono::seconds longest_moment{1};

struct Introduction {
  Note complaint;  ///< why this rank cannot join
  Note host;
  std::uint32_t member_count = 0;
  pid_t process = 0;
  std::uint64_t process_space = 0;  ///< in which `process` is a number
  std::uint64_t window_bytes = 0;
  TransportKind transport = TransportKind::automatic;
  TransportSource transport_source = TransportSource::options;
  Determinism determinism = Determinism::fastest;
  BackendKind backend = BackendKind::host;
};

/// What all ranks must give alike.
struct Common {
  const char* name;
  std::string (*value)(const Introduction& introduction);
  std::string_view (*source)(const Introduction& introduction) = [](const Introduction& /*from*/) {
    return std::string_view();
  };
};
const std::array common_settings{
    Common{"options.window_bytes",
           [](const Introduction& from) { return fmt::to_string(from.window_bytes); }},
    Common{"options.transport", [](const Introduction& from) { return std::string(name_of(from.transport)); },
           [](const Introduction& from) { return in_words(from.transport_source); }},
    Common{"options.determinism",
           [](const Introduction& from) {
             return std::string(from.determinism == Determinism::bitwise ? "bitwise" : "fastest");
           }},
    Common{"the backend", [](const Introduction& from) { return std::string(name_of(from.backend)); }},
};

void require_alike(const Introduction& introduction, std::size_t rank, const Introduction& first) {
  for (const Common& common : common_settings) {
    if (common.value(introduction) == common.value(first)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Communicator: {} is {}{} on rank {}, expected {}{} as on rank 0", common.name,
                            common.value(introduction), common.source(introduction), rank,
                            common.value(first), common.source(first)));
  }
}

}  // namespace

void Team::decline(Exchange& exchange, const std::string& complaint) noexcept {
  try {
    require_same_build(exchange);
    Introduction introduction;
    introduction.complaint = Note(complaint.empty() ? "it does not say why" : complaint);
    static_cast<void>(gather(exchange, introduction));
  } catch (const std::exception& error) {
    log_warning(
        fmt::format("Communicator: the other ranks do not hear that this one cannot join: {}", error.what()));
  }
}

void Team::join(Joining& exchange) {
  exchange.begin("introduce themselves");
  std::string own_name;
  try {
    own_name = Environment::read().host_id.value_or(host_identity());
  } catch (const Error& error) {
    decline(exchange, error.what());
    throw;
  }
  require_same_build(exchange);
  const auto introductions =
      gather(exchange, Introduction{.complaint = {},
                                    .host = Note(own_name),
                                    .member_count = static_cast<std::uint32_t>(settings_.devices.size()),
                                    .process = getpid(),
                                    .process_space = process_space(),
                                    .window_bytes = settings_.window_bytes,
                                    .transport = settings_.transport,
                                    .transport_source = settings_.transport_source,
                                    .determinism = settings_.determinism,
                                    .backend = runtime_.backend().kind()});
  // All see the same introductions, so all throw.
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (const std::string complaint = introductions[rank].complaint.string(); !complaint.empty())
      refuse_to_join(fmt::format("rank {}: {}", rank, complaint));
  }
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    require_alike(introductions[rank], rank, introductions[0]);
    names.push_back(introductions[rank].host.string());
  }
  exchange.begin("try one another's memory");
  const Places places = places_of(exchange, std::move(names));
  port_ = places.port;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    rank_of_member_.insert(rank_of_member_.end(), introductions[rank].member_count, rank);
    most_members_of_a_rank_ =
        std::max<std::size_t>(most_members_of_a_rank_, introductions[rank].member_count);
    const std::string& name = places.hosts[rank];
    auto host = std::ranges::find(hosts_, name, &Host::name);
    if (host == hosts_.end()) host = hosts_.insert(hosts_.end(), {.name = name, .ranks = {}});
    host->ranks.push_back(rank);
    host_of_rank_.push_back(static_cast<std::size_t>(host - hosts_.begin()));
  }
  if (spans_hosts()) network_ = make_network(exchange, places.reason);
  layout_.members = static_cast<std::uint32_t>(member_count());
  layout_.slot_bytes = settings_.window_bytes / backend::TeamWindowLayout::slot_count /
                       backend::TeamWindowLayout::alignment * backend::TeamWindowLayout::alignment;
  std::vector<pid_t> processes;
  for (const Introduction& introduction : introductions) processes.push_back(introduction.process);
  share_memory(exchange, processes);
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    // Of one that is counted elsewhere nobody here can tell when it ends.
    if (introductions[rank].process_space != process_space()) processes_[rank] = PeerProcess();
  }
  exchange.begin("open one another's windows");
  windows_.emplace(
      runtime_, exchange, layout_,
      Windows::Team{.rank_of_member = rank_of_member_,
                    .first_own = first_local(),
                    .own_devices = settings_.devices,
                    .host_count = hosts_.size(),
                    .transport_source = settings_.transport_source,
                    .share_windows = [&] { return share_windows(exchange); }},
      settings_.transport == TransportKind::nccl ? TransportKind::automatic : settings_.transport);
  if (windows_->transport() == TransportKind::p2p) share_registrations(exchange);
}

std::unique_ptr<Network> Team::make_network(Joining& exchange, const std::string& reason) const {
  exchange.begin("set up messages between hosts");
  std::unique_ptr<Network> network;
  std::optional<Error> refusal;
  try {
    network = exchange.network();
    if (network == nullptr) {
      refusal.emplace(
          ErrorCode::unsupported,
          fmt::format("Communicator: rank {} is on host '{}' and rank 0 on '{}', and the exchange "
                      "has no network that would connect them{}{}",
                      hosts_[1].ranks.front(), hosts_[1].name, hosts_[0].name, reason.empty() ? "" : ": ",
                      reason));
    }
  } catch (const Error& error) {
    refusal = error;
  }
  const std::string complaint = first_complaint(exchange, refusal ? refusal->what() : "");
  if (refusal) throw Error(*refusal);
  if (!complaint.empty()) refuse_to_join(complaint);
  return network;
}

void Team::share_memory(Joining& exchange, std::span<const pid_t> processes) {
  exchange.begin("share memory on their hosts");
  memory_.emplace(runtime_, exchange, lay_out(nullptr), first_here(), [&](std::byte* memory) {
    lay_out(memory);
    for (std::size_t rank = 0; rank < rank_count_; ++rank) board(rank).process = processes[rank];
    for (std::size_t member = member_count(); member-- > 0;) {
      board(rank_of_member_[member]).first_member = static_cast<std::uint32_t>(member);
      ++board(rank_of_member_[member]).member_count;
    }
  });
  lay_out(memory_->data());
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    const bool is_peer = rank != static_cast<std::size_t>(rank_) && is_here(rank);
    processes_.push_back(is_peer ? PeerProcess(processes[rank]) : PeerProcess());
  }
}

std::byte* Team::share_windows(Exchange& exchange) {
  window_memory_.emplace(runtime_, exchange, member_count() * layout_.bytes(), first_here(),
                         [](std::byte*) {});
  return window_memory_->data();
}

std::string Team::explain_hosts() const {
  if (!spans_hosts()) return {};
  std::string text = fmt::format("{} hosts:", hosts_.size());
  for (const Host& host : hosts_) {
    text += fmt::format("{} '{}' (ranks {})", &host == &hosts_.front() ? "" : ",", host.name,
                        fmt::join(host.ranks, ", "));
  }
  return text +
         fmt::format("; between them what the hosts share is copied by {}", courier_->network().name());
}

void Team::share_registrations(Joining& exchange) {
  exchange.begin("make ready to open one another's memory");
  std::string complaint;
  try {
    registrations_.emplace(
        runtime_,
        Registrations::Team{
            .tables = {.rank = static_cast<std::size_t>(rank_),
                       .rank_of_member = rank_of_member_,
                       .boards = {boards_, rank_count_},
                       .registrations = {registration_boards_, rank_count_},
                       .views = {registration_views_,
                                 RegistrationTables::view_count(rank_count_, member_count())}},
            .first_own = first_local(),
            .own_devices = settings_.devices,
            .wait_for = [this](std::uint64_t sequence,
                               const std::function<bool()>& holds) { wait_for(sequence, holds); },
            .is_complete = [this](std::uint64_t sequence) { return has_completed(own(), sequence); },
            .while_idle =
                [this](const std::function<void()>& work) { return live_teams_->while_idle(this, work); },
            .closes_nothing =
                [this](std::size_t rank) {
                  const std::uint64_t posted = board(rank).last_sequence.load();
                  return has_captured_ ||
                         (posted > last_queued_.load() && !has_completed(board(rank), posted));
                },
            .is_over = [this] { return abort_->is_set(); },
            .fail =
                [this](const backend::Escaped& escaped) { fail("cannot open or close memory", escaped); }});
    prepare_to_leave_memory();
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  complaint = first_complaint(exchange, complaint);
  if (complaint.empty()) return;
  windows_->close();
  synchronize(exchange);  // nobody frees what others have open
  refuse_to_join(complaint);
}

std::size_t Team::lay_out(std::byte* memory) {
  // Zero-filled memory is what all of these look like at first, in every process that maps it.
  std::size_t used = 0;
  const auto place = [&](std::size_t bytes, std::size_t alignment) {
    used = round_up(used, alignment);
    return std::exchange(used, used + bytes);
  };
  const std::size_t abort = place(sizeof(backend::AbortWord) + rank_count_ * sizeof(backend::AbortReason),
                                  alignof(backend::AbortWord));
  const std::size_t boards = place(rank_count_ * sizeof(RankBoard), alignof(RankBoard));
  const std::size_t first_calls = place(sizeof(FirstCalls), alignof(FirstCalls));
  const std::size_t done = place(member_count() * sizeof(backend::SharedFlag), alignof(backend::SharedFlag));
  const std::size_t passed =
      place(member_count() * sizeof(backend::SharedFlag), alignof(backend::SharedFlag));
  const std::size_t mailboxes = place(2 * rank_count_ * sizeof(Mailbox), alignof(Mailbox));
  const bool may_register = !spans_hosts() && settings_.transport != TransportKind::staged;
  const std::size_t registering = may_register ? rank_count_ : 0;
  const std::size_t registrations =
      place(registering * sizeof(RegistrationBoard), alignof(RegistrationBoard));
  const std::size_t view_count = RegistrationTables::view_count(registering, member_count());
  const std::size_t views = place(view_count * sizeof(RegistrationView), alignof(RegistrationView));
  if (memory != nullptr) {
    abort_ = std::launder(reinterpret_cast<backend::AbortWord*>(memory + abort));
    boards_ = std::launder(reinterpret_cast<RankBoard*>(memory + boards));
    first_calls_ = std::launder(reinterpret_cast<FirstCalls*>(memory + first_calls));
    done_ = std::launder(reinterpret_cast<backend::SharedFlag*>(memory + done));
    passed_ = std::launder(reinterpret_cast<backend::SharedFlag*>(memory + passed));
    mailboxes_ = std::launder(reinterpret_cast<Mailbox*>(memory + mailboxes));
    registration_boards_ = std::launder(reinterpret_cast<RegistrationBoard*>(memory + registrations));
    registration_views_ = std::launder(reinterpret_cast<RegistrationView*>(memory + views));
  }
  return used;
}

bool Team::are_all(std::uint32_t state) const noexcept {
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (board(rank).state.load() < state && !is_known_to_be_gone(rank)) return false;
  }
  return true;
}

bool Team::needs_nothing(std::size_t rank) const noexcept {
  if (board(rank).state.load() >= RankBoard::leaving || is_known_to_be_gone(rank)) return true;
  // It need not come here: it may be about to leave another team first, where this rank comes later.
  const std::uint64_t last = own().last_sequence.load();
  return !has_captured_ && board(rank).last_sequence.load() == last && has_completed(board(rank), last);
}

bool Team::is_needed() const noexcept {
  if (courier_ != nullptr) return !are_all(RankBoard::leaving);
  if (windows_->transport() != TransportKind::p2p) return false;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (!needs_nothing(rank)) return true;
  }
  return false;
}

bool Team::is_still_open() const noexcept {
  if (courier_ != nullptr) return !are_all(RankBoard::left) || !courier_->has_delivered();
  return windows_->transport() == TransportKind::p2p && !are_all(RankBoard::left);
}

/// Others' work may still read from this rank's device memory. On several hosts, others may need this rank's
/// courier to hear from one another.
void Team::leave() noexcept {
  const auto wait_while = [this](bool (Team::*holds)() const noexcept, Clock::time_point deadline) {
    std::optional<Clock::time_point> soon;
    while ((this->*holds)() && (courier_ == nullptr || !courier_->is_broken())) {
      const auto now = Clock::now();
      // After an abort the others come soon, or not at all.
      if (abort_->is_set() && !soon) soon = now + longest_moment;
      if (now >= (soon ? std::min(*soon, deadline) : deadline)) return;
      runtime_.backend().wait_elsewhere();  // other communicators' work is needed, too
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  const auto say = [this](std::uint32_t state) {
    own().state.store(state);
    if (courier_ != nullptr) courier_->wake();
  };
  const auto deadline = Clock::now() + settings_.timeout;
  say(RankBoard::leaving);
  wait_while(&Team::is_needed, deadline);
  windows_->close();
  if (registrations_) registrations_->leave();
  say(RankBoard::left);
  // Memory can be left behind, a courier cannot.
  wait_while(&Team::is_still_open,
             courier_ != nullptr ? deadline : std::min(deadline, Clock::now() + longest_moment));
}

void Team::prepare_to_leave_memory() {
  static_cast<void>(runtime_.extension<LeftMemory>());
  left_.push_back({.memory = std::make_shared<SharedMemory>(),
                   .boards = {boards_, rank_count_},
                   .processes = {},
                   .segments = registrations_->retired(),
                   .windows = windows_->allocated()});
}

void Team::leave_memory() noexcept {
  std::shared_ptr<SharedMemory> memory;  // until nobody else looks at the boards
  if (!left_.empty() && !are_all(RankBoard::left)) {
    memory = left_.front().memory;
    *memory = memory_->release();
    left_.front().processes = std::move(processes_);
    runtime_.extension<LeftMemory>().take(std::move(left_), windows_->release(), windows_->layout().bytes());
  }
  registrations_.reset();
  runtime_.extension<LeftMemory>().sweep(settings_.devices);
}

}  // namespace tutti::transport::ranks
