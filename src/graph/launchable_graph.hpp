// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/graph_resources.hpp"
#include "base/fork_mark.hpp"
#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "stream/late_releases.hpp"
#include "tutti/stream.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

namespace tutti {

class RandomDraws;

/// A captured graph and its resources, which are released when its last launch is done. One thread at a time
/// may use it.
class LaunchableGraph {
 public:
  /// Takes over `graph`, whose resources are those of `retirement`.
  LaunchableGraph(Runtime& runtime, backend::GraphHandle graph, int device,
                  LateReleases::ReleaseList retirement, std::shared_ptr<GraphResources> resources)
      : runtime_(runtime),
        generation_(runtime.generation()),
        graph_(graph),
        device_(device),
        retirement_(std::move(retirement)),
        resources_(std::move(resources)) {}
  LaunchableGraph(const LaunchableGraph&) = delete;
  LaunchableGraph& operator=(const LaunchableGraph&) = delete;
  ~LaunchableGraph();

  /// Launches the graph as `Graph::launch` does; errors name `function`.
  void launch(const Stream& stream, std::string_view function);
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] const std::shared_ptr<PrivatePool>& pool() const noexcept {
    return resources_->private_pool();
  }

 private:
  /// Returns true if the devices have been replaced, which destroyed the graph.
  [[nodiscard]] bool is_orphaned() const noexcept;
  /// Adds this graph to the larger one, which is under capture.
  void become_part_of(GraphResources& larger, backend::StreamRef queue, std::string_view function);
  /// Remembers how to wait for the graph's last launch when the graph is destroyed: by its streams, if
  /// they last (`Streams::lasts`); by an event behind the launch, if one is needed anyway or a stream need
  /// not last.
  void remember(backend::StreamRef queue);
  /// Returns nullptr if the graph draws no random numbers.
  [[nodiscard]] RandomDraws* random_draws() const;

  ForkMark fork_mark_;
  Runtime& runtime_;
  const std::uint64_t generation_;  ///< of the devices
  backend::GraphHandle graph_;
  int device_;
  LateReleases::ReleaseList retirement_;  ///< one, with the streams it was launched on
  PooledEvent passed_;                    ///< recorded behind the last launch, if there is one
  bool has_launched_ = false;             ///< and so recorded it
  backend::StreamRef latest_;             ///< where it did
  std::shared_ptr<GraphResources> resources_;
};

}  // namespace tutti
