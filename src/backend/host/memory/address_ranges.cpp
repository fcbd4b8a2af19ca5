// SPDX-License-Identifier: Apache-2.0
#include "backend/host/memory/address_space.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

/// Ranges of addresses of virtual devices, which get memory piece by piece.
namespace tutti::backend::host {

std::size_t Pages::end_of_row(std::size_t offset) const {
  auto piece = pieces_.upper_bound(offset);
  if (piece == pieces_.begin()) return offset;
  --piece;
  if (piece->first + piece->second.bytes <= offset) return offset;
  std::size_t end = piece->first + piece->second.bytes;
  while (++piece != pieces_.end() && piece->first == end) end += piece->second.bytes;
  return end;
}

bool Pages::add(std::size_t offset, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto next = pieces_.lower_bound(offset);
  const bool is_before_next = next == pieces_.end() || offset + bytes <= next->first;
  if (!is_before_next || end_of_row(offset) != offset) return false;
  pieces_[offset].bytes = bytes;
  return true;
}

bool Pages::remove(std::size_t offset, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto first = pieces_.find(offset);
  auto last = first;
  std::size_t end = offset;
  for (; last != pieces_.end() && last->first == end && end < offset + bytes; ++last)
    end += last->second.bytes;
  if (end != offset + bytes) return false;
  pieces_.erase(first, last);
  return true;
}

bool Pages::contain(std::size_t offset, std::size_t bytes) const {
  const std::shared_lock lock(mutex_);
  return end_of_row(offset) >= offset + bytes;
}

bool Pages::empty() const {
  const std::shared_lock lock(mutex_);
  return pieces_.empty();
}

Pages::Extent Pages::piece_at(std::size_t offset) const {
  const std::shared_lock lock(mutex_);
  const auto next = pieces_.upper_bound(offset);
  if (next == pieces_.begin()) return {};
  const auto& [begin, piece] = *std::prev(next);
  return offset < begin + piece.bytes ? Extent{begin, piece.bytes, piece.identity} : Extent{};
}

std::optional<std::size_t> Pages::share(std::size_t offset, std::size_t bytes, std::byte* memory,
                                        Audience audience, std::vector<SharedPieces::Piece>& shared) {
  const std::unique_lock lock(mutex_);
  if (bytes == 0 || end_of_row(offset) < offset + bytes) return std::nullopt;
  const auto first = std::prev(pieces_.upper_bound(offset));
  std::size_t files = 0;  // of each piece what is shared stays open, and what is passed on is opened
  for (auto piece = first; piece != pieces_.end() && piece->first < offset + bytes; ++piece)
    files += piece->second.shared.size() == 0 ? std::size_t{2} : std::size_t{1};
  if (const std::string reason = SharedPieces::reason_against_descriptors(files); !reason.empty())
    throw Error(ErrorCode::unsupported, reason);
  for (auto piece = first; piece != pieces_.end() && piece->first < offset + bytes; ++piece) {
    auto& [begin, content] = *piece;
    if (content.shared.size() == 0) {
      SharedMemory copy(content.bytes);
      std::memcpy(copy.data(), memory + begin, content.bytes);
      copy.hand_over_to(memory + begin);
      content.shared = std::move(copy);
    }
    shared.push_back(
        {.bytes = content.bytes, .file = SharedMemory::open_file(content.shared.share(audience))});
  }
  return first->first;
}

void* AddressSpace::reserve(int device, std::size_t bytes) {
  Mapping reservation = map(bytes, Mapping::Protection::none);
  Mapping storage = map(bytes, Mapping::Protection::none);
  if (reservation.address() == nullptr || storage.address() == nullptr) return nullptr;
  const auto made = std::make_shared<Allocation>();
  made->base = reservation.address();
  made->bytes = bytes;
  made->owner = device;
  made->memory = storage.address();
  made->storage = std::move(storage);
  made->pages = std::make_unique<Pages>();
  return insert({made, std::move(reservation)});
}

std::shared_ptr<const Allocation> AddressSpace::range_around(int device, const void* address,
                                                             std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(address);
  std::shared_ptr<const Allocation> range = find(begin);
  const bool is_range = range != nullptr && range->pages != nullptr && range->owner == device;
  return is_range && bytes <= range->bytes - static_cast<std::size_t>(begin - range->base) ? range : nullptr;
}

bool AddressSpace::map_pages(int device, void* address, std::size_t bytes) {
  const auto range = range_around(device, address, bytes);
  if (range == nullptr || !take(device, bytes)) return false;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(address) - range->base);
  if (mprotect(range->memory + offset, bytes, PROT_READ | PROT_WRITE) == 0) {
    if (range->pages->add(offset, bytes)) return true;
  }
  used_[static_cast<std::size_t>(device)] -= bytes;
  return false;
}

