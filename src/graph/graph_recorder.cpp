// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_recorder.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "allocator/graph_pools/graph_resources.hpp"
#include "base/enumerators.hpp"
#include "tutti/error.hpp"

#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

/// Ends a capture that nothing comes of.
void give_up_capture(backend::Backend& backend, backend::StreamRef origin) noexcept {
  try {
    backend.destroy_graph(backend.end_capture(origin, nullptr));
  } catch (const Error&) {
    // One that has failed cannot be made a graph of; it has ended.
  }
}

}  // namespace

GraphRecorder::GraphRecorder(Runtime& runtime, std::string_view function, backend::StreamRef origin,
                             const CaptureOptions& options)
    : runtime_(runtime), origin_(origin) {
  backend::Backend& backend = runtime.backend();
  if (origin == backend.default_stream(origin.device)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the stream is the default stream of device {}, which cannot be captured, "
                            "expected another one",
                            function, origin.device));
  }
  require_enumerator(options.error_mode, CaptureErrorMode::relaxed, function, "options.error_mode");
  auto pool = GraphPoolAccess::pool_for(runtime, options.pool, function);
  use_.emplace(pool, function);
  resources_ = std::make_shared<GraphResources>(runtime, std::move(pool));
  backend.begin_capture(origin, options.error_mode);
  try {
    runtime.part<GraphCaptures>().add(origin, resources_);
  } catch (...) {
    give_up_capture(backend, origin);
    throw;
  }
  is_open_ = true;
  capturing_.emplace(resources_->pool());
}

GraphRecorder::~GraphRecorder() {
  capturing_.reset();
  if (is_open_) give_up_capture(runtime_.backend(), origin_);
}

std::unique_ptr<LaunchableGraph> GraphRecorder::end(std::string* description) {
  capturing_.reset();
  is_open_ = false;
  use_.reset();
  const backend::GraphHandle graph = runtime_.backend().end_capture(origin_, description);
  return std::make_unique<LaunchableGraph>(runtime_, graph, origin_.device, std::move(retirement_),
                                           resources_);
}

}  // namespace tutti
