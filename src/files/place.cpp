// SPDX-License-Identifier: Apache-2.0
#include "files/place.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace tutti::files {
namespace {

bool is_same(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// The standard output or standard error that is this file; -1 if none is.
int standard_stream(const struct stat& file) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat status {};
    if (fstat(stream, &status) == 0 && is_same(status, file)) return stream;
  }
  return -1;
}

bool is_stream(const struct stat& file) {
  return !S_ISREG(file.st_mode) || standard_stream(file) >= 0;
}

/// Nobody may write to such a file. The system lets root write to it all the same.
bool is_read_only(const struct stat& file) {
  return S_ISREG(file.st_mode) && (file.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) == 0;
}

bool has_access_control_list(const std::string& path) {
  return getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0;
}

}  // namespace

Place::Place(std::string path) : path_(std::move(path)), target_(path_) {
  struct stat named {};
  if (lstat(path_.c_str(), &named) != 0) {
    may_be_replaced_ = errno == ENOENT;  // by the first file of the name
    return;
  }
  if (S_ISLNK(named.st_mode)) {
    follow_links();
  } else {
    status_ = named;
  }
  if (!status_) return;
  is_stream_ = files::is_stream(*status_);
  may_be_written_ = !is_read_only(*status_) && faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) == 0;
  may_be_replaced_ = may_be_written_ && !is_stream_ && status_->st_nlink == 1 && !target_.empty() &&
                     !has_access_control_list(target_);
}

/// The system follows them, as it does when it opens a file: it refuses links that others have laid in shared
/// folders. The target is empty if it cannot be named.
void Place::follow_links() {
  const Descriptor file(open(path_.c_str(), O_PATH | O_CLOEXEC));
  struct stat found {};
  if (!file.is_open() || fstat(file.number(), &found) != 0) return;
  status_ = found;
  const std::string link = "/proc/self/fd/" + std::to_string(file.number());
  std::array<char, PATH_MAX> name{};
  const ssize_t length = readlink(link.c_str(), name.data(), name.size());
  target_.assign(name.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
  struct stat there {};
  if (lstat(target_.c_str(), &there) != 0 || !is_same(there, found)) target_.clear();
}

Descriptor Place::open_where_it_is(std::chrono::milliseconds patience) const {
  // Opened anew, a file would be written from its beginning, over what is printed.
  const int stream = status_ ? standard_stream(*status_) : -1;
  if (stream >= 0) return Descriptor(fcntl(stream, F_DUPFD_CLOEXEC, 0));
  if (status_ && is_read_only(*status_)) {
    errno = EACCES;
    return {};
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    constexpr int flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    Descriptor file(open(path_.c_str(), flags, 0666));
    const bool lacks_reader = !file.is_open() && errno == ENXIO && status_ && S_ISFIFO(status_->st_mode);
    if (!lacks_reader || std::chrono::steady_clock::now() >= deadline) return file;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool empty(const Descriptor& file) {
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return false;
  return is_stream(status) || ftruncate(file.number(), 0) == 0;
}

}  // namespace tutti::files
