// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/graph_pools/graph_resources.hpp"
#include "backend/backend.hpp"
#include "device/runtime_part.hpp"
#include "stream/late_releases.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

namespace tutti {

class Runtime;
class Storage;

/// Lists the graphs that are being captured, and what each of them owns. A stream counts as captured if it
/// has joined a capture in any way, and captures that others than the library began count, too. Thread-safe.
class GraphCaptures final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::graph_captures;

  explicit GraphCaptures(Runtime& runtime);

  /// Records that work queued on `stream` goes into the graph of `resources`, which its owner keeps. Called
  /// while `stream` is being captured.
  void add(backend::StreamRef stream, const std::shared_ptr<GraphResources>& resources);
  /// Returns the resources of the graph that `stream` is captured into; nullptr if it is not. For a capture
  /// that others began they are made the first time, and live as long as the graph and everything made from
  /// it. Throws if the capture has become invalid.
  [[nodiscard]] std::shared_ptr<GraphResources> of(backend::StreamRef stream);
  /// Returns the pool for memory that is first used on `stream`.
  [[nodiscard]] GraphPool pool_of(backend::StreamRef stream) {
    return backend_.is_capturing(stream) ? pool_of_captured(stream) : GraphPool::none;
  }
  /// Keeps `resource`, while `stream` is being captured, until the graph and everything made from it are
  /// destroyed. It is then released later, because threads of the driver may destroy graphs. For graphs that
  /// the library launches, it is released once their launches are done.
  void retain(backend::StreamRef stream, std::shared_ptr<void> resource);

 private:
  [[nodiscard]] GraphPool pool_of_captured(backend::StreamRef stream);

  Runtime& runtime_;
  backend::Backend& backend_;
  LateReleases& late_releases_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<GraphResources>> by_capture_;
};

/// Throws Error(unsupported), in the name of `function`, if one of `streams` is a default stream, which
/// cannot join the capture that others of them are in. The capture goes on.
void require_no_default_stream(Runtime& runtime, std::span<const backend::StreamRef> streams,
                               std::string_view function);

/// Makes the graph that `stream` is being captured into keep `storage`, whose memory each of its runs uses.
/// Returns false if the stream is not being captured.
[[nodiscard]] bool graph_keeps(Storage& storage, backend::StreamRef stream);

}  // namespace tutti
