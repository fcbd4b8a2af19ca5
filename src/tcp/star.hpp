// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/descriptor.hpp"
#include "tcp/frame.hpp"
#include "tcp/sha256.hpp"
#include "tcp/sockets.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti::tcp {

class Visitor;

/// Connections from rank 0 to all others.
class Exchange::Star {
 public:
  /// Waits until all have come.
  Star(Rendezvous rendezvous, Watch watch);

  [[nodiscard]] int rank() const noexcept { return rendezvous_.rank; }
  [[nodiscard]] int size() const noexcept { return rendezvous_.size; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  void limit_waits(std::chrono::milliseconds timeout) noexcept;
  void set_timeout(std::chrono::milliseconds timeout) noexcept;

 private:
  using Visitors = std::list<std::unique_ptr<Visitor>>;

  void let_all_in(const std::vector<Address>& addresses);
  void look_after(Visitors& visitors);
  /// Whether it is one that is waited for; else it is told why not.
  [[nodiscard]] bool takes(const Visitor& visitor) const;
  void go_to_rank_0(const std::vector<Address>& addresses);
  /// Until somebody listens there.
  [[nodiscard]] Descriptor reach(const std::vector<Address>& addresses) const;
  void gather_from_all(std::span<const std::byte> mine, std::span<std::byte> all);
  void gather_by_rank_0(std::span<const std::byte> mine, std::span<std::byte> all);
  /// What rank 0 sends, which it may have waited for others to be able to.
  void receive_from_rank_0(Frame& frame);
  [[nodiscard]] std::vector<int> missing() const;
  /// Of rank 0: tells it to all that are there, and throws it.
  [[noreturn]] void end_all(ErrorCode code, const std::string& message);

  Rendezvous rendezvous_;
  Watch watch_;
  std::chrono::milliseconds made_with_;
  std::chrono::milliseconds timeout_;
  std::vector<Descriptor> lines_;  ///< of rank 0: to each rank, closed to itself; else one, to rank 0
  int refused_ = 0;                ///< who could not prove anything
  bool has_failed_ = false;
};

}  // namespace tutti::tcp
