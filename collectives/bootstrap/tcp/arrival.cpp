// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/arrival.hpp"

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

/// The way of another rank to rank 0: connects, proves who it is, and waits for the others.
class Arrival {
 public:
  Arrival(const Rendezvous& rendezvous, const std::vector<Address>& addresses,
          std::chrono::milliseconds timeout, const Exchange::Watch& watch)
      : rendezvous_(rendezvous), addresses_(addresses), timeout_(timeout), wait_(timeout, watch) {}

  Line join() {
    for (;;) {
      Descriptor socket = reach();
      Session session;
      const Introduction introduction = introduce(socket, rendezvous_, wait_, session);
      if (introduction == Introduction::unanswered) {
        give_up(
            fmt::format("what listens at {} has not answered: is rank 0 stopped, or has another program "
                        "taken the port?",
                        place_of(rendezvous_)));
      }
      if (introduction == Introduction::admitted) {
        Line line(std::move(socket), session);
        if (is_complete(line)) return line;
      }
      note_end(introduction);
    }
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  [[nodiscard]] Descriptor reach() {
    for (;;) {
      for (const Address& address : addresses_) {
        Descriptor line = connect_to(address, wait_);
        if (line.is_open()) return line;
      }
      cut_off_ = 0;  // whoever closed connections there was a rank 0 that ended, or has ended too
      if (wait_.is_over()) give_up(fmt::format("rank 0 does not listen at {}", place_of(rendezvous_)));
      wait_.until_ready({});
    }
  }
  /// Waits until all have come; false if rank 0 ends before.
  bool is_complete(Line& line) {
    std::string news;
    const Progress progress = receive_from_rank_0(line, wait_, news);
    if (progress == Progress::halfway) {
      give_up(!news.empty() ? news
                            : fmt::format("rank 0 at {} does not say which ranks are missing: is it stopped?",
                                          place_of(rendezvous_)));
    }
    if (progress == Progress::complete) line.rethrow();
    return progress == Progress::complete;
  }
  void note_end(Introduction introduction) {
    if (introduction == Introduction::admitted) {
      rank_0_left_ = std::chrono::steady_clock::now();
      log_warning(fmt::format("rank 0 has left {} before all had come: rank {} waits for it to come again",
                              place_of(rendezvous_), rendezvous_.rank));
    } else {
      // A program that closes every connection is asked less and less often.
      for (int looks = 0; looks < cut_off_ && !wait_.is_over(); ++looks) wait_.until_ready({});
      cut_off_ = std::min(cut_off_ + 1, most_looks);
    }
  }
  [[noreturn]] void give_up(std::string message) const {
    if (rank_0_left_) {
      const std::chrono::duration<double> since = std::chrono::steady_clock::now() - *rank_0_left_;
      message += fmt::format("; it had come, and left {:.1f} s ago", since.count());
    }
    if (cut_off_ > 0)
      message += "; what listened there closed connections before it had answered: was that another program?";
    throw Error(ErrorCode::timeout, fmt::format("after {} s, {}", in_seconds(timeout_), message));
  }

  static constexpr int most_looks = 20;

  const Rendezvous& rendezvous_;
  const std::vector<Address>& addresses_;
  std::chrono::milliseconds timeout_;
  Wait wait_;
  std::optional<Time> rank_0_left_;
  int cut_off_ = 0;  ///< how often in a row
};

}  // namespace

Line meet_at_rank_0(const Rendezvous& rendezvous, const std::vector<Address>& addresses,
                    std::chrono::milliseconds timeout, const Exchange::Watch& watch) {
  return Arrival(rendezvous, addresses, timeout, watch).join();
}

Progress receive_from_rank_0(Line& line, const Wait& wait, std::string& news) {
  using namespace std::chrono_literals;
  const std::chrono::nanoseconds ask_before = std::min<std::chrono::nanoseconds>(2s, wait.left() / 2);
  bool has_asked = false;
  for (;;) {
    const Progress progress = line.receive();
    if (const auto note = line.take_note()) news = *note;
    if (progress != Progress::halfway) return progress;
    if (wait.is_over()) {
      static_cast<void>(line.send_note("over"));
      return progress;
    }
    if (!has_asked && wait.left() < ask_before) {
      static_cast<void>(line.send_note(""));
      has_asked = true;
    }
    wait.until_ready(line.socket(), POLLIN);
  }
}

}  // namespace tutti::tcp
