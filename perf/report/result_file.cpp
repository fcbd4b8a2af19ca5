// SPDX-License-Identifier: Apache-2.0
#include "perf/report/result_file.hpp"

#include "files/whole_file.hpp"
#include "perf/processes/usage_error.hpp"

#include <chrono>
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

}  // namespace tutti::perf
