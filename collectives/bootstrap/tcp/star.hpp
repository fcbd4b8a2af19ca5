// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/line.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::tcp {

/// Connections from rank 0 to all others.
class Exchange::Star {
 public:
  /// Waits until all have come.
  Star(Rendezvous rendezvous, Watch watch);

  [[nodiscard]] int rank() const noexcept { return rendezvous_.rank; }
  [[nodiscard]] int size() const noexcept { return rendezvous_.size; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  void limit_waits(std::chrono::milliseconds timeout) noexcept;
  /// Makes a network of all ranks, by this exchange of theirs.
  [[nodiscard]] std::unique_ptr<tutti::Network> network(tutti::Exchange& exchange);
  void set_timeout(std::chrono::milliseconds timeout) noexcept;

 private:
  void gather_from_all(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Takes, on rank 0, the part or the question that a rank has sent.
  void hear(int rank, std::vector<int>& awaited, std::span<std::byte> all, const Wait& wait);
  void take_part(int rank, std::span<std::byte> all);
  void answer(int rank, const std::string& note, const std::vector<int>& awaited, const Wait& wait);
  /// Sends, on rank 0, to all ranks at the same time, so that a rank that receives nothing delays no other.
  void send_to_all(std::span<const std::byte> all, const Wait& wait);
  void gather_by_rank_0(std::span<const std::byte> mine, std::span<std::byte> all);
  [[nodiscard]] Line& line(int rank) { return lines_[static_cast<std::size_t>(rank)]; }
  /// Tells, on rank 0, all others of the error, and throws it.
  [[noreturn]] void end_all(ErrorCode code, const std::string& message);

  Rendezvous rendezvous_;
  Watch watch_;
  std::chrono::milliseconds made_with_;
  std::chrono::milliseconds timeout_;
  std::vector<Line> lines_;  ///< of rank 0: to each rank, closed to itself; else one, to rank 0
  bool has_failed_ = false;
};

}  // namespace tutti::tcp
