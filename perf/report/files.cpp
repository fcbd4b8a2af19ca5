// SPDX-License-Identifier: Apache-2.0
#include "perf/report/files.hpp"

#include "files/whole_file.hpp"
#include "perf/processes/failure.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// For the reader of a pipe.
constexpr std::chrono::minutes reader_patience{10};

}  // namespace

ResultFile::ResultFile(std::string option, std::string name)
    : option_(std::move(option)), name_(std::move(name)) {
  if (name_.empty()) return;
  try {
    file_ = std::make_unique<files::WholeFile>(name_, reader_patience);
  } catch (const std::system_error& error) {
    throw UsageError(fmt::format("{}: '{}' cannot be written: {}", option_, name_, error.code().message()));
  }
}

ResultFile::~ResultFile() = default;

void ResultFile::write(const std::string& text) {
  try {
    file_->write(text);
  } catch (const std::system_error& error) {
    throw std::runtime_error(
        fmt::format("{}: '{}' could not be written: {}", option_, name_, error.code().message()));
  }
}

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
