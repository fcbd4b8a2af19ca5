// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/block_pool.hpp"
#include "allocator/graph_pools/private_pool.hpp"
#include "rng/random_draws.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class Runtime;

/// What a graph owns besides its work: a private pool, which it may share with other graphs; memory of others
/// that its work uses; and where its random numbers come from. Thread-safe.
class GraphResources {
 public:
  GraphResources(Runtime& runtime, GraphLaunches launches);  ///< with a pool of its own
  /// Of a graph that the library launches.
  GraphResources(Runtime& runtime, std::shared_ptr<PrivatePool> pool);
  GraphResources(const GraphResources&) = delete;
  GraphResources& operator=(const GraphResources&) = delete;
  ~GraphResources();

  [[nodiscard]] GraphPool pool() const noexcept { return pool_->id(); }
  [[nodiscard]] const std::shared_ptr<PrivatePool>& private_pool() const noexcept { return pool_; }
  [[nodiscard]] GraphLaunches launches() const noexcept { return launches_; }
  /// Until the graph is gone.
  void keep(Storage& storage);
  void keep(std::shared_ptr<void> resource);
  [[nodiscard]] RandomDraws& draws() noexcept { return draws_; }

 private:
  const GraphLaunches launches_;
  std::shared_ptr<PrivatePool> pool_;
  std::mutex mutex_;
  std::map<const Storage*, detail::IntrusivePtr<Storage>> storages_;
  std::vector<std::shared_ptr<void>> resources_;
  RandomDraws draws_;
};

}  // namespace tutti
