// SPDX-License-Identifier: Apache-2.0
#include "transport/team/team.hpp"

#include "backend/team_round.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/team/hosts/connecting_network.hpp"
#include "transport/team/shared/agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

namespace tutti::transport::team {
namespace {

SharedState::Shape shape_of(const Membership& membership, const TeamSettings& settings) {
  return {.ranks = membership.rank_count(),
          .members = membership.member_count(),
          .has_registrations = !membership.spans_hosts() && settings.transport != TransportKind::staged,
          .has_links = membership.rank_count() > 1};
}

/// Slots of links take no more than as much again as those of rounds, and so do their lines. There are fewer
/// lanes where slots would be too small for their flags to be worth it, and none at all in a rank alone,
/// where nothing is posted, or NCCL carries what is.
void lay_out_links(BackendKind backend, const Membership& membership, const TeamSettings& settings,
                   backend::TeamWindowLayout& layout) {
  using Layout = backend::TeamWindowLayout;
  if (membership.rank_count() == 1 || !settings.is_posted || settings.transport == TransportKind::nccl)
    return;
  const LinkTuning tuning = link_tuning_of(backend);
  const std::uint64_t of_link = settings.window_bytes / layout.members / Layout::link_slots;
  std::uint32_t lanes = tuning.lanes;
  while (lanes > 1 && of_link / lanes < Layout::smallest_link_piece) lanes /= 2;
  const std::uint64_t slot = std::min(tuning.slot_bytes, of_link / lanes);
  layout.link_slot_bytes = slot / Layout::link_alignment * Layout::link_alignment;
  layout.link_lanes = layout.link_slot_bytes == 0 ? 0 : lanes;
  if (layout.link_lanes == 0) return;
  constexpr std::uint64_t of_line_lane =
      Layout::link_slots * Layout::bytes_in_lines(Layout::largest_line_piece);
  layout.line_lanes = tuning.line_lanes;
  while (layout.line_lanes * of_line_lane * layout.members > settings.window_bytes) layout.line_lanes /= 2;
}

backend::TeamWindowLayout window_layout(BackendKind backend, const Membership& membership,
                                        const TeamSettings& settings) {
  using Layout = backend::TeamWindowLayout;
  Layout layout;
  layout.members = static_cast<std::uint32_t>(membership.member_count());
  layout.slot_bytes = settings.window_bytes / Layout::slot_count / Layout::alignment * Layout::alignment;
  lay_out_links(backend, membership, settings, layout);
  return layout;
}

Windows::Settings window_settings(const TeamSettings& settings) {
  const bool is_nccl = settings.transport == TransportKind::nccl;
  return {.transport = is_nccl ? TransportKind::automatic : settings.transport,
          .transport_source = settings.transport_source};
}

/// The exchange, for its next step.
BootstrapExchange& beginning(BootstrapExchange& exchange, std::string_view step) {
  exchange.begin(step);
  return exchange;
}

}  // namespace

Team::Team(Runtime& runtime, Exchange& exchange, const Settings& settings)
    : Team(runtime, BootstrapExchange(exchange, settings.timeout), settings) {}

Team::Team(Runtime& runtime, BootstrapExchange&& exchange, const Settings& settings)
    : Team(runtime, exchange, settings, introduce(runtime, exchange, settings)) {}

Team::Team(Runtime& runtime, BootstrapExchange& exchange, const Settings& settings,
           Introductions introductions)
    : runtime_(runtime),
      settings_(settings),
      membership_(std::move(introductions.membership)),
      port_(std::move(introductions.port)),
      processes_(std::move(introductions.processes)),
      network_(std::move(introductions.network)),
      memory_(runtime, beginning(exchange, "share memory on their hosts"),
              SharedState::bytes(shape_of(membership_, settings)), membership_.first_on_this_host(),
              [&](std::byte* memory) {
                const SharedState state(memory, shape_of(membership_, settings));
                for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank)
                  state.status(rank).process = introductions.process_numbers[rank];
              }),
      state_(memory_.data(), shape_of(membership_, settings)),
      abort_(membership_, state_.abort_word(), news_),
      progress_(runtime, membership_, state_, abort_),
      failure_detector_(
          membership_, state_, progress_, processes_,
          {.timeout = settings.timeout, .network = network_ == nullptr ? "" : network_->name()}),
      record_(membership_, state_, progress_, failure_detector_, abort_),
      waiting_(runtime, membership_, state_, progress_, failure_detector_, record_, abort_,
               settings.patience),
      calls_(membership_, state_, progress_, waiting_, abort_, news_),
      links_(membership_, state_, progress_, failure_detector_, record_, waiting_, abort_, calls_),
      replays_(membership_, state_, progress_, failure_detector_, record_, waiting_, abort_, calls_),
      live_teams_(runtime.part<LiveTeams>().shared_from_this()),
      windows_(runtime, beginning(exchange, "open one another's windows"),
               window_layout(runtime.backend().kind(), membership_, settings), membership_,
               window_settings(settings)),
      departure_(runtime, membership_, state_, progress_, failure_detector_, calls_, abort_, news_,
                 processes_),
      ended_calls_(runtime, membership_, calls_, progress_, abort_),
      watchdog_(membership_, state_, progress_, failure_detector_, waiting_, links_, replays_, abort_) {
  if (settings.is_posted && windows_.transport() == TransportKind::p2p) share_registrations(exchange);
  try {
    start_together(exchange);
  } catch (...) {
    end();
    throw;
  }
}

