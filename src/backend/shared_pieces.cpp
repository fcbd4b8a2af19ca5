// SPDX-License-Identifier: Apache-2.0
#include "backend/shared_pieces.hpp"

#include "backend/sealed_words.hpp"
#include "os/descriptor.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <span>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

namespace tutti::backend {
namespace {

/// The words of a handle.
struct PiecesWords {
  static constexpr std::uint64_t mark = 0x7365636569707474;

  std::uint64_t checksum = 0;
  SharedMemory::Handle table;
};
static_assert(sizeof(PiecesWords) <= sizeof(MemoryHandle));

/// The start of the table, which a row for each piece follows.
struct Head {
  std::int64_t device = -1;
  std::uint64_t origin = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t port = 0;
  std::uint64_t count = 0;
};
struct Row {
  std::uint64_t bytes = 0;
  std::uint64_t token = 0;  ///< of the file, at the port; 0: the piece has an opaque handle
  SharedPieces::Opaque opaque{};
};

std::span<Row> rows_in(const SharedMemory& table) noexcept {
  auto* const first = reinterpret_cast<Row*>(table.data() + sizeof(Head));
  return {first, (table.size() - sizeof(Head)) / sizeof(Row)};
}

/// What the program and others of its threads may open meanwhile.
constexpr std::size_t left_to_program = 16;

/// Returns the number of open descriptors; `most` if no other can be opened, and 0 if /proc is closed.
std::size_t count_open(std::size_t most) {
  struct Close {
    void operator()(DIR* folder) const noexcept { closedir(folder); }
  };
  Descriptor listed(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listed.is_open()) return errno == EMFILE ? most : 0;
  const std::unique_ptr<DIR, Close> folder(fdopendir(listed.number()));
  if (folder == nullptr) return 0;
  static_cast<void>(listed.release());  // the listing closes it
  std::size_t entries = 0;
  while (readdir(folder.get()) != nullptr) ++entries;
  constexpr std::size_t others = 3;  // the folder itself, and "." and ".."
  return entries > others ? entries - others : 0;
}

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::peer_unavailable, reason);
}

/// Returns the sum of the pieces' sizes, if the range is within it and it does not overflow.
std::optional<std::uint64_t> total_of(const SharedPieces::Range& range, std::span<const Row> rows) {
  std::uint64_t total = 0;
  for (const Row& row : rows) {
    if (row.bytes == 0 || row.bytes > PTRDIFF_MAX - total) return std::nullopt;
    total += row.bytes;
  }
  if (range.bytes > total || range.offset > total - range.bytes) return std::nullopt;
  return total;
}

}  // namespace

SharedPieces::SharedPieces(const Range& range, std::vector<Piece> pieces, Audience audience)
    : pieces_(std::move(pieces)) {
  try {
    table_ = SharedMemory(sizeof(Head) + pieces_.size() * sizeof(Row));
    port_ = DescriptorPort::get();
    *reinterpret_cast<Head*>(table_.data()) = {.device = range.device,
                                               .origin = static_cast<std::uint64_t>(range.origin),
                                               .offset = range.offset,
                                               .bytes = range.bytes,
                                               .port = port_->address(),
                                               .count = pieces_.size()};
    std::ranges::transform(pieces_, rows_in(table_).begin(), [&](const Piece& piece) {
      const std::uint64_t token = piece.file.is_open() ? port_->offer(piece.file.number(), audience) : 0;
      return Row{.bytes = piece.bytes, .token = token, .opaque = piece.opaque};
    });
    seal(PiecesWords{.table = table_.share(audience)}, handle_.bytes);
  } catch (const std::exception& error) {
    // Nobody knows the tokens of what has been offered so far, which the files' numbers may come to mean.
    if (port_ != nullptr) {
      for (const Piece& piece : pieces_) port_->withdraw(piece.file.number());
    }
    throw Error(ErrorCode::unsupported,
                fmt::format("device {} cannot share {} pieces of memory with other processes: {}",
                            range.device, pieces_.size(), error.what()));
  }
}

SharedPieces::~SharedPieces() {
  for (const Piece& piece : pieces_) {
    if (piece.file.is_open()) port_->withdraw(piece.file.number());
  }
}

std::optional<SharedPieces::Opened> SharedPieces::open(const MemoryHandle& handle) {
  const std::optional<PiecesWords> words = unsealed<PiecesWords>(handle.bytes);
  if (!words) return std::nullopt;
  if (SharedMemory::is_own(words->table)) refuse("the pieces are this process's own");
  if (words->table.bytes < sizeof(Head)) refuse("the handle names a table that cannot be one of pieces");
  const SharedMemory table(words->table);
  const Head head = *reinterpret_cast<const Head*>(table.data());
  Opened opened;
  opened.range = {.device = static_cast<int>(head.device),
                  .origin = static_cast<MemoryOrigin>(head.origin),
                  .offset = head.offset,
                  .bytes = head.bytes};
  const std::span<const Row> rows = rows_in(table);
  const std::optional<std::uint64_t> total = total_of(opened.range, rows);
  if (!total || rows.empty() || head.count != rows.size())
    refuse("the table of pieces is not one, or was changed");
  const auto files = std::ranges::count_if(rows, [](const Row& row) { return row.token != 0; });
  if (const std::string reason = reason_against_descriptors(static_cast<std::size_t>(files)); !reason.empty())
    refuse(reason);
  opened.total_bytes = *total;
  for (const Row& row : rows) {
    Piece& piece = opened.pieces.emplace_back();
    piece.bytes = row.bytes;
    piece.opaque = row.opaque;
    if (row.token != 0) piece.file = DescriptorPort::fetch(head.port, row.token);
  }
  return opened;
}

std::string SharedPieces::reason_against_descriptors(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const std::size_t open = count_open(limit.rlim_cur);
  if (open + count + left_to_program <= limit.rlim_cur) return {};
  return fmt::format(
      "its pieces need {} descriptors, and {} of the {} that this process may have are open, "
      "expected a higher limit (RLIMIT_NOFILE, ulimit -n)",
      count, open, limit.rlim_cur);
}

}  // namespace tutti::backend
