// SPDX-License-Identifier: Apache-2.0
#include "base/patience.hpp"
#include "base/ranks_in_words.hpp"
#include "collectives/bootstrap/folder/network.hpp"
#include "collectives/bootstrap/folder/session.hpp"
#include "collectives/bootstrap/own_device.hpp"
#include "tutti/error.hpp"
#include "tutti/shared_folder.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::shared_folder {

/// In round k, rank r writes "g-k-r", and rank 0 "a-k" with the bytes of all. What has been read by all is
/// removed: rank 0's of a round when all have written in the next.
class Exchange::Impl {
 public:
  explicit Impl(const Rendezvous& rendezvous)
      : session_(Session::meet(rendezvous)),
        timeout_(std::min(rendezvous.timeout, longest_limit)),
        limit_(timeout_) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { session_->leave(); }

  [[nodiscard]] const Session& session() const noexcept { return *session_; }
  void limit_waits(std::chrono::milliseconds timeout) { limit_ = std::min(timeout, timeout_); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  [[nodiscard]] std::unique_ptr<Network> network(Exchange& exchange) {
    return make_network(session_, exchange);
  }

 private:
  static constexpr std::size_t most_bytes = std::size_t{64} << 20U;
  static constexpr std::size_t most_bytes_of_all = std::size_t{1} << 30U;

  [[nodiscard]] std::string part_name(int rank) const { return fmt::format("g-{}-{}", round_, rank); }
  [[nodiscard]] std::string whole_name(std::uint64_t round) const { return fmt::format("a-{}", round); }
  [[nodiscard]] std::vector<int> those_who_left(const std::vector<int>& ranks) const;
  /// Copies the bytes that a rank has given in this round to their place in `all`, if they have come.
  [[nodiscard]] bool has_taken(int rank, std::size_t length, std::span<std::byte> all) const;
  void collect(std::span<const std::byte> mine, std::span<std::byte> all);
  void contribute(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Throws if another rank has stopped the exchange, the ranks whose bytes are awaited have left, or the
  /// wait is over.
  void require_patience(const Wait& wait, const std::vector<int>& missing, bool has_left) const;
  void require_length(int rank, std::size_t found, std::size_t expected) const;
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    throw Error(code, "shared_folder::Exchange::all_gather: " + what);
  }

  std::shared_ptr<const Session> session_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds limit_;
  std::uint64_t round_ = 0;
};

void Exchange::Impl::require_patience(const Wait& wait, const std::vector<int>& missing,
                                      bool has_left) const {
  session_->require_going_on();
  if (has_left) {
    fail(ErrorCode::peer_unavailable,
         fmt::format("{} {} left", ranks_in_words(missing), missing.size() == 1 ? "has" : "have"));
  }
  if (wait.is_over()) {
    fail(ErrorCode::timeout, fmt::format("{} {} given nothing within {} ms", ranks_in_words(missing),
                                         missing.size() == 1 ? "has" : "have", limit_.count()));
  }
}

void Exchange::Impl::require_length(int rank, std::size_t found, std::size_t expected) const {
  if (found == expected) return;
  fail(ErrorCode::invalid_argument,
       fmt::format("rank {} has given {} bytes, and rank 0 {}, expected as many on all", rank, found,
                   expected));
}

void Exchange::Impl::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const auto size = static_cast<std::size_t>(session_->size());
  const std::size_t most = std::min(most_bytes, most_bytes_of_all / size);
  if (mine.size() > most)
    fail(ErrorCode::invalid_argument,
         fmt::format("mine has {} bytes, expected {} at most", mine.size(), most));
  if (all.size() != mine.size() * size)
    fail(ErrorCode::invalid_argument,
         fmt::format("all has {} bytes, expected {}", all.size(), mine.size() * size));
  ++round_;
  try {
    session_->rank() == 0 ? collect(mine, all) : contribute(mine, all);
  } catch (const Error& error) {
    session_->stop(error);
    throw;
  }
}

