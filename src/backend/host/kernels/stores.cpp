// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/stores.hpp"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tutti::backend::host {

#if defined(__SSE2__)

namespace {

/// `target` is the beginning of a line.
void stream_line(std::byte* target, const std::byte* source) noexcept {
  auto* const to = reinterpret_cast<__m128i*>(target);
  const auto* const from = reinterpret_cast<const __m128i*>(source);
  const __m128i first = _mm_loadu_si128(from);
  const __m128i second = _mm_loadu_si128(from + 1);
  const __m128i third = _mm_loadu_si128(from + 2);
  const __m128i fourth = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, first);
  _mm_stream_si128(to + 1, second);
  _mm_stream_si128(to + 2, third);
  _mm_stream_si128(to + 3, fourth);
}

void stream(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
  const std::size_t into_line = reinterpret_cast<std::uintptr_t>(target) % line_bytes;
  const std::size_t head = into_line == 0 ? 0 : std::min(line_bytes - into_line, bytes);
  std::memcpy(target, source, head);
  std::size_t done = head;
  for (; bytes - done >= line_bytes; done += line_bytes) stream_line(target + done, source + done);
  std::memcpy(target + done, source + done, bytes - done);
}

}  // namespace

void put(std::byte* target, const std::byte* source, std::size_t bytes, Stores stores) noexcept {
  if (stores == Stores::streamed) return stream(target, source, bytes);
  std::memcpy(target, source, bytes);
}

void finish(Stores stores) noexcept {
  if (stores == Stores::streamed) _mm_sfence();
}

#else

void put(std::byte* target, const std::byte* source, std::size_t bytes, Stores /*stores*/) noexcept {
  std::memcpy(target, source, bytes);
}

void finish(Stores /*stores*/) noexcept {}

#endif

}  // namespace tutti::backend::host
