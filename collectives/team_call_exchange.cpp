// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_call.hpp"
#include "transport/select.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <fmt/format.h>

/// Exchanges of all with all, of parts whose lengths each rank knows of its own members alone.
namespace tutti::collectives {
namespace {

/// What members tell one another: elements to and from each of all members.
class ToldSizes {
 public:
  ToldSizes(const transport::team::Membership& membership)
      : membership_(membership),
        members_(membership.member_count()),
        // Ranks tell equally much.
        numbers_per_rank_(2 * membership.most_members_of_a_rank() * members_),
        mine_(numbers_per_rank_),
        all_(membership.rank_count() * numbers_per_rank_) {}

  void set(std::size_t local, std::span<const std::int64_t> to, std::span<const std::int64_t> from) {
    std::ranges::copy(to, mine_.begin() + static_cast<std::ptrdiff_t>(2 * local * members_));
    std::ranges::copy(from, mine_.begin() + static_cast<std::ptrdiff_t>((2 * local + 1) * members_));
  }
  /// Over a collective exchange among all ranks.
  void tell(Exchange& exchange) {
    exchange.all_gather(std::as_bytes(std::span(mine_)), std::as_writable_bytes(std::span(all_)));
  }

  [[nodiscard]] std::uint64_t to(std::size_t member, std::size_t other) const {
    return all_[place_of(member) + other];
  }
  [[nodiscard]] std::uint64_t from(std::size_t member, std::size_t other) const {
    return all_[place_of(member) + members_ + other];
  }

 private:
  [[nodiscard]] std::size_t place_of(std::size_t member) const {
    const std::size_t rank = membership_.rank_of_member()[member];
    return rank * numbers_per_rank_ + 2 * (member - membership_.first_member(rank)) * members_;
  }

  const transport::team::Membership& membership_;
  std::size_t members_;
  std::size_t numbers_per_rank_;
  std::vector<std::uint64_t> mine_;
  std::vector<std::uint64_t> all_;
};

/// The first pair that does not agree, in words; empty if all do.
std::string disagreement(const ToldSizes& sizes, std::size_t members) {
  for (std::size_t sender = 0; sender < members; ++sender) {
    for (std::size_t receiver = 0; receiver < members; ++receiver) {
      const std::uint64_t sent = sizes.to(sender, receiver);
      const std::uint64_t expected = sizes.from(receiver, sender);
      if (sent != expected) {
        return fmt::format("member {} sends {} elements to member {}, which expects {} of it", sender, sent,
                           receiver, expected);
      }
    }
  }
  return {};
}

}  // namespace

void TeamCall::begin_exchange(DType dtype) {
  signature_.has_sizes = true;
  begin(0, dtype);
}

void TeamCall::run_agreed(const SizeLists& input_sizes, const SizeLists& out_sizes) {
  transport::Problem outline = context_.outline_of(request_, root());
  outline.is_captured = is_captured();
  outline.is_outline = true;
  transport::require_possible(outline, context_.means());
  ToldSizes sizes(team_.membership());
  for (std::size_t local = 0; local < locals(); ++local)
    sizes.set(local, input_sizes[local], out_sizes[local]);
  request_.shape.reserve(1);
  request_.parts.reserve(members() * members());
  post();

  complete([&] {
    static_cast<void>(team_.calls().agree(sequence_, signature_));  // that it is the same call
    transport::team::TeamExchange exchange(team_, sequence_);
    sizes.tell(exchange);
    if (const std::string text = disagreement(sizes, members()); !text.empty()) {
      team_.abort().set(ErrorCode::invalid_argument,
                        fmt::format("{} #{}: {}", name_of(signature_.collective), sequence_, text));
      team_.abort().require_running();
    }
    const std::uint64_t width = size_of(signature_.dtype);
    std::uint64_t most = 0;
    for (std::size_t member = 0; member < members(); ++member) {
      std::uint64_t sent = 0;
      std::uint64_t received = 0;
      for (std::size_t other = 0; other < members(); ++other) {
        request_.parts.push_back(sizes.to(member, other) * width);
        sent += request_.parts.back();
        received += sizes.from(member, other) * width;
      }
      most = std::max({most, sent, received});
    }
    request_.add_copied(most);
    const std::vector<std::uint64_t>& parts = request_.parts;
    if (std::ranges::all_of(parts, [&](std::uint64_t bytes) { return bytes == parts.front(); }))
      request_.parts.clear();
  });
}

}  // namespace tutti::collectives
