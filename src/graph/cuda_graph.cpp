// SPDX-License-Identifier: Apache-2.0
#include "tutti/cuda_graph.hpp"

#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "device/external_streams.hpp"
#include "files/whole_file.hpp"
#include "graph/graph_recorder.hpp"
#include "stream/thread_streams.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

[[noreturn]] void refuse_graph(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, reason);
}

}  // namespace

class CUDAGraph::Impl {
 public:
  void begin(const CaptureOptions& options) {
    if (recorder_ != nullptr) refuse_graph("CUDAGraph::capture_begin: this graph is being captured already");
    if (graph_ != nullptr)
      refuse_graph("CUDAGraph::capture_begin: this graph holds a capture, expected an empty one: call reset");
    Runtime& runtime = Runtime::get();
    recorder_ = std::make_unique<GraphRecorder>(runtime, "CUDAGraph::capture_begin",
                                                current_stream_ref(runtime, current_index(runtime)), options);
    failure_.clear();
  }
  void end() {
    if (recorder_ == nullptr)
      refuse_graph("CUDAGraph::capture_end: this graph is not being captured, expected capture_begin before");
    if (!recorder_->is_of_calling_thread()) {
      throw Error(ErrorCode::unsupported,
                  "CUDAGraph::capture_end: the capture was begun by another thread, which has to end it");
    }
    const std::unique_ptr<GraphRecorder> recorder = std::move(recorder_);
    description_.clear();
    graph_ = recorder->end(is_debugged_ ? &description_ : nullptr);
  }
  /// Sets the failure that `replay` reports.
  void fail(std::string failure) { failure_ = std::move(failure); }
  void give_up() noexcept { recorder_.reset(); }
  void replay() {
    if (graph_ == nullptr) {
      refuse_graph(failure_.empty() ? "CUDAGraph::replay: this graph holds nothing, expected a capture before"
                                    : "CUDAGraph::replay: the capture has failed: " + failure_);
    }
    graph_->launch(current_stream(graph_->device()), "CUDAGraph::replay");
  }
  void reset() {
    if (recorder_ != nullptr) refuse_graph("CUDAGraph::reset: this graph is being captured");
    graph_.reset();
    description_.clear();
    failure_.clear();
  }
  [[nodiscard]] GraphPoolHandle pool() const {
    if (recorder_ != nullptr) return GraphPoolAccess::make(recorder_->pool());
    if (graph_ != nullptr) return GraphPoolAccess::make(graph_->pool());
    refuse_graph("CUDAGraph::pool: this graph holds nothing, expected capture_begin before");
  }
  void enable_debug_mode() noexcept { is_debugged_ = true; }
  void dump(const std::string& path) const {
    if (graph_ == nullptr) refuse_graph("CUDAGraph::debug_dump: this graph holds nothing");
    if (description_.empty()) {
      refuse_graph(
          "CUDAGraph::debug_dump: this graph was captured without debug mode, expected enable_debug_mode "
          "before capture_end");
    }
    constexpr std::chrono::seconds reader_patience{10};  // it may be a pipe that nobody reads
    try {
      files::WholeFile(path, reader_patience).write(description_);
    } catch (const std::system_error& error) {
      refuse_graph(fmt::format("CUDAGraph::debug_dump: path is '{}', which cannot be written: {}", path,
                               error.code().message()));
    }
  }

 private:
  std::unique_ptr<GraphRecorder> recorder_;
  std::unique_ptr<LaunchableGraph> graph_;
  bool is_debugged_ = false;
  std::string description_;
  std::string failure_;
};

CUDAGraph::CUDAGraph() : impl_(std::make_unique<Impl>()) {}
CUDAGraph::~CUDAGraph() = default;

void CUDAGraph::capture_begin(const CaptureOptions& options) {
  impl_->begin(options);
}
void CUDAGraph::capture_end() {
  impl_->end();
}
void CUDAGraph::replay() {
  impl_->replay();
}
void CUDAGraph::reset() {
  impl_->reset();
}
GraphPoolHandle CUDAGraph::pool() const {
  return impl_->pool();
}
void CUDAGraph::enable_debug_mode() noexcept {
  impl_->enable_debug_mode();
}
void CUDAGraph::debug_dump(const std::string& path) const {
  impl_->dump(path);
}

GraphGuard::GraphGuard(CUDAGraph& graph, const GraphGuardOptions& options)
    : graph_(graph), exceptions_(std::uncaught_exceptions()) {
  const BlockingCall blocks("GraphGuard");
  Runtime& runtime = Runtime::get();
  const std::shared_ptr<PrivatePool> pool = GraphPoolAccess::pool_for(runtime, options.pool, "GraphGuard");
  const Stream stream = options.stream ? *options.stream : pool->capture_stream(current_index(runtime));
  // Where another thread captures, nobody can wait: then only as much memory is given back as may be.
  if (!has_capture_on(runtime.backend(), stream.device())) synchronize(stream.device());
  empty_cache();
  current_.emplace(stream);
  graph_.capture_begin({.pool = GraphPoolAccess::make(pool), .error_mode = options.error_mode});
  is_open_ = true;
}

void GraphGuard::end() {
  if (!std::exchange(is_open_, false)) return;
  graph_.capture_end();
}

GraphGuard::~GraphGuard() {
  if (is_open_ && std::uncaught_exceptions() > exceptions_) {
    is_open_ = false;
    graph_.impl_->give_up();
    return;
  }
  try {
    end();
  } catch (const std::exception& error) {
    try {
      graph_.impl_->fail(error.what());
    } catch (const std::exception&) {
      return;  // without memory for the reason, `replay` says that there is nothing
    }
  }
}

}  // namespace tutti