bool AddressSpace::unmap_pages(int device, void* address, std::size_t bytes) {
  const auto range = range_around(device, address, bytes);
  if (range == nullptr) return false;
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(address) - range->base);
  if (!range->pages->remove(offset, bytes)) return false;
  // Fresh pages in place of the old ones, which the system takes back.
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  const bool is_gone = mmap(range->memory + offset, bytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
  used_[static_cast<std::size_t>(device)] -= bytes;
  return is_gone;
}

std::optional<AddressSpace::PiecesOfRange> AddressSpace::share_pieces(int device, const void* address,
                                                                      std::size_t bytes, Audience audience) {
  const auto range = range_around(device, address, bytes);
  if (range == nullptr) return std::nullopt;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - range->base);
  Sharing& sharing = range->sharing;
  const std::lock_guard lock(sharing.mutex);
  PiecesOfRange result;
  std::optional<std::size_t> first;
  sharing.uses.exclude();
  try {
    first = range->pages->share(offset, bytes, range->memory, audience, result.pieces);
  } catch (...) {
    sharing.uses.admit();
    throw;
  }
  sharing.uses.admit();
  if (!first) return std::nullopt;
  result.offset = offset - *first;
  return result;
}

void* AddressSpace::insert_opened(int opener, const SharedPieces::Opened& opened) {
  Mapping reservation = map(opened.total_bytes, Mapping::Protection::none);
  Mapping storage = map(opened.total_bytes, Mapping::Protection::none);
  if (reservation.address() == nullptr || storage.address() == nullptr) return nullptr;
  std::size_t begin = 0;
  for (const SharedPieces::Piece& piece : opened.pieces) {
    // A file that is shorter than it should be would end the process at the first touch.
    struct stat status {};
    const bool is_whole = fstat(piece.file.number(), &status) == 0 && S_ISREG(status.st_mode) &&
                          static_cast<std::uint64_t>(status.st_size) >= piece.bytes;
    if (!is_whole) throw Error(ErrorCode::peer_unavailable, "a piece is not memory of a virtual device");
    if (mmap(storage.address() + begin, piece.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             piece.file.number(), 0) == MAP_FAILED) {
      throw Error(ErrorCode::peer_unavailable,
                  fmt::format("a piece of {} bytes cannot be mapped: {}", piece.bytes, std::strerror(errno)),
                  errno);
    }
    begin += piece.bytes;
  }
  const auto made = std::make_shared<Allocation>();
  made->base = reservation.address() + opened.range.offset;
  made->bytes = opened.range.bytes;
  made->owner = opened.range.device;
  made->opener = opener;
  made->memory = storage.address() + opened.range.offset;
  made->storage = std::move(storage);
  return insert({made, std::move(reservation)});
}

bool AddressSpace::release(int device, const void* address) {
  return remove(address, [device](const Allocation& block) {
           return block.owner == device && block.pages != nullptr && block.pages->empty();
         }).allocation != nullptr;
}

}  // namespace tutti::backend::host
