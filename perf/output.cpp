// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include "usage_error.hpp"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

bool is_file(const std::string& name) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(name, unknown);
}

std::string reason_of_last_failure() {
  return errno == 0 ? "" : fmt::format(": {}", std::generic_category().message(errno));
}

}  // namespace

void Output::print(const std::string& text) const {
  if (!speaks_ || is_broken_ || has_lost_its_reader_) return;
  if (std::fputs(text.c_str(), stdout) != EOF && std::fflush(stdout) != EOF) return;
  (errno == EPIPE ? has_lost_its_reader_ : is_broken_) = true;
}

void Output::complain(const std::string& text) const {
  if (speaks_) static_cast<void>(std::fputs(fmt::format("{}: {}\n", program_, text).c_str(), stderr));
}

Progress::Progress(bool speaks) : visible_(speaks && isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) const {
  if (visible_) static_cast<void>(std::fputs(fmt::format("\r\033[K{}", text).c_str(), stderr));
}

ResultFile::ResultFile(std::string option, std::string name)
    : option_(std::move(option)), name_(std::move(name)) {
  if (name_.empty()) return;
  const bool was_there = is_file(name_);
  errno = 0;
  file_.open(name_, std::ios::app);
  std::error_code failure;
  const std::uintmax_t bytes = was_there ? std::filesystem::file_size(name_, failure) : 0;
  if (file_) file_ << '\n' << std::flush;
  if (!file_ || failure)
    throw UsageError(fmt::format("{}: '{}' cannot be written{}", option_, name_, reason_of_last_failure()));
  shorten_to(bytes);
}

void ResultFile::write(const std::string& text) {
  errno = 0;
  shorten_to(0);
  file_ << text << std::flush;
  if (!file_) {
    throw std::runtime_error(
        fmt::format("{}: '{}' could not be written{}", option_, name_, reason_of_last_failure()));
  }
}

void ResultFile::shorten_to(std::uintmax_t bytes) {
  std::error_code failure;
  if (is_file(name_)) std::filesystem::resize_file(name_, bytes, failure);
  if (failure)
    throw UsageError(fmt::format("{}: '{}' cannot be written: {}", option_, name_, failure.message()));
}

}  // namespace tutti::perf
