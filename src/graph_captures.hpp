// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "graph_resources.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace tutti {

class Runtime;
class Storage;

/// The graphs that are being captured, and what each of them owns. A stream is asked whether it is part of a
/// capture; so all streams count that have joined one, and captures count that others than the library began.
/// Thread-safe.
class GraphCaptures {
 public:
  explicit GraphCaptures(Runtime& runtime) : runtime_(runtime) {}
  GraphCaptures(const GraphCaptures&) = delete;
  GraphCaptures& operator=(const GraphCaptures&) = delete;

  /// What work queued on `stream` goes into is the graph of `resources`, which its owner keeps. While
  /// `stream` is being captured.
  void add(backend::StreamRef stream, const std::shared_ptr<GraphResources>& resources);
  /// Of the graph that `stream` is captured into; nullptr if it is not. For a capture that others began they
  /// are made the first time, and live as long as the graph and everything made from it. Throws if the
  /// capture has become invalid.
  [[nodiscard]] std::shared_ptr<GraphResources> of(backend::StreamRef stream);
  /// The pool for memory that is first used on `stream`.
  [[nodiscard]] GraphPool pool_of(backend::StreamRef stream);
  /// The pool of the graph that the calling thread captures by `Graph::capture`, none if it does not.
  [[nodiscard]] static GraphPool of_calling_thread() noexcept { return pool_of_thread; }

  /// While it exists, the calling thread captures the graph of `resources`. They nest.
  class Thread {
   public:
    explicit Thread(const GraphResources& resources) noexcept : Thread(resources.pool()) {}
    /// `none`: it captures nothing meanwhile.
    explicit Thread(GraphPool pool) noexcept : before_(pool_of_thread) { pool_of_thread = pool; }
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    /// Nothing, if this is another thread.
    ~Thread() {
      if (place_ == &pool_of_thread) pool_of_thread = before_;
    }

   private:
    GraphPool* place_ = &pool_of_thread;
    GraphPool before_;
  };

 private:
  static thread_local constinit GraphPool pool_of_thread;

  Runtime& runtime_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<GraphResources>> by_capture_;
};

/// Where `stream` is being captured: has the graph keep `storage`, whose memory each of its runs uses.
/// Whether it does.
[[nodiscard]] bool graph_keeps(Storage& storage, backend::StreamRef stream);

}  // namespace tutti
