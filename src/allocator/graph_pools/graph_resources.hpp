// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/private_pool.hpp"
#include "device/open_captures.hpp"
#include "tutti/storage.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>
#include <utility>
#include <vector>

namespace tutti {

class Runtime;

/// Owns what a graph needs besides its work: a private pool, which it may share with other graphs; memory of
/// others that its work uses; and state of layers above. Thread-safe.
class GraphResources {
 public:
  GraphResources(Runtime& runtime, GraphLaunches launches);  ///< with a pool of its own
  /// Makes the resources of a graph that the library launches.
  GraphResources(Runtime& runtime, std::shared_ptr<PrivatePool> pool);
  GraphResources(const GraphResources&) = delete;
  GraphResources& operator=(const GraphResources&) = delete;
  ~GraphResources();

  [[nodiscard]] GraphPool pool() const noexcept { return pool_->id(); }
  [[nodiscard]] const std::shared_ptr<PrivatePool>& private_pool() const noexcept { return pool_; }
  [[nodiscard]] GraphLaunches launches() const noexcept { return launches_; }
  /// Keeps the storage until the graph is gone.
  void keep(Storage& storage);
  void keep(std::shared_ptr<void> resource);

  /// Returns the graph's object of type T, state of a layer above, made by `T(Runtime&, GraphLaunches)` on
  /// first use. It is destroyed before the private pool.
  template <class T>
  [[nodiscard]] T& attached() {
    return *static_cast<T*>(find_or_attach(typeid(T), [](GraphResources& graph) -> std::shared_ptr<void> {
      return std::make_shared<T>(graph.runtime_, graph.launches_);
    }));
  }
  /// Works as `attached`, but returns nullptr if nobody has asked for the object yet.
  template <class T>
  [[nodiscard]] T* find_attached() {
    return static_cast<T*>(find_or_attach(typeid(T), nullptr));
  }

 private:
  using Make = std::shared_ptr<void> (*)(GraphResources&);
  [[nodiscard]] void* find_or_attach(std::type_index type, Make make);

  Runtime& runtime_;
  const GraphLaunches launches_;
  std::shared_ptr<PrivatePool> pool_;
  std::mutex mutex_;
  std::map<const Storage*, detail::IntrusivePtr<Storage>> storages_;
  std::vector<std::shared_ptr<void>> resources_;
  std::vector<std::pair<std::type_index, std::shared_ptr<void>>> attached_;
};

}  // namespace tutti
