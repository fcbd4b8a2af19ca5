// SPDX-License-Identifier: Apache-2.0
#include "files/part_file.hpp"

#include "os/write_with_deadline.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace tutti::files {
namespace {

/// Calls `make` with one name beside the place after another, until there is no such file yet.
template <class Make>
bool find_name(const Place& place, const Make& make) {
  constexpr int most_names = 1000;
  const std::string start = place.target() + "." + std::to_string(getpid());
  for (int i = 1; i <= most_names; ++i) {
    const std::string number = i == 1 ? "" : "-" + std::to_string(i);
    if (make(start + number + ".part")) return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

/// Flushes the file to the disk. Some file systems cannot, which is no failure.
bool have_on_disk(const Descriptor& file) {
  return fsync(file.number()) == 0 || errno == EINVAL || errno == ENOTSUP;
}

/// Gives the file the older one's owner, group and permissions, so that the same users can read and write it,
/// and nobody else. Returns false if that is not possible.
bool resemble(const Descriptor& file, const struct stat& before) {
  struct stat now {};
  if (fstat(file.number(), &now) != 0) return false;
  const bool is_owned_alike = now.st_uid == before.st_uid && now.st_gid == before.st_gid;
  if (!is_owned_alike && fchown(file.number(), before.st_uid, before.st_gid) != 0) return false;
  static_cast<void>(fremovexattr(file.number(), "system.posix_acl_access"));  // the folder's, if it has one
  return fchmod(file.number(), before.st_mode & 0777U) == 0;
}

}  // namespace

PartFile::PartFile(const Place& place) {
  // Nobody may read data that only the older file's readers may.
  const mode_t permissions = place.status() ? 0600 : 0666;
  find_name(place, [&](const std::string& name) {
    file_ = Descriptor(open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, permissions));
    path_ = name;
    return file_.is_open();
  });
}

PartFile::~PartFile() {
  if (is_open()) unlink(path_.c_str());
}

void PartFile::swap(PartFile& other) noexcept {
  path_.swap(other.path_);
  std::swap(file_, other.file_);
}

bool PartFile::write(std::size_t start, std::string_view text) const noexcept {
  rlimit longest{};
  if (getrlimit(RLIMIT_FSIZE, &longest) == 0 && start + text.size() > longest.rlim_cur) {
    errno = EFBIG;
    return false;
  }
  while (!text.empty()) {
    const ssize_t count = pwrite(file_.number(), text.data(), text.size(), static_cast<off_t>(start));
    if (count < 0 && errno != EINTR) return false;
    if (count <= 0) continue;
    text.remove_prefix(static_cast<std::size_t>(count));
    start += static_cast<std::size_t>(count);
  }
  return true;
}

void PartFile::cut(std::size_t size) const noexcept {
  static_cast<void>(ftruncate(file_.number(), static_cast<off_t>(size)) == 0);
}

void PartFile::move_beside(const Place& place) {
  find_name(place, [&](const std::string& name) {
    const int status = renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, name.c_str(), RENAME_NOREPLACE);
    if (status == 0) path_ = name;
    return status == 0;
  });
}

bool PartFile::deliver(const Place& place, std::chrono::milliseconds patience) {
  if (!have_on_disk(file_)) return false;
  if (!take(place)) {
    if (!copy_to(place, patience)) return false;
    unlink(path_.c_str());
  }
  file_.close();
  return true;
}

bool PartFile::replace(const Place& place) {
  if (!have_on_disk(file_) || !take(place)) return false;
  file_.close();
  return true;
}

bool PartFile::take(const Place& place) {
  if (!place.may_be_replaced()) return false;
  if (place.status() && !resemble(file_, *place.status())) return false;
  return std::rename(path_.c_str(), place.target().c_str()) == 0;
}

bool PartFile::copy_to(const Place& place, std::chrono::milliseconds patience) const {
  const Descriptor there = place.open_where_it_is(patience);
  if (!there.is_open() || !empty(there)) return false;
  std::array<char, std::size_t{1} << 16U> piece{};
  for (off_t done = 0;;) {
    const ssize_t count = pread(file_.number(), piece.data(), piece.size(), done);
    if (count <= 0) return count == 0;
    const std::string_view text(piece.data(), static_cast<std::size_t>(count));
    if (write_with_deadline(there.number(), text, patience) != text.size()) return false;
    done += count;
  }
}

}  // namespace tutti::files
