// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/private_pool.hpp"
#include "backend/handles.hpp"
#include "base/fork_mark.hpp"
#include "tutti/storage.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti {

class Runtime;

/// The state of a generator: see `tutti/rng.hpp`. In memory of a device it is what `RandomFill::state` points
/// to.
struct PhiloxState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// Returns the state of a device's generator, and advances it by `words`.
[[nodiscard]] PhiloxState take_random_words(Runtime& runtime, int device, std::uint64_t words);

/// The random numbers of a graph. Its fills read the state to draw from in memory of their devices, and each
/// launch writes the generators' states at that time there, in stream order. Thread-safe, except that one
/// thread at a time launches.
class RandomDraws {
 public:
  RandomDraws(Runtime& runtime, GraphLaunches launches) : runtime_(runtime), launches_(launches) {}
  RandomDraws(const RandomDraws&) = delete;
  RandomDraws& operator=(const RandomDraws&) = delete;
  ~RandomDraws() { clear(); }

  /// The place in the random numbers at which a `RandomFill` begins.
  struct Place {
    const std::uint64_t* state = nullptr;
    std::uint64_t offset = 0;
  };
  /// Adds a fill of `words` words on `stream`, which is being captured into the graph.
  [[nodiscard]] Place add(backend::StreamRef stream, std::uint64_t words);
  [[nodiscard]] bool empty();
  /// Sets the positions from which the next launch on `stream` draws to those of the generators, and advances
  /// these by all that it draws. `stream` must already wait for the launch before.
  void begin_launch(backend::StreamRef stream);
  void clear() noexcept;

 private:
  struct OfDevice {
    detail::IntrusivePtr<Storage> state;
    std::uint64_t words = 0;
    backend::StreamRef writer;  ///< its own, where launches are queued on another device
  };

  void write(OfDevice& draws, const PhiloxState& state, backend::StreamRef stream);

  Runtime& runtime_;
  const GraphLaunches launches_;
  ForkMark fork_mark_;
  std::mutex mutex_;
  /// Apart from what the graph's work allocates: a launch writes the states before that work, which may have
  /// used, and given back, what is allocated by the time it first draws.
  std::optional<PrivatePool> pool_;
  std::vector<OfDevice> devices_;
};

}  // namespace tutti
