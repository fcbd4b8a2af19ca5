// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/graph_resources.hpp"
#include "backend/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

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
  [[nodiscard]] static GraphPool of_calling_thread() noexcept {
    return open_here.count == 0 ? GraphPool::none : open_here.pools[open_here.count - 1].pool;
  }

  static constexpr std::size_t most_open = 16;
  /// Of a thread: the pools of the graphs that it captures, in the order in which it has begun.
  struct OpenHere {
    struct Open {
      std::uint64_t number = 0;
      GraphPool pool = GraphPool::none;
    };
    std::array<Open, most_open> pools{};
    std::size_t count = 0;
    std::uint64_t last_number = 0;

    void remove(std::uint64_t number) noexcept;
  };

  /// While it exists, the calling thread captures the graph of `resources`. Of several that do, the one that
  /// began last counts, in whatever order they end; those that begin beside `most_open` others do not.
  class Thread {
   public:
    explicit Thread(const GraphResources& resources) noexcept : Thread(resources.pool()) {}
    /// `none`: it captures nothing meanwhile.
    explicit Thread(GraphPool pool) noexcept {
      if (place_->count == most_open) return;
      number_ = ++place_->last_number;
      place_->pools[place_->count++] = {number_, pool};
    }
    Thread(const Thread&) = delete;
    Thread& operator=(const Thread&) = delete;
    /// Nothing, if this is another thread.
    ~Thread() {
      if (place_ == &open_here) place_->remove(number_);
    }

   private:
    OpenHere* place_ = &open_here;
    std::uint64_t number_ = 0;  ///< none of those there
  };

 private:
  static thread_local constinit OpenHere open_here;

  Runtime& runtime_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<GraphResources>> by_capture_;
};

/// For `streams` of which some are being captured, and which the others are to join. Throws
/// Error(unsupported), in the name of `function`, if one is a default stream, which cannot: the capture goes
/// on.
void require_no_default_stream(Runtime& runtime, std::span<const backend::StreamRef> streams,
                               std::string_view function);

/// Where `stream` is being captured: has the graph keep `storage`, whose memory each of its runs uses.
/// Whether it does.
[[nodiscard]] bool graph_keeps(Storage& storage, backend::StreamRef stream);

}  // namespace tutti