SurvivorMessenger* Team::survivor_messenger() {
  if (!survivor_messenger_ && host_proxy_ != nullptr) {
    if (auto* const network = dynamic_cast<SurvivorNetwork*>(&host_proxy_->network()))
      survivor_messenger_.emplace(membership_, state_.survivors(), *network);
  }
  return survivor_messenger_ ? &*survivor_messenger_ : nullptr;
}

void Team::share_registrations(BootstrapExchange& exchange) {
  exchange.begin("prepare to open one another's memory");
  std::string complaint;
  try {
    registrations_.emplace(runtime_, membership_, state_, progress_, waiting_, calls_, abort_, *live_teams_,
                           RegistrationTable::capacity, settings_.opens_foreign_memory);
    departure_.prepare(windows_, *registrations_);
  } catch (const std::exception& error) {
    complaint = error.what();
  }
  complaint = first_complaint(exchange, complaint);
  if (complaint.empty()) return;
  windows_.close();
  synchronize(exchange);  // nobody frees what others have open
  refuse_to_join(complaint);
}

void Team::start_together(BootstrapExchange& exchange) {
  exchange.begin("start to supervise one another");
  std::exception_ptr failure;
  std::string complaint;
  try {
    start();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    complaint = error.what();
  }
  complaint = first_complaint(exchange, complaint);
  if (failure) std::rethrow_exception(failure);
  if (!complaint.empty()) refuse_to_join(complaint);
}

void Team::start() {
  if (network_ != nullptr) {
    connect_to_receivers(*network_, membership_);
    mirror_.emplace(membership_, state_, windows_, progress_, calls_, record_, abort_, settings_.timeout);
    host_proxy_ = std::make_unique<HostProxy>(membership_, state_, *mirror_, progress_, abort_, news_,
                                              std::move(network_));
    host_proxy_->start();
  }
  departure_.enter(RankStatus::active);
  progress_.start(windows_);
  if (settings_.is_posted) watchdog_.start();
  if (membership_.member_count() == 1) return;
  live_teams_->add(calls_, membership_.devices());
  // Elsewhere what has been ended fails by itself.
  if (progress_.asks_devices()) ended_calls_.start();
}

void Team::take_ends() noexcept {
  for (const int device : membership_.devices()) ended_calls_.drop_end(device);
}

void Team::end() noexcept {
  ended_calls_.stop();
  live_teams_->remove(calls_);
  links_.announce();
  progress_.learn_last_records();
  departure_.leave(waiting_.patience().longest(), windows_, registrations_ ? &*registrations_ : nullptr,
                   host_proxy_.get());
  watchdog_.stop();
  abort_.log_reason();
  progress_.stop();
  // A thread that is still in the network keeps its host proxy.
  if (host_proxy_ != nullptr && !host_proxy_->stop()) static_cast<void>(host_proxy_.release());
  departure_.defer_frees(memory_, windows_, registrations_);
}

}  // namespace tutti::transport::team
