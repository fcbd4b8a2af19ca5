// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/operation.hpp"

#include "tutti/device.hpp"

#include <cstdlib>
#include <functional>
#include <string_view>

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::stream_sanitizer {
namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

/// Describes one frame; the offset is that in the module's file.
std::string frame_in_words(void* frame) {
  // The return address is behind the call, and may be another function's if that never returns.
  const auto address = reinterpret_cast<std::uintptr_t>(frame) - 1;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("{:#x}", address);
  const std::string_view path = info.dli_fname;
  const std::string_view module = path.substr(path.find_last_of('/') + 1);
  const std::string place =
      fmt::format("{}+{:#x}", module, address - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  if (info.dli_sname == nullptr) return place;
  return fmt::format("{} ({})", demangled(info.dli_sname), place);
}

}  // namespace

CallSite CallSite::here() noexcept {
  CallSite site;
  site.count_ = backtrace(site.frames_.data(), most_frames);
  return site;
}

std::string CallSite::in_words() const {
  constexpr int most_shown = 12;
  std::string words;
  int shown = 0;
  for (int i = 0; i < count_ && shown < most_shown; ++i) {
    const std::string frame = frame_in_words(frames_[static_cast<std::size_t>(i)]);
    // Its own frames come first, and are left out if the program exports what names them.
    if (shown == 0 && frame.find("tutti::stream_sanitizer::") != std::string::npos) continue;
    words += shown == 0 ? frame : " < " + frame;
    ++shown;
  }
  return words.empty() ? "an unknown place" : words;
}

std::size_t CallSite::hash() const noexcept {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(frames_.data()), sizeof(void*) * static_cast<std::size_t>(count_)});
}

std::string in_words(backend::StreamRef stream, bool is_default) {
  if (stream.device < 0) return "the host";
  const std::string device = to_string(Device(stream.device));
  return is_default ? "the default stream of " + device
                    : fmt::format("stream {} of {}", fmt::ptr(stream.handle), device);
}

std::string Operation::stream_in_words() const {
  return in_words(stream, is_default_stream);
}

std::uint64_t calling_thread() noexcept {
  static thread_local const auto thread = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  return thread;
}

}  // namespace tutti::stream_sanitizer
