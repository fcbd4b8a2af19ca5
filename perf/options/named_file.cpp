// SPDX-License-Identifier: Apache-2.0
#include "perf/options/named_file.hpp"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {

std::variant<std::string, NotRead> read_named_file(const std::string& name) {
  constexpr std::uintmax_t most_bytes = std::uintmax_t{64} << 20;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(name, error);
  if (error) return NotRead{error.message()};
  if (std::filesystem::is_directory(status)) return NotRead{std::generic_category().message(EISDIR)};
  if (!std::filesystem::is_regular_file(status)) return NotRead{"it is no regular file"};
  const std::uintmax_t bytes = std::filesystem::file_size(name, error);
  if (error) return NotRead{error.message()};
  if (bytes > most_bytes) return NotRead{fmt::format("it has more than {} bytes", most_bytes)};
  std::string text(static_cast<std::size_t>(bytes), '\0');
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  if (!file.is_open()) return NotRead{std::generic_category().message(errno)};
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));  // of a file that shrinks meanwhile
  if (file.bad()) return NotRead{std::generic_category().message(errno)};
  return text;
}

}  // namespace tutti::perf
