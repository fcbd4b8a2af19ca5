// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace tutti {

/// Writes `text` to what `descriptor` stands for; returns how many bytes of it have been written, and leaves
/// in errno why these are not all. Where there is no room because nobody reads, waits for `patience` at most,
/// whether or not the descriptor would block: what others share of it is left as it is. (A file is written to
/// as fast as it goes.) No signal comes of it: neither SIGPIPE, where nobody will read any more, nor SIGXFSZ,
/// where a file may not become longer.
std::size_t write_with_deadline(int descriptor, std::string_view text,
                                std::chrono::milliseconds patience) noexcept;

}  // namespace tutti
