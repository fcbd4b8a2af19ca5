// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/folder/box.hpp"

#include "tutti/error.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::shared_folder {
namespace {

constexpr std::string_view part_prefix = ".part-";  // which `names` leaves out, with "." and ".."
constexpr std::size_t reserved_bytes = 1024;
constexpr int folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, "shared_folder: " + reason);
}

tcp::Key tag_of(const tcp::Key& key, std::string_view place, const std::string& name,
                std::span<const std::byte> bytes) {
  // The lengths are fixed by the '/'s, which names do not contain.
  const std::string whole = fmt::format("{}/{}/", place, name);
  return tcp::digest_of(key, {bytes_of(whole), bytes});
}

bool write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

/// Reads `bytes.size()` bytes; false if there are fewer.
bool read_all(int file, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = read(file, bytes.data(), bytes.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

/// The file is gone, or has been replaced while it was opened.
bool is_gone(int error) {
  return error == ENOENT || error == ESTALE;
}

}  // namespace

std::string draw_name() {
  std::array<std::byte, 16> bytes{};
  tcp::draw(bytes);
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

void Box::fail(const std::string& name) const {
  const int error = errno;
  throw Error(ErrorCode::transport_failure,
              fmt::format("shared_folder: {}{}{}: {}", path_, name.empty() ? "" : "/", name,
                          std::generic_category().message(error)),
              error);
}

Box Box::open_shared(const std::string& path) {
  Box box(path, Descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  struct stat status {};
  if (!box.folder_.is_open() || fstat(box.folder_.number(), &status) != 0) box.fail("");
  if (status.st_uid != geteuid() && status.st_uid != 0)
    refuse(fmt::format("{} belongs to user {}, expected {} or root", path, status.st_uid, geteuid()));
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (status.st_mode & S_ISVTX) == 0) {
    refuse(
        fmt::format("{} has permissions {:o}, expected that only its owner can write there, or the sticky "
                    "bit",
                    path, status.st_mode & 07777U));
  }
  return box;
}

void Box::require_own() const {
  struct stat status {};
  if (fstat(folder_.number(), &status) != 0) fail("");
  if (status.st_uid != geteuid())
    refuse(fmt::format("{} belongs to user {}, expected {}", path_, status.st_uid, geteuid()));
  if ((status.st_mode & 0077U) != 0)
    refuse(fmt::format("{} has permissions {:o}, expected 700", path_, status.st_mode & 07777U));
}

Box Box::inner(const std::string& name) const {
  Descriptor folder;
  do {
    if (mkdirat(folder_.number(), name.c_str(), 0700) != 0 && errno != EEXIST) fail(name);
    folder = Descriptor(openat(folder_.number(), name.c_str(), folder_flags));
  } while (!folder.is_open() && is_gone(errno));  // others have just removed it
  Box box(path_ + "/" + name, std::move(folder));
  if (!box.folder_.is_open() && (errno == ENOTDIR || errno == ELOOP))
    refuse(fmt::format("{} is no folder, expected one", box.path_));
  if (!box.folder_.is_open()) box.fail("");
  box.require_own();
  return box;
}

std::optional<Box> Box::existing(const std::string& name) const {
  Descriptor folder(openat(folder_.number(), name.c_str(), folder_flags));
  if (!folder.is_open() && is_gone(errno)) return std::nullopt;
  Box box(path_ + "/" + name, std::move(folder));
  if (!box.folder_.is_open()) box.fail("");
  box.require_own();
  return box;
}

void Box::put(const tcp::Key& key, std::string_view place, const std::string& name,
              std::span<const std::byte> bytes) const {
  const std::string part = std::string(part_prefix) + draw_name();
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  Descriptor file(openat(folder_.number(), part.c_str(), flags, 0600));
  if (!file.is_open()) fail(part);
  const tcp::Key tag = tag_of(key, place, name, bytes);
  bool is_written = write_all(file.number(), tag) && write_all(file.number(), bytes);
  // Closing it is what makes others see it, and may fail.
  is_written = is_written && close(file.release()) == 0;
  if (!is_written || renameat(folder_.number(), part.c_str(), folder_.number(), name.c_str()) != 0) {
    const int reason = errno;
    remove(part);
    errno = reason;
    fail(name);
  }
}

void Box::reserve(const tcp::Key& key, std::string_view place, const std::string& spare) const {
  put(key, place, spare, Bytes(reserved_bytes));
}

void Box::put_by(const std::string& spare, const tcp::Key& key, std::string_view place,
                 const std::string& name, std::span<const std::byte> text) const {
  Bytes bytes(text.begin(), text.end());
  bytes.resize(reserved_bytes);
  Descriptor file(openat(folder_.number(), spare.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open()) fail(spare);
  const tcp::Key tag = tag_of(key, place, name, bytes);
  const bool is_written =
      write_all(file.number(), tag) && write_all(file.number(), bytes) && close(file.release()) == 0;
  if (!is_written || renameat(folder_.number(), spare.c_str(), folder_.number(), name.c_str()) != 0)
    fail(name);
}

Descriptor Box::open_now(const std::string& name) const {
  constexpr int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(openat(folder_.number(), name.c_str(), flags));
  if (file.is_open() || errno != ENOENT) return file;
  const Descriptor anew(openat(folder_.number(), ".", folder_flags));
  return Descriptor(openat(folder_.number(), name.c_str(), flags));
}

std::optional<Bytes> Box::get(const tcp::Key& key, std::string_view place, const std::string& name) const {
  const Descriptor file = open_now(name);
  if (!file.is_open() && is_gone(errno)) return std::nullopt;
  if (!file.is_open() && errno == ELOOP) refuse(fmt::format("{}/{} is a link, expected a file", path_, name));
  struct stat status {};
  if (!file.is_open() || fstat(file.number(), &status) != 0) fail(name);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 0077U) != 0)
    refuse(fmt::format("{}/{} is not a file of user {} with permissions 600", path_, name, geteuid()));
  tcp::Key tag{};
  constexpr std::size_t most_bytes = std::size_t{2} << 30U;
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size < tag.size() || size > most_bytes) return std::nullopt;
  Bytes bytes(size - tag.size());
  if (!read_all(file.number(), tag) || !read_all(file.number(), bytes)) return std::nullopt;
  if (!tcp::are_equal(tag, tag_of(key, place, name, bytes))) return std::nullopt;
  return bytes;
}

