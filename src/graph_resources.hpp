// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_pool.hpp"
#include "random_draws.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// Who launches a graph.
enum class GraphLaunches : std::uint8_t {
  of_library,  ///< `Graph`, which lets go of its resources only when its launches are done
  of_others,   ///< who captured it: nobody knows when
};

/// What a graph owns besides its work: a private pool of every allocator, for memory that is first used in
/// its capture; memory of others that its work uses; and where its random numbers come from. Thread-safe.
///
/// When it is destroyed, the pools become part of the ordinary caches: memory in use stays so. Graphs that
/// share a pool would share what stands for it here.
class GraphResources {
 public:
  GraphResources(Runtime& runtime, GraphLaunches launches);
  GraphResources(const GraphResources&) = delete;
  GraphResources& operator=(const GraphResources&) = delete;
  ~GraphResources();

  [[nodiscard]] GraphPool pool() const noexcept { return pool_; }
  [[nodiscard]] GraphLaunches launches() const noexcept { return launches_; }
  /// Until the graph is gone.
  void keep(Storage& storage);
  void keep(std::shared_ptr<void> resource);
  [[nodiscard]] RandomDraws& draws() noexcept { return draws_; }

 private:
  Runtime& runtime_;
  const GraphLaunches launches_;
  const GraphPool pool_;
  std::mutex mutex_;
  std::map<const Storage*, detail::IntrusivePtr<Storage>> storages_;
  std::vector<std::shared_ptr<void>> resources_;
  RandomDraws draws_;
};

}  // namespace tutti
