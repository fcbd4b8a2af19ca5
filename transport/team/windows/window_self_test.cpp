// SPDX-License-Identifier: Apache-2.0
#include "transport/team/windows/window_self_test.hpp"

#include "allocator/pinned_allocator.hpp"
#include "transport/team/windows/scoped_stream.hpp"
#include "tutti/error.hpp"

#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

std::byte pattern_of(std::size_t writer, std::size_t index) {
  return static_cast<std::byte>((index * 167 + writer * 59 + 13) % 251);
}

}  // namespace

WindowSelfTest::WindowSelfTest(Runtime& runtime, const backend::TeamWindowLayout& layout)
    : backend_(runtime.backend()),
      layout_(layout),
      host_(static_cast<std::byte*>(
          runtime.part<PinnedAllocator>().allocate_uncached(layout.members * bytes))) {
  if (host_ == nullptr) throw Error(ErrorCode::out_of_memory, "no pinned memory for the self-test");
}

WindowSelfTest::~WindowSelfTest() {
  backend_.free_pinned(host_);
}

void WindowSelfTest::write(int device, std::size_t writer, std::span<std::byte* const> windows) {
  const ScopedStream stream(backend_, device);
  for (std::size_t i = 0; i < bytes; ++i) host_[i] = pattern_of(writer, i);
  std::vector<std::byte*> pointers{host_};
  for (std::byte* const window : windows) pointers.push_back(place(window, writer));
  const backend::FanOutSegment segment{
      .row_bytes = bytes, .source = 0, .first_target = 1, .target_count = layout_.members};
  backend_.fan_out(stream.get(), {.segments = std::span(&segment, 1), .pointers = pointers});
  backend_.synchronize_stream(stream.get());
}

void WindowSelfTest::read(int device, std::size_t reader, std::span<std::byte* const> windows) {
  const ScopedStream stream(backend_, device);
  for (std::size_t owner = 0; owner < windows.size(); ++owner) {
    std::memset(host_, 0, layout_.members * bytes);
    std::vector<std::byte*> pointers{place(windows[owner], 0), host_};
    const backend::FanOutSegment segment{
        .row_bytes = layout_.members * bytes, .source = 0, .first_target = 1, .target_count = 1};
    backend_.fan_out(stream.get(), {.segments = std::span(&segment, 1), .pointers = pointers});
    backend_.synchronize_stream(stream.get());
    for (std::size_t writer = 0; writer < layout_.members; ++writer) {
      for (std::size_t i = 0; i < bytes; ++i) {
        if (host_[writer * bytes + i] == pattern_of(writer, i)) continue;
        throw Error(ErrorCode::peer_unavailable,
                    fmt::format("member {} does not read from member {}'s memory what member {} wrote there",
                                reader, owner, writer));
      }
    }
  }
}

}  // namespace tutti::transport::team
