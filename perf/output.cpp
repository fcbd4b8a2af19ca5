// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include "interrupt.hpp"
#include "usage_error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

using namespace std::chrono_literals;

/// Whoever has stopped reading is waited for so long once the run is to end.
constexpr std::chrono::milliseconds last_patience = 500ms;
/// Pipes that have any room take so much at once, and terminals most of it.
constexpr std::size_t piece = 256;

/// Whether something can be written, now or when somebody reads; false, with EAGAIN, if an interrupt has come
/// meanwhile, and nobody has.
bool wait_for_room(int file) {
  for (;;) {
    pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
    const int found = poll(&room, 1, 100);
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
    const auto since = time_since_interrupt();
    if (since && *since > last_patience) {
      errno = EAGAIN;
      return false;
    }
  }
}

/// False, with the reason in `errno`.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    if (!wait_for_room(file)) return false;
    const ssize_t written = ::write(file, text.data(), std::min(text.size(), piece));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool is_file(const std::string& name) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(name, unknown);
}

/// Whether what is printed goes there, as to /dev/stdout.
bool is_ours_already(const std::string& name) {
  struct stat file {};
  struct stat printed {};
  if (stat(name.c_str(), &file) != 0) return false;
  return std::ranges::any_of(std::array{STDOUT_FILENO, STDERR_FILENO}, [&](int ours) {
    return fstat(ours, &printed) == 0 && printed.st_dev == file.st_dev && printed.st_ino == file.st_ino;
  });
}

std::string reason_of_last_failure() {
  return errno == 0 ? "" : fmt::format(": {}", std::generic_category().message(errno));
}

/// A file beside another, until it takes its place.
class FileBeside {
 public:
  explicit FileBeside(const std::string& name) {
    constexpr int tries = 100;
    const std::filesystem::path folder = std::filesystem::path(name).parent_path();
    for (int i = 0; i < tries && (i == 0 || errno == EEXIST) && file_ < 0; ++i) {
      path_ = folder / fmt::format(".tutti-perf-{}-{}", getpid(), i);
      file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  ~FileBeside() {
    if (file_ < 0) return;
    close(file_);
    if (!has_moved_) unlink(path_.c_str());
  }
  [[nodiscard]] bool is_open() const noexcept { return file_ >= 0; }
  /// As a whole, and where it stays, or false with the reason in `errno`.
  [[nodiscard]] bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
    }
    return fsync(file_) == 0 || errno == EINVAL || errno == ENOTSUP;  // as some file systems have none
  }
  /// Those who could read and write what was there before can do so again, as far as may be, and nobody else.
  /// False where it cannot be replaced, as of what is mounted by itself.
  [[nodiscard]] bool take_the_place_of(const std::string& name) {
    struct stat before {};
    if (stat(name.c_str(), &before) == 0) {
      static_cast<void>(fchown(file_, before.st_uid, before.st_gid) == 0);
      static_cast<void>(fchmod(file_, before.st_mode & 0777U) == 0);
    }
    has_moved_ = rename(path_.c_str(), name.c_str()) == 0;
    return has_moved_;
  }

 private:
  std::filesystem::path path_;
  int file_ = -1;
  bool has_moved_ = false;
};

/// Whether a new file may take the place of what has the name, if anything has.
bool may_be_replaced(const std::string& name) {
  struct stat file {};
  if (lstat(name.c_str(), &file) != 0) return true;
  if (stat(name.c_str(), &file) != 0) return false;  // a link to what is not there
  return S_ISREG(file.st_mode) && file.st_nlink == 1 && !is_ours_already(name) &&
         access(name.c_str(), W_OK) == 0;
}

}  // namespace

void Output::print(const std::string& text) const {
  if (!speaks_ || is_broken_ || has_lost_its_reader_ || has_given_up_) return;
  if (std::fflush(stdout) != EOF && write_all(STDOUT_FILENO, text)) return;
  (errno == EPIPE ? has_lost_its_reader_ : errno == EAGAIN ? has_given_up_ : is_broken_) = true;
}

void Output::complain(const std::string& text) const {
  if (speaks_) static_cast<void>(write_all(STDERR_FILENO, fmt::format("{}: {}\n", program_, text)));
}

Progress::Progress(bool speaks) : visible_(speaks && isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) const {
  if (!visible_) return;
  winsize size{};
  // The cursor stays behind the text: a full line would be followed by another.
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  const std::size_t room = is_known ? std::size_t{size.ws_col} - 1 : text.size();
  pollfd terminal{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&terminal, 1, 0) != 1) return;  // nobody sees it
  const std::string line = fmt::format("\r\033[K{}", text.substr(0, room));
  static_cast<void>(::write(STDERR_FILENO, line.data(), std::min(line.size(), piece)) < 0);
}

ResultFile::ResultFile(std::string option, std::string name)
    : option_(std::move(option)), name_(std::move(name)) {
  if (name_.empty()) return;
  const bool was_there = is_file(name_);
  std::error_code failure;
  target_ = was_there ? std::filesystem::canonical(name_, failure).string() : name_;  // a link stays one
  if (failure || !may_be_replaced(name_)) {
    open_where_it_is();
    return;
  }
  errno = 0;
  const FileBeside first(target_);
  if (!first.is_open() && was_there) {
    open_where_it_is();
  } else if (!first.is_open() || !first.write("\n")) {
    throw UsageError(fmt::format("{}: '{}' cannot be written{}", option_, name_, reason_of_last_failure()));
  }
}

void ResultFile::open_where_it_is() {
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
  bool is_written = false;
  if (!file_.is_open()) {
    FileBeside whole(target_);
    const bool is_whole = whole.is_open() && whole.write(text);
    is_written = is_whole && whole.take_the_place_of(target_);
    if (is_whole && !is_written) open_where_it_is();
  }
  if (file_.is_open()) {
    shorten_to(0);
    file_ << text << std::flush;
    is_written = static_cast<bool>(file_);
  }
  if (!is_written) {
    throw std::runtime_error(
        fmt::format("{}: '{}' could not be written{}", option_, name_, reason_of_last_failure()));
  }
}

void ResultFile::shorten_to(std::uintmax_t bytes) {
  std::error_code failure;
  if (is_file(name_) && !is_ours_already(name_)) std::filesystem::resize_file(name_, bytes, failure);
  if (failure)
    throw UsageError(fmt::format("{}: '{}' cannot be written: {}", option_, name_, failure.message()));
}

}  // namespace tutti::perf