bool Box::has(const std::string& name) const {
  // Opened, as a network file system may answer a mere look-up from memory.
  const bool is_there = open_now(name).is_open();
  if (!is_there && !is_gone(errno)) fail(name);
  return is_there;
}

template <class Work>
void Box::for_each_name(const Work& work) const {
  // Opened anew, so that a network file system asks the server.
  Descriptor anew(openat(folder_.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!anew.is_open() && is_gone(errno)) return;
  if (!anew.is_open()) fail("");
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(anew.number()), closedir);
  if (listing == nullptr) fail("");
  static_cast<void>(anew.release());  // the listing closes it
  while (const dirent* const entry = readdir(listing.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") work(name);
  }
}

std::vector<std::string> Box::names() const {
  std::vector<std::string> names;
  for_each_name([&](const std::string& name) {
    if (!name.starts_with('.')) names.push_back(name);
  });
  return names;
}

void Box::remove_parts() const noexcept {
  try {
    for_each_name([&](const std::string& name) {
      if (name.starts_with(part_prefix)) remove_all(name);
    });
  } catch (const std::exception&) {
    // They take up little.
  }
}

void Box::remove(const std::string& name) const noexcept {
  static_cast<void>(unlinkat(folder_.number(), name.c_str(), 0) == 0);
}

void Box::remove_empty(const std::string& name) const noexcept {
  static_cast<void>(unlinkat(folder_.number(), name.c_str(), AT_REMOVEDIR) == 0);
}

void Box::remove_inner(const std::string& name) const noexcept {
  try {
    const std::string hidden = std::string(part_prefix) + draw_name();
    if (renameat(folder_.number(), name.c_str(), folder_.number(), hidden.c_str()) == 0) remove_all(hidden);
  } catch (const std::exception&) {
    // It stays.
  }
}

void Box::remove_all(const std::string& name) const noexcept {
  try {
    if (unlinkat(folder_.number(), name.c_str(), 0) == 0) return;
    const std::optional<Box> box = existing(name);
    if (!box) return;
    box->for_each_name([&](const std::string& each) { box->remove_all(each); });
    remove_empty(name);
  } catch (const std::exception&) {
    // What cannot be removed stays.
  }
}

}  // namespace tutti::shared_folder
