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

/// An access by an operation.
struct Access {
  Line line = host_line;
  std::uint64_t time = 0;
  OperationPtr operation = nullptr;
  OperationPtr captured = nullptr;  ///< for launches of graphs: the operation in the graph
};

/// Records which operations have last written and read which bytes: of each byte the last write, and the
/// reads since then that no other of them follows. Not synchronised.
class ShadowMemory {
 public:
  /// An earlier access that is not ordered with a later one.
  struct Conflict {
    Access earlier;
    bool earlier_writes = false;
    Bytes bytes;
  };
  /// Returns the first conflict of an access to these bytes with one that `clock` does not know.
  [[nodiscard]] std::optional<Conflict> find_conflict(Bytes bytes, bool writes,
                                                      const VectorClock& clock) const;
  /// Records an access. `clock` is that of its line, at its time.
  void enter(Bytes bytes, bool writes, const Access& access, const VectorClock& clock);
  /// Removes the accesses of an operation that was not queued after all.
  void take_back(Bytes bytes, const OperationPtr& operation);
  void forget(Bytes bytes);
  /// Forgets accesses of these bytes that `known` includes, as everything to come follows them.
  void forget_known(const VectorClock& known, Bytes bytes = {0, UINTPTR_MAX});
  /// Forgets the oldest accesses until half are left.
  void forget_half();
  void clear() noexcept { cells_.clear(); }
  /// Returns the number of pieces of memory with different records.
  [[nodiscard]] std::size_t size() const noexcept { return cells_.size(); }

 private:
  struct Cell {
    std::uintptr_t end = 0;
    std::optional<Access> write;
    std::vector<Access> reads;
    [[nodiscard]] bool empty() const noexcept { return !write && reads.empty(); }
  };
  using Cells = std::map<std::uintptr_t, Cell>;

  /// Returns the first cell that ends after `address`.
  [[nodiscard]] Cells::const_iterator first_behind(std::uintptr_t address) const;
  /// Splits a cell that contains `address` at it.
  void split(std::uintptr_t address);

  Cells cells_;
};

}  // namespace tutti::stream_sanitizer
