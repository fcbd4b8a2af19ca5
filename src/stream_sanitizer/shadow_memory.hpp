// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream_sanitizer/operation.hpp"
#include "stream_sanitizer/vector_clock.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tutti::stream_sanitizer {

/// Addresses from `begin` up to `end`.
struct Bytes {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

/// An operation's access, as memory remembers it.
struct Access {
  Line line = host_line;
  std::uint64_t time = 0;
  OperationPtr operation = nullptr;
  OperationPtr captured = nullptr;  ///< for launches of graphs: the operation in the graph
};

/// Who has written and read which bytes last: of each byte the last write and the reads since then that no
/// other of them follows. Not synchronised.
class ShadowMemory {
 public:
  /// An earlier access that is in no order with a later one.
  struct Conflict {
    Access earlier;
    bool earlier_writes = false;
    Bytes bytes;
  };
  /// The first one with an access of these bytes that comes behind what `clock` knows.
  [[nodiscard]] std::optional<Conflict> find_conflict(Bytes bytes, bool writes,
                                                      const VectorClock& clock) const;
  /// The access has been made. `clock` is that of its line, at its time.
  void enter(Bytes bytes, bool writes, const Access& access, const VectorClock& clock);
  /// The operation has not come about.
  void take_back(Bytes bytes, const OperationPtr& operation);
  void forget(Bytes bytes);
  /// Forgets accesses of these bytes that everything to come follows.
  void forget_known(const VectorClock& known, Bytes bytes = {0, UINTPTR_MAX});
  /// Forgets the accesses that were made first, until half are left.
  void forget_half();
  void clear() noexcept { cells_.clear(); }
  /// Of pieces of memory that differ in what is remembered.
  [[nodiscard]] std::size_t size() const noexcept { return cells_.size(); }

 private:
  struct Cell {
    std::uintptr_t end = 0;
    std::optional<Access> write;
    std::vector<Access> reads;
    [[nodiscard]] bool empty() const noexcept { return !write && reads.empty(); }
  };
  using Cells = std::map<std::uintptr_t, Cell>;

  /// The first cell that ends behind `address`.
  [[nodiscard]] Cells::const_iterator first_behind(std::uintptr_t address) const;
  /// No cell reaches from before `address` to behind it any more.
  void split(std::uintptr_t address);

  Cells cells_;
};

}  // namespace tutti::stream_sanitizer
