#include "backend/shared_memory.hpp"
#include "transport/ranks/agreement.hpp"
#include "transport/ranks/team.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

/// How a team begins and ends: who its ranks are, what they share, and where it lies.
namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

struct Introduction {
  Note host;
  std::uint32_t member_count = 0;
  pid_t process = 0;
  std::uint64_t window_bytes = 0;
  TransportKind transport = TransportKind::automatic;
  Determinism determinism = Determinism::fastest;
  BackendKind backend = BackendKind::host;
};

/// What all ranks must give alike.
struct Common {
  const char* name;
  std::string (*value)(const Introduction& introduction);
};
const std::array common_settings{
    Common{"options.window_bytes",
           [](const Introduction& from) { return fmt::to_string(from.window_bytes); }},
    Common{"options.transport",
           [](const Introduction& from) { return std::string(name_of(from.transport)); }},
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
                fmt::format("Communicator: {} is {} on rank {}, expected {} as on rank 0", common.name,
                            common.value(introduction), rank, common.value(first)));
  }
}

/// Throws on all ranks alike if one of them has a complaint.
void require_no_complaint(Exchange& exchange, const std::string& mine) {
  if (const std::string complaint = first_complaint(exchange, mine); !complaint.empty()) {
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("Communicator: not all ranks can join: {}", complaint));
  }
}

}  // namespace

void Team::join(Exchange& exchange) {
  const auto introductions =
      gather(exchange, Introduction{.host = Note(host_identity()),
                                    .member_count = static_cast<std::uint32_t>(settings_.devices.size()),
                                    .process = getpid(),
                                    .window_bytes = settings_.window_bytes,
                                    .transport = settings_.transport,
                                    .determinism = settings_.determinism,
                                    .backend = runtime_.backend().kind()});
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    rank_of_member_.insert(rank_of_member_.end(), introductions[rank].member_count, rank);
    // All see the same introductions, so all throw.
    if (introductions[rank].host.text != introductions[0].host.text) {
      throw Error(
          ErrorCode::unsupported,
          fmt::format("Communicator: rank {} is on host '{}' and rank 0 on '{}': ranks must share one host",
                      rank, introductions[rank].host.string(), introductions[0].host.string()));
    }
    require_alike(introductions[rank], rank, introductions[0]);
  }
  layout_.members = static_cast<std::uint32_t>(member_count());
  layout_.slot_bytes = settings_.window_bytes / backend::TeamWindowLayout::slot_count /
                       backend::TeamWindowLayout::alignment * backend::TeamWindowLayout::alignment;
  const std::size_t bytes = lay_out(nullptr);
  std::string complaint;
  if (rank_ == 0) {
    try {
      memory_ = SharedMemory(bytes);
      lay_out(memory_.data());
    } catch (const Error& error) {
      complaint = error.what();
    }
  }
  const SharedMemory::Handle handle = gather(exchange, memory_.handle())[0];
  require_no_complaint(exchange, complaint);
  try {
    if (rank_ != 0) memory_ = SharedMemory(handle);
    lay_out(memory_.data());
    runtime_.backend().register_pinned(memory_.data(), memory_.size());
    registered_ = true;
  } catch (const Error& error) {
    complaint = error.what();
  }
  if (complaint.empty()) {
    own().process = getpid();
    own().first_member = static_cast<std::uint32_t>(
        std::ranges::find(rank_of_member_, static_cast<std::size_t>(rank_)) - rank_of_member_.begin());
    own().member_count = introductions[static_cast<std::size_t>(rank_)].member_count;
  }
  require_no_complaint(exchange, complaint);
  memory_.seal();
  windows_.emplace(
      runtime_, exchange, layout_,
      Windows::Team{.rank_of_member = rank_of_member_,
                    .first_own = first_local(),
                    .own_devices = settings_.devices,
                    .host_windows = host_windows_},
      settings_.transport == TransportKind::nccl ? TransportKind::automatic : settings_.transport);
  if (windows_->transport() == TransportKind::p2p) share_registrations();
}

void Team::share_registrations() {
  registrations_.emplace(
      runtime_,
      Registrations::Team{
          .rank = static_cast<std::size_t>(rank_),
          .rank_of_member = rank_of_member_,
          .first_own = first_local(),
          .own_devices = settings_.devices,
          .boards = {boards_, rank_count_},
          .registrations = {registration_boards_, rank_count_},
          .views = {registration_views_, Registrations::view_count(rank_count_, member_count())},
          .wait_for = [this](std::uint64_t sequence,
                             const std::function<bool()>& holds) { wait_for(sequence, holds); },
          .is_complete = [this](std::uint64_t sequence) { return has_completed(own(), sequence); }});
}

std::size_t Team::lay_out(std::byte* memory) {
  // Zero-filled memory is what all of these look like at first, in every process that maps it.
  std::size_t used = 0;
  const auto place = [&](std::size_t bytes, std::size_t alignment) {
    used = round_up(used, alignment);
    return std::exchange(used, used + bytes);
  };
  const std::size_t abort = place(sizeof(backend::AbortWord), alignof(backend::AbortWord));
  const std::size_t boards = place(rank_count_ * sizeof(RankBoard), alignof(RankBoard));
  const std::size_t done = place(member_count() * sizeof(backend::SharedFlag), alignof(backend::SharedFlag));
  const std::size_t passed =
      place(member_count() * sizeof(backend::SharedFlag), alignof(backend::SharedFlag));
  const std::size_t mailboxes = place(2 * rank_count_ * sizeof(Mailbox), alignof(Mailbox));
  const std::size_t registrations =
      place(rank_count_ * sizeof(RegistrationBoard), alignof(RegistrationBoard));
  const std::size_t view_count = Registrations::view_count(rank_count_, member_count());
  const std::size_t views = place(view_count * sizeof(RegistrationView), alignof(RegistrationView));
  const std::size_t windows = place(member_count() * layout_.bytes(), backend::TeamWindowLayout::alignment);
  if (memory != nullptr) {
    abort_ = std::launder(reinterpret_cast<backend::AbortWord*>(memory + abort));
    boards_ = std::launder(reinterpret_cast<RankBoard*>(memory + boards));
    done_ = std::launder(reinterpret_cast<backend::SharedFlag*>(memory + done));
    passed_ = std::launder(reinterpret_cast<backend::SharedFlag*>(memory + passed));
    mailboxes_ = std::launder(reinterpret_cast<Mailbox*>(memory + mailboxes));
    registration_boards_ = std::launder(reinterpret_cast<RegistrationBoard*>(memory + registrations));
    registration_views_ = std::launder(reinterpret_cast<RegistrationView*>(memory + views));
    host_windows_ = memory + windows;
  }
  return used;
}

/// Others' work may still read from this rank's device memory, and what others have open is not freed.
void Team::leave() noexcept {
  const auto deadline = Clock::now() + settings_.timeout;
  const auto wait_for_all = [&](std::uint32_t state) {
    if (windows_->transport() != TransportKind::p2p) return;
    // After an abort the others come soon, or not at all.
    const auto soon = Clock::now() + std::chrono::seconds(1);
    while (Clock::now() < (abort_->is_set() ? std::min(soon, deadline) : deadline) &&
           !std::ranges::all_of(std::span(boards_, rank_count_),
                                [state](const RankBoard& board) { return board.state.load() >= state; })) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  own().state.store(RankBoard::leaving);
  wait_for_all(RankBoard::leaving);
  windows_->close();
  if (registrations_) registrations_->close();
  own().state.store(RankBoard::left);
  wait_for_all(RankBoard::left);
}

}  // namespace tutti::transport::ranks
