// SPDX-License-Identifier: Apache-2.0
#include "settings/file_text.hpp"

#include "os/descriptor.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti {
namespace {

constexpr std::size_t most_bytes = std::size_t{64} << 20;

FileText not_read(std::string complaint) {
  return {.text = std::nullopt, .complaint = std::move(complaint)};
}

}  // namespace

FileText read_named_file(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe without a writer would block.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!file.is_open() || fstat(file.number(), &status) != 0) return not_read(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return not_read("it is no regular file");
  std::string text;
  std::array<char, 4096> piece{};
  while (static_cast<std::size_t>(status.st_size) <= most_bytes && text.size() <= most_bytes) {
    const ssize_t count = read(file.number(), piece.data(), piece.size());
    if (count == 0) return {.text = std::move(text), .complaint = {}};
    if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
    // EINTR means that nothing has been read yet.
    if (count < 0 && errno != EINTR) return not_read(std::strerror(errno));
  }
  return not_read(fmt::format("it has more than {} bytes", most_bytes));
}

}  // namespace tutti
