// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::backend {

struct StreamTag;
struct EventTag;
struct GraphTag;
/// Opaque handles. The cuda backend's stream handle is the `cudaStream_t` itself; nullptr is every
/// device's default stream there, so a handle alone does not name a stream: a `StreamRef` does.
using StreamHandle = StreamTag*;
using EventHandle = EventTag*;
using GraphHandle = GraphTag*;

/// A stream and the device it belongs to.
struct StreamRef {
  StreamHandle handle = nullptr;
  int device = -1;
  friend bool operator==(const StreamRef&, const StreamRef&) = default;
};

}  // namespace tutti::backend
