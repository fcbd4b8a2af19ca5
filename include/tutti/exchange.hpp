#pragma once

#include "tutti/export.hpp"

#include <cstddef>
#include <span>

namespace tutti {

/// How the processes of a `Communicator` talk before it exists, and whenever it agrees on something new: the
/// one thing a job launcher has to provide. `tutti/mpi.hpp` makes one from an `MPI_Comm`.
///
/// Implementations need not be thread-safe; a communicator calls from one thread at a time.
class TUTTI_EXPORT Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange();

  /// This process among `size()`, from 0.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Every rank gives `mine`, all of one length; every rank gets all of them, in order of ranks: `all` is
  /// size() times as long. Returns when all have called. What it throws reaches the caller of the
  /// communicator.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

}  // namespace tutti
