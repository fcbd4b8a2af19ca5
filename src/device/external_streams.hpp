// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

/// Tracks streams that the program made itself, which a backend knows nothing of. Such a stream exists while
/// it is some thread's current stream, and may be queried then; afterwards it may be destroyed, and must not
/// be queried.
namespace tutti {

/// Counts the stream as external from now on. Thread-safe.
void note_external_stream(backend::StreamRef stream);

/// Notes that the calling thread has made `after` current in place of `before`. Costs a few nanoseconds while
/// no stream is external.
void note_current_stream(backend::StreamRef before, backend::StreamRef after);

/// Returns whether a stream of the device is being captured, like `Backend::has_capture_on`; external streams
/// count, too, if they are current in a thread of this process.
[[nodiscard]] bool has_capture_on(backend::Backend& backend, int device);

}  // namespace tutti
