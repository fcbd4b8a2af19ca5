// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/trace_file.hpp"

#include "files/place.hpp"
#include "os/write_with_deadline.hpp"
#include "settings/log.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

namespace tutti::watching {
namespace {

constexpr std::chrono::milliseconds trace_patience{1000};
constexpr std::string_view list_end = "\n]\n";

/// Fills in the process, and the folder that it is in now: it may go to another one.
std::string whole_path(std::string path) {
  constexpr std::string_view mark = "%p";
  for (std::size_t at = 0; (at = path.find(mark, at)) != std::string::npos;)
    path.replace(at, mark.size(), std::to_string(getpid()));
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

bool write_all(int file, std::string_view text) {
  return write_with_deadline(file, text, trace_patience) == text.size();
}

}  // namespace

TraceFile::TraceFile(std::string path, std::string_view first)
    : path_(whole_path(std::move(path))), unwritten_(fmt::format("[\n{}", first)) {
  const files::Place place(path_);
  if (!place.is_stream() && place.may_be_written()) part_ = files::PartFile(place);
  if (!part_.is_open()) open_where_it_is(place);
  write();
}

void TraceFile::open_where_it_is(const files::Place& place) {
  where_it_is_ = place.open_where_it_is(trace_patience);
  if (!where_it_is_.is_open()) throw std::system_error(errno, std::generic_category(), path_);
  // One file is written by one process at a time.
  if (!place.is_stream() && flock(where_it_is_.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw std::system_error(EBUSY, std::generic_category(), path_);
  if (!files::empty(where_it_is_)) throw std::system_error(errno, std::generic_category(), path_);
}

void TraceFile::add(std::string_view object) {
  if (!is_open()) return;
  unwritten_ += ",\n";
  unwritten_ += object;
}

void TraceFile::write() {
  if (!is_open() || unwritten_.empty()) return;
  const bool is_written = part_.is_open() ? write_to_part() : write_all(where_it_is_.number(), unwritten_);
  if (!is_written) give_up(part_.is_open() ? part_.path() : path_, errno);
  unwritten_.clear();
}

bool TraceFile::write_to_part() {
  const std::size_t end = size_ - std::min(size_, list_end.size());
  unwritten_ += list_end;
  if (part_.write(end, unwritten_)) {
    size_ = end + unwritten_.size();
    return true;
  }
  const int error = errno;
  if (part_.write(end, list_end)) part_.cut(size_);
  errno = error;
  return false;
}

void TraceFile::name_by_rank(std::size_t rank) {
  if (!part_.is_open()) return;
  path_ = name_for(path_, rank);
  part_.move_beside(files::Place(path_));
}

void TraceFile::finish() {
  if (!part_.is_open()) unwritten_ += list_end;
  write();
  if (part_.is_open() && !part_.deliver(files::Place(path_), trace_patience)) give_up(path_, errno);
  where_it_is_.close();
}

std::string TraceFile::name_for(std::string_view path, std::size_t rank) {
  const std::size_t slash = path.rfind('/');
  const std::size_t first = slash == std::string_view::npos ? 0 : slash + 1;
  std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || dot <= first) dot = path.size();
  return fmt::format("{}.{}{}", path.substr(0, dot), rank, path.substr(dot));
}

void TraceFile::give_up(std::string_view what, int error) {
  const bool has_begun = part_.is_open() && size_ > 0;
  const std::string rest = has_begun ? fmt::format("; what was written is in {}", part_.path()) : "";
  log_warning(fmt::format("TUTTI_TRACE: the trace ends here, as {} cannot be written: {}{}", what,
                          std::generic_category().message(error), rest));
  if (has_begun) part_.keep();
  part_ = files::PartFile();
  where_it_is_.close();
}

}  // namespace tutti::watching
