// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace tutti {

/// Owns a file descriptor of the library; the library opens files in no other way. It is closed on
/// destruction and by `exec`.
///
/// Its number is above 2 even if the program was started with standard streams closed: otherwise the
/// program's output would go to this file.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  /// Takes ownership of a system call's result, which is -1, with an `errno`, if the call failed.
  explicit Descriptor(int number) noexcept : number_(number) {
    if (number < 0 || number >= first) return;
    number_ = fcntl(number, F_DUPFD_CLOEXEC, first);
    const int error = errno;
    ::close(number);
    errno = error;
  }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  /// Returns the descriptor's number, or -1 if it is not open.
  [[nodiscard]] int number() const noexcept { return number_; }
  /// Gives the descriptor up: the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
  void close() noexcept {
    if (is_open()) ::close(release());
  }

 private:
  static constexpr int first = 3;

  int number_ = -1;
};

/// Reads a whole file. Returns nothing if there is none or it cannot be read, as with a directory.
[[nodiscard]] inline std::optional<std::string> contents_of(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.is_open()) return std::nullopt;
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t count = read(file.number(), piece.data(), piece.size());
    if (count == 0) return text;
    if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
    // EINTR means that nothing has been read yet.
    if (count < 0 && errno != EINTR) return std::nullopt;
  }
}

/// Reads the first line of a file, without its end. Returns an empty text if the file cannot be read.
[[nodiscard]] inline std::string first_line_of(const std::string& path) {
  const std::string text = contents_of(path).value_or("");
  return text.substr(0, text.find('\n'));
}

}  // namespace tutti
