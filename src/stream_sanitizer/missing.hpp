// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream_sanitizer/happens_before.hpp"

#include <string>

namespace tutti::stream_sanitizer {

/// Describes what would have ordered two accesses. `clock` is what the second one follows; `stream` the
/// stream it is on, nullptr for the host.
[[nodiscard]] std::string missing_order(const Access& first, const Access& second, const VectorClock& clock,
                                        const WatchedStream* stream);
[[nodiscard]] std::string missing_record_stream(const Access& first, const Access& second);
[[nodiscard]] std::string missing_after_free();

}  // namespace tutti::stream_sanitizer
