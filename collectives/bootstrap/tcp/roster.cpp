// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/roster.hpp"

#include "base/ranks_in_words.hpp"

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

double seconds_since(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - time).count();
}

}  // namespace

void Roster::note_arrival(int rank) {
  at(rank) = {.is_here = true, .came = std::chrono::steady_clock::now(), .left = {}, .refusal = {}};
  ++count_of_those_here_;
  ++version_;
}

void Roster::note_departure(int rank, Departure departure) {
  Entry& entry = at(rank);
  entry.is_here = false;
  entry.departure = departure;
  entry.left = std::chrono::steady_clock::now();
  --count_of_those_here_;
  ++version_;
}

void Roster::note_refusal(int rank, const std::string& reason) {
  const bool is_one = rank >= 1 && rank < static_cast<int>(ranks_.size());
  (is_one ? at(rank).refusal : other_refusal_) = reason;
  ++version_;
}

std::vector<int> Roster::those_never_here() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (!at(rank).came) ranks.push_back(rank);
  }
  return ranks;
}

std::string Roster::departure_of(int rank, const Entry& entry) {
  return fmt::format("rank {} came {:.1f} s ago and {} {:.1f} s ago", rank, seconds_since(*entry.came),
                     entry.departure == Departure::left ? "left" : "gave up waiting",
                     seconds_since(entry.left));
}

std::string Roster::absences(std::string_view place) const {
  constexpr std::size_t most = 16;
  const std::vector<int> never = those_never_here();
  std::vector<std::string> clauses;
  for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
    const Entry& entry = at(rank);
    if (entry.came && !entry.is_here) clauses.push_back(departure_of(rank, entry));
    if (!entry.is_here && !entry.refusal.empty())
      clauses.push_back(fmt::format("who came as rank {} was refused: {}", rank, entry.refusal));
  }
  if (!other_refusal_.empty()) clauses.push_back("somebody was refused: " + other_refusal_);
  std::string text = never.empty() ? fmt::format("not all ranks are at {}", place)
                                   : fmt::format("{} {} not come to {}", ranks_in_words(never),
                                                 never.size() == 1 ? "has" : "have", place);
  for (std::size_t i = 0; i < clauses.size() && i < most; ++i) text += "; " + clauses[i];
  if (clauses.size() > most) text += fmt::format("; and {} more", clauses.size() - most);
  return text;
}

}  // namespace tutti::tcp
