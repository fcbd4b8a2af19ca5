// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

/// Streams that the program made elsewhere, which a backend knows nothing of. While one is some thread's
/// current stream it is there, and may be asked; afterwards it may be gone, and must not.
namespace tutti {

/// Counts the stream as external from now on. Thread-safe.
void note_external_stream(backend::StreamRef stream);

/// The calling thread has made `after` current where `before` was. A few nanoseconds while no stream is
/// external.
void note_current_stream(backend::StreamRef before, backend::StreamRef after);

/// Returns whether a stream of the device is being captured, as `Backend::has_capture_on`, of others' streams
/// also if it is current in a thread of this process.
[[nodiscard]] bool has_capture_on(backend::Backend& backend, int device);

}  // namespace tutti