std::vector<int> Exchange::Impl::those_who_left(const std::vector<int>& ranks) const {
  std::vector<int> left;
  std::ranges::copy_if(ranks, std::back_inserter(left),
                       [this](int rank) { return session_->has_left(rank); });
  return left;
}

bool Exchange::Impl::has_taken(int rank, std::size_t length, std::span<std::byte> all) const {
  const std::optional<Bytes> bytes = session_->get(part_name(rank));
  if (!bytes) return false;
  require_length(rank, bytes->size(), length);
  std::ranges::copy(*bytes, all.begin() + static_cast<std::ptrdiff_t>(length) * rank);
  session_->box().remove(part_name(rank));
  return true;
}

void Exchange::Impl::collect(std::span<const std::byte> mine, std::span<std::byte> all) {
  Wait wait(limit_);
  std::ranges::copy(mine, all.begin());
  std::vector<int> missing;
  for (int rank = 1; rank < session_->size(); ++rank) missing.push_back(rank);
  while (!missing.empty()) {
    const std::vector<int> left = those_who_left(missing);
    std::erase_if(missing, [&](int rank) { return has_taken(rank, mine.size(), all); });
    if (missing.empty()) break;
    const auto is_missing = [&](int rank) { return std::ranges::find(missing, rank) != missing.end(); };
    const auto lost = std::ranges::find_if(left, is_missing);
    if (lost != left.end()) require_patience(wait, {*lost}, true);
    require_patience(wait, missing, false);
    wait.pause();
  }
  session_->box().remove(whole_name(round_ - 1));
  if (session_->size() > 1) session_->put(whole_name(round_), all);
}

void Exchange::Impl::contribute(std::span<const std::byte> mine, std::span<std::byte> all) {
  Wait wait(limit_);
  session_->put(part_name(session_->rank()), mine);
  std::optional<Bytes> bytes;
  for (;;) {
    // In this order: what has been written by somebody who has left counts.
    const bool has_left = session_->has_left(0);
    if ((bytes = session_->get(whole_name(round_)))) break;
    require_patience(wait, {0}, has_left);
    wait.pause();
  }
  require_length(session_->rank(), mine.size(), bytes->size() / static_cast<std::size_t>(session_->size()));
  std::ranges::copy(*bytes, all.begin());
}

Exchange::Exchange(const Rendezvous& rendezvous) : impl_(std::make_unique<Impl>(rendezvous)) {}
Exchange::~Exchange() = default;

int Exchange::rank() const {
  return impl_->session().rank();
}
int Exchange::size() const {
  return impl_->session().size();
}
void Exchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  impl_->all_gather(mine, all);
}
void Exchange::limit_waits(std::chrono::milliseconds timeout) {
  impl_->limit_waits(timeout);
}
std::unique_ptr<Network> Exchange::network() {
  return impl_->network(*this);
}

Rendezvous rendezvous() {
  const tcp::Rendezvous found = tcp::rendezvous([](const char* name) -> const char* {
    // Nobody listens anywhere.
    if (std::string_view(name) == "MASTER_ADDR") return "127.0.0.1";
    if (std::string_view(name) == "TUTTI_PORT") return "1";
    return std::getenv(name);
  });
  const char* const folder = std::getenv("TUTTI_FOLDER");
  if (folder == nullptr || *folder == '\0') {
    throw Error(ErrorCode::invalid_argument,
                "TUTTI_FOLDER is not set, expected the path of a folder that all ranks share");
  }
  return {.rank = found.rank,
          .size = found.size,
          .local_rank = found.local_rank,
          .folder = folder,
          .secret = found.secret,
          .job = found.job,
          .timeout = found.timeout};
}

Communicator make_communicator(const Rendezvous& rendezvous, const CommunicatorOptions& options) {
  Exchange exchange(rendezvous);
  return Communicator(exchange, with_own_device(options, rendezvous.local_rank));
}

}  // namespace tutti::shared_folder
