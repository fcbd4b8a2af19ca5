// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/graph_resources.hpp"
#include "device/open_captures.hpp"
#include "graph/launchable_graph.hpp"
#include "stream/late_releases.hpp"
#include "tutti/graph.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace tutti {

/// A capture by the library, which lasts from its construction until `end`. Use it on the thread that
/// constructs it. Errors name `function`.
class GraphRecorder {
 public:
  GraphRecorder(Runtime& runtime, std::string_view function, backend::StreamRef origin,
                const CaptureOptions& options);
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;
  /// Abandons the capture, if it has not ended.
  ~GraphRecorder();

  /// Ends the capture, also if that throws. `description`: see `GraphCalls::end_capture`.
  [[nodiscard]] std::unique_ptr<LaunchableGraph> end(std::string* description);
  [[nodiscard]] const std::shared_ptr<PrivatePool>& pool() const noexcept {
    return resources_->private_pool();
  }
  [[nodiscard]] bool is_of_calling_thread() const noexcept { return thread_ == std::this_thread::get_id(); }

 private:
  Runtime& runtime_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const backend::StreamRef origin_;
  LateReleases::ReleaseList retirement_{1};
  std::shared_ptr<GraphResources> resources_;
  std::optional<PrivatePool::Use> use_;
  bool is_open_ = false;
  std::optional<OpenCapture> capturing_;
};

}  // namespace tutti
