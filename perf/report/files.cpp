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

std::string read_named_file(const std::string& name, const std::string& refusal) {
  constexpr std::uintmax_t most_bytes = std::uintmax_t{64} << 20;
  const auto require = [&refusal](bool is_so, const std::string& reason) {
    if (!is_so) throw UsageError(refusal + ": " + reason);
  };
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(name, error);
  require(!error, error.message());
  require(!std::filesystem::is_directory(status), std::generic_category().message(EISDIR));
  require(std::filesystem::is_regular_file(status), "it is no regular file");
  const std::uintmax_t bytes = std::filesystem::file_size(name, error);
  require(!error, error.message());
  require(bytes <= most_bytes, fmt::format("it has more than {} bytes", most_bytes));
  std::string text(static_cast<std::size_t>(bytes), '\0');
  errno = 0;
  std::ifstream file(name, std::ios::binary);
  require(file.is_open(), std::generic_category().message(errno));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));  // of a file that shrinks meanwhile
  require(!file.bad(), std::generic_category().message(errno));
  return text;
}

}  // namespace tutti::perf
