// SPDX-License-Identifier: Apache-2.0
#include "trace_file.hpp"

#include "log.hpp"
#include "patient_write.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace tutti::watching {
namespace {

constexpr std::size_t most_unwritten_bytes = std::size_t{1} << 16U;
/// For what a process leaves that does not come to its end.
constexpr std::chrono::seconds longest_unwritten{1};
constexpr std::chrono::milliseconds trace_patience{1000};

std::string with_process(std::string path) {
  constexpr std::string_view mark = "%p";
  for (std::size_t at = 0; (at = path.find(mark, at)) != std::string::npos;)
    path.replace(at, mark.size(), std::to_string(getpid()));
  return path;
}

}  // namespace

TraceFile::TraceFile(std::string path, std::string_view first)
    : path_(with_process(std::move(path))),
      part_(fmt::format("{}.{}.part", path_, getpid())),
      file_(Descriptor(open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666))),
      buffer_(fmt::format("[\n{}", first)) {
  if (!file_.is_open()) throw std::system_error(errno, std::generic_category(), part_);
}

void TraceFile::add(std::string_view object) {
  if (!file_.is_open()) return;
  buffer_ += ",\n";
  buffer_ += object;
  if (buffer_.size() >= most_unwritten_bytes ||
      std::chrono::steady_clock::now() - written_ >= longest_unwritten) {
    write();
  }
}

void TraceFile::finish(std::optional<std::size_t> rank) {
  if (!file_.is_open()) return;
  buffer_ += "\n]\n";
  write();
  if (!file_.is_open()) return;
  file_.close();
  const std::string name = name_for(path_, rank);
  if (std::rename(part_.c_str(), name.c_str()) != 0) give_up(name, errno);
}

std::string TraceFile::name_for(std::string_view path, std::optional<std::size_t> rank) {
  if (!rank) return std::string(path);
  const std::size_t slash = path.rfind('/');
  const std::size_t first = slash == std::string_view::npos ? 0 : slash + 1;
  std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || dot <= first) dot = path.size();
  return fmt::format("{}.{}{}", path.substr(0, dot), *rank, path.substr(dot));
}

void TraceFile::write() {
  if (patient_write(file_.number(), buffer_, trace_patience) < buffer_.size()) give_up(part_, errno);
  buffer_.clear();
  written_ = std::chrono::steady_clock::now();
}

void TraceFile::give_up(std::string_view what, int error) {
  file_.close();
  log_warning(fmt::format("TUTTI_TRACE: the trace ends here, as {} cannot be written: {}", what,
                          std::generic_category().message(error)));
}

}  // namespace tutti::watching
