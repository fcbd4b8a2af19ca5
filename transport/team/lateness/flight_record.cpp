// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/flight_record.hpp"

#include "os/descriptor.hpp"
#include "os/write_with_deadline.hpp"
#include "settings/environment.hpp"
#include "settings/log.hpp"
#include "transport/team/progress/link_comparison.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

constexpr std::uint64_t latest_calls = 4;  ///< of each rank, when one is late

/// Appends a line to a file, which is made if there is none. Throws std::system_error.
void append_line(const std::string& path, std::string_view text) {
  const auto fail = [](int error) { throw std::system_error(error, std::generic_category()); };
  // A pipe may have no reader.
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
  constexpr mode_t permissions = 0666;
  const std::string line = fmt::format("{}\n", text);
  const Descriptor file(open(path.c_str(), flags, permissions));
  if (!file.is_open()) fail(errno);
  if (write_with_deadline(file.number(), line, log_patience) < line.size()) fail(errno);
}

/// Returns what one side of a link has announced, as JSON.
nlohmann::ordered_json side_in_record(const LinkLog& log) {
  const std::uint64_t posted = log.posted();
  nlohmann::ordered_json side = {
      {"made", log.made()}, {"compared_up_to", posted}, {"last_compared", nullptr}};
  if (posted != 0) side["last_compared"] = in_words(log.message(posted));
  return side;
}

/// Returns the used links that this host knows of, as JSON.
nlohmann::ordered_json links_in_record(const Membership& membership, const SharedState& state) {
  using LinkEnd = SharedState::LinkEnd;
  nlohmann::ordered_json links = nlohmann::ordered_json::array();
  const std::vector<std::size_t>& ranks = membership.rank_of_member();
  for (std::size_t from = 0; from < ranks.size(); ++from) {
    for (std::size_t to = 0; to < ranks.size(); ++to) {
      if (ranks[from] == ranks[to]) continue;
      const LinkLog& sender = state.link_log(from, to, LinkEnd::sender);
      const LinkLog& receiver = state.link_log(from, to, LinkEnd::receiver);
      if (sender.made() == 0 && receiver.made() == 0) continue;
      links.push_back({{"from", from},
                       {"to", to},
                       {"sent", side_in_record(sender)},
                       {"received", side_in_record(receiver)},
                       {"completed", receiver.received()}});
    }
  }
  return links;
}

}  // namespace

std::string FlightRecord::json(std::uint64_t most_calls, std::uint64_t since, std::string_view reason) const {
  using Json = nlohmann::ordered_json;
  const std::int64_t now = RankStatus::now();
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const RankStatus& status = state_.status(rank);
    const std::uint64_t last = status.last_sequence.load();
    Json calls = Json::array();
    const std::uint64_t remembered = last - std::min(last, RankStatus::furthest_ahead) + 1;
    const std::uint64_t first = std::min(last - std::min(last, most_calls) + 1, since);
    for (std::uint64_t sequence = std::max(first, remembered); sequence <= last; ++sequence) {
      const RankStatus::Entry& entry = status.entries[sequence % RankStatus::history];
      if (!entry.is(sequence)) continue;
      calls.push_back({{"sequence", sequence},
                       {"call", to_string(entry.signature())},
                       {"microseconds_ago", (now - entry.posted_at()) / 1000},
                       {"captured", entry.is_captured()},
                       {"completed", progress_.has_completed(rank, sequence)}});
    }
    constexpr std::array<std::string_view, 4> states{"joining", "active", "leaving", "left"};
    ranks.push_back({{"rank", rank},
                     {"host", membership_.hosts()[membership_.host_of(rank)].name},
                     {"process", status.process},
                     {"state", states[std::min<std::size_t>(status.state.load(), states.size() - 1)]},
                     {"calls", std::move(calls)}});
  }
  Json document = {{"schema", "tutti-flight-record/1"},
                   {"written_by", membership_.rank()},
                   {"aborted", nullptr},
                   {"ranks", std::move(ranks)},
                   {"messages", links_in_record(membership_, state_)}};
  if (abort_.is_set()) reason = abort_.word().reason().text();
  if (!reason.empty()) document["aborted"] = reason;
  // Reasons and names of hosts may be any bytes, and a reason may have been cut within a character.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string FlightRecord::of_timeout(std::uint64_t sequence, std::string_view reason) const noexcept {
  try {
    return json(latest_calls, sequence, reason);
  } catch (const std::exception&) {
    return {};
  }
}

bool FlightRecord::is_host_that_logs() const noexcept {
  // The first host of which any rank seems to go on.
  for (const Membership::Host& host : membership_.hosts()) {
    for (const std::size_t rank : host.ranks) {
      if (rank == membership_.rank()) return true;
      if (failure_detector_.is_gone(rank) || state_.status(rank).state.load() != RankStatus::active ||
          failure_detector_.standstill(rank))
        continue;
      return membership_.is_on_this_host(rank);
    }
  }
  return true;
}

void FlightRecord::keep(std::string_view record) const noexcept {
  try {
    const std::optional<std::string>& file = Environment::get().flight_record;
    if (!file) {
      if (is_host_that_logs()) log_warning(fmt::format("flight record: {}", record));
      return;
    }
    const std::string path = fmt::format("{}.{}", *file, membership_.rank());
    try {
      append_line(path, record);
      log_warning(fmt::format("Communicator: the flight record is in {}", path));
    } catch (const std::system_error& error) {
      log_warning(fmt::format("Communicator: no flight record: {}: {}", path, error.what()));
    }
  } catch (const std::exception&) {
    // Memory is short: the reason stays.
  }
}

}  // namespace tutti::transport::team
