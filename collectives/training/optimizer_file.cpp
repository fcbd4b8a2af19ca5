// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/optimizer_file.hpp"

#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti::collectives {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view magic = "TUTTIOPT";
constexpr std::uint32_t version = 1;
constexpr std::size_t word_bytes = sizeof(std::uint64_t);
/// The most bytes of a header, all of which are read at once: those of some million parameters.
constexpr std::uint64_t most_header_bytes = std::uint64_t{1} << 28U;

/// The beginning of the header.
struct Prologue {
  char magic[8];
  std::uint32_t version;
  std::uint32_t parameter_dtype;
  std::uint32_t state_dtype;
  std::uint32_t state_count;
  std::uint64_t parameters;
  std::uint64_t elements;
  std::uint64_t header_bytes;
  std::uint64_t extra_bytes;
};
static_assert(sizeof(Prologue) == 56);

/// A bijection of the word for each place.
std::uint64_t hash_of(std::uint64_t place, std::uint64_t word) noexcept {
  std::uint64_t hash = (word ^ (place + 1) * 0x9e3779b97f4a7c15U) * 0xff51afd7ed558ccdU;
  hash = (hash ^ hash >> 32U) * 0xc4ceb9fe1a85ec53U;
  return hash ^ hash >> 29U;
}

std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept {
  WordChecksum checksum;
  checksum.add(0, bytes);
  return checksum.value();
}

void append(std::string& text, const void* data, std::size_t bytes) {
  text.append(static_cast<const char*>(data), bytes);
}

void append(std::string& text, std::uint64_t number) {
  append(text, &number, sizeof(number));
}

/// The sizes of all parameters, as the header has them.
std::string sizes_in_header(const OptimizerLayout& layout) {
  std::string text;
  for (const std::vector<std::int64_t>& sizes : layout.sizes) {
    append(text, std::uint64_t{sizes.size()});
    for (const std::int64_t size : sizes) append(text, static_cast<std::uint64_t>(size));
  }
  return text;
}

std::string header_of(const OptimizerLayout& layout, std::string_view extra) {
  std::string rest = sizes_in_header(layout);
  rest += extra;
  rest.resize((rest.size() + word_bytes - 1) / word_bytes * word_bytes, '\0');
  Prologue prologue{};
  std::memcpy(prologue.magic, magic.data(), magic.size());
  prologue.version = version;
  prologue.parameter_dtype = static_cast<std::uint32_t>(layout.parameter_dtype);
  prologue.state_dtype = static_cast<std::uint32_t>(layout.state_dtype);
  prologue.state_count = layout.state_count;
  prologue.parameters = layout.sizes.size();
  prologue.elements = static_cast<std::uint64_t>(layout.elements);
  prologue.header_bytes = sizeof(prologue) + rest.size() + word_bytes;
  prologue.extra_bytes = extra.size();
  std::string header;
  append(header, &prologue, sizeof(prologue));
  header += rest;
  append(header, checksum_of(std::as_bytes(std::span(header))));
  return header;
}

/// Element types by number, as in files; other numbers may be in broken or newer ones.
std::string dtype_in_words(std::uint32_t number) {
  if (number < all_dtypes.size()) return std::string(name_of(static_cast<DType>(number)));
  return fmt::format("element type {}", number);
}

std::string system_reason(int error) {
  return std::generic_category().message(error);
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads one parameter's sizes, and moves `words` behind them. Empty if there are not as many numbers.
std::vector<std::int64_t> take_sizes(std::span<const std::byte>& words) {
  const auto take = [&] {
    std::uint64_t number = 0;
    if (words.size() < word_bytes) return number;
    std::memcpy(&number, words.data(), word_bytes);
    words = words.subspan(word_bytes);
    return number;
  };
  std::vector<std::int64_t> sizes(std::min<std::uint64_t>(take(), words.size() / word_bytes));
  for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(take());
  return sizes;
}

}  // namespace

std::uint64_t OptimizerLayout::begin_of_buffer(std::size_t buffer) const noexcept {
  std::uint64_t bytes = 0;
  for (std::size_t b = 0; b < buffer; ++b)
    bytes += static_cast<std::uint64_t>(elements) * size_of(dtype_of_buffer(b));
  return bytes;
}

void WordChecksum::add(std::uint64_t place, std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  const std::uint64_t first = place / word_bytes;
  for (std::size_t i = 0; i < bytes.size() / word_bytes; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i * word_bytes, word_bytes);
    sum += hash_of(first + i, word);
  }
  value_ += sum;
}

void OptimizerFileWriter::require_replaceable(const files::Place& place) {
  if (place.may_be_replaced()) return;
  struct stat named {};
  const int error = lstat(place.path().c_str(), &named) == 0 ? 0 : errno;
  const std::string reason = error != 0 ? system_reason(error)
                                        : "cannot be replaced by a new file, expected a regular file with "
                                          "one name that may be written, or none";
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", place.path(), reason), error);
}

OptimizerFileWriter::OptimizerFileWriter(const std::string& path, const OptimizerLayout& layout,
                                         std::string_view extra)
    : layout_(layout), place_(path) {
  require_replaceable(place_);
  part_ = files::PartFile(place_);
  if (!part_.is_open()) fail();
  const std::string header = header_of(layout, extra);
  header_bytes_ = header.size();
  if (header_bytes_ > most_header_bytes) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} parameters make a header of {} bytes, expected {} at most", path,
                            layout.sizes.size(), header_bytes_, most_header_bytes));
  }
  if (!part_.write(0, header)) fail();
}

void OptimizerFileWriter::fail() const {
  const int error = errno;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", place_.path(), system_reason(error)), error);
}

void OptimizerFileWriter::write(std::size_t buffer, std::int64_t begin, std::span<const std::byte> bytes) {
  const std::uint64_t place = layout_.begin_of_buffer(buffer) +
                              static_cast<std::uint64_t>(begin) * size_of(layout_.dtype_of_buffer(buffer));
  checksum_.add(place, bytes);
  if (!part_.write(header_bytes_ + place, text_of(bytes))) fail();
}

void OptimizerFileWriter::deliver() {
  const std::uint64_t sum = checksum_.value();
  const std::uint64_t place = header_bytes_ + layout_.begin_of_buffer(layout_.buffers());
  if (!part_.write(place, text_of(std::as_bytes(std::span(&sum, 1))))) fail();
  const files::Place now(place_.path());  // what is there may have changed since
  require_replaceable(now);
  if (!part_.replace(now)) fail();
}

template <class... Values>
void OptimizerFileReader::fail(const char* format, const Values&... values) const {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {}", path_, fmt::format(fmt::runtime(format), values...)));
}

OptimizerFileReader::OptimizerFileReader(std::string path, const OptimizerLayout& expected)
    : path_(std::move(path)),
      expected_(expected),
      file_(Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))) {
  struct stat status {};
  if (!file_.is_open() || fstat(file_.number(), &status) != 0) fail("{}", system_reason(errno));
  if (!S_ISREG(status.st_mode)) fail("is not a regular file, expected an optimiser's state");
  file_bytes_ = static_cast<std::uint64_t>(status.st_size);
  read_header();
  const std::uint64_t bytes = header_bytes_ + this->bytes() + word_bytes;
  if (file_bytes_ != bytes) fail("has {} bytes, expected {}", file_bytes_, bytes);
}

void OptimizerFileReader::read_at(std::uint64_t place, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(place));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("{}", system_reason(errno));
    if (count == 0) fail("ends at byte {}, expected {} more", place, bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    place += static_cast<std::uint64_t>(count);
  }
}

void OptimizerFileReader::read_header() {
  Prologue prologue{};
  if (file_bytes_ < sizeof(prologue))
    fail("has {} bytes, expected at least the {} of a header", file_bytes_, sizeof(prologue));
  read_at(0, std::as_writable_bytes(std::span(&prologue, 1)));
  if (std::string_view(prologue.magic, magic.size()) != magic)
    fail("does not begin with \"{}\", expected an optimiser's state", magic);
  if (prologue.version != version) fail("has version {}, expected {}", prologue.version, version);
  const std::uint64_t least = sizeof(prologue) + word_bytes;
  if (prologue.header_bytes < least || prologue.header_bytes > std::min(file_bytes_, most_header_bytes) ||
      prologue.header_bytes % word_bytes != 0 ||
      prologue.extra_bytes > std::min<std::uint64_t>(prologue.header_bytes - least, most_extra_bytes))
    fail("has a header of {} bytes in a file of {}, expected a valid one", prologue.header_bytes,
         file_bytes_);
  header_bytes_ = prologue.header_bytes;
  std::vector<std::byte> header(header_bytes_);
  read_at(0, header);
  const auto [body, stored] =
      std::pair(std::span(header).first(header.size() - word_bytes), std::span(header).last(word_bytes));
  std::uint64_t sum = 0;
  std::memcpy(&sum, stored.data(), word_bytes);
  if (checksum_of(body) != sum)
    fail("has a header of checksum {:016x}, expected {:016x}: it is damaged", checksum_of(body), sum);
  require_layout(body);
  const std::size_t sizes_bytes = sizes_in_header(expected_).size();
  if (sizeof(prologue) + sizes_bytes + prologue.extra_bytes > body.size())
    fail("has a header of {} bytes, expected more", header_bytes_);
  extra_ = text_of(body.subspan(sizeof(prologue) + sizes_bytes, prologue.extra_bytes));
}

void OptimizerFileReader::require_layout(std::span<const std::byte> header) const {
  Prologue found{};
  std::memcpy(&found, header.data(), sizeof(found));
  const auto dtype = [&](const char* what, std::uint32_t number, DType expected) {
    if (number != static_cast<std::uint32_t>(expected))
      fail("has {} of {}, expected {}", what, dtype_in_words(number), name_of(expected));
  };
  dtype("parameters", found.parameter_dtype, expected_.parameter_dtype);
  if (found.state_count != expected_.state_count)
    fail("has {} state tensors, expected {}", found.state_count, expected_.state_count);
  if (expected_.state_count != 0) dtype("state", found.state_dtype, expected_.state_dtype);
  if (found.parameters != expected_.sizes.size())
    fail("has {} parameters, expected {}", found.parameters, expected_.sizes.size());
  std::span<const std::byte> words = header.subspan(sizeof(found));
  for (std::size_t t = 0; t < expected_.sizes.size(); ++t) {
    const std::vector<std::int64_t> sizes = take_sizes(words);
    if (sizes != expected_.sizes[t])
      fail("has parameter {} of sizes {}, expected {}", t, to_string(sizes), to_string(expected_.sizes[t]));
  }
  if (found.elements != static_cast<std::uint64_t>(expected_.elements))
    fail("has buffers of {} elements, expected {}", found.elements, expected_.elements);
}

void OptimizerFileReader::check(std::uint64_t begin, std::uint64_t length) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(length, std::uint64_t{1} << 20U));
  for (std::uint64_t done = 0; done < length; done += piece.size()) {
    piece.resize(std::min<std::uint64_t>(piece.size(), length - done));
    read_at(header_bytes_ + begin + done, piece);
    checksum_.add(begin + done, piece);
  }
}

void OptimizerFileReader::check_sum() {
  std::uint64_t sum = 0;
  read_at(header_bytes_ + bytes(), std::as_writable_bytes(std::span(&sum, 1)));
  const std::uint64_t found = std::exchange(checksum_, {}).value();
  if (found != sum) fail("has data of checksum {:016x}, expected {:016x}: it is damaged", found, sum);
}

void OptimizerFileReader::read(std::size_t buffer, std::int64_t begin, std::span<std::byte> bytes) {
  const std::uint64_t place = expected_.begin_of_buffer(buffer) +
                              static_cast<std::uint64_t>(begin) * size_of(expected_.dtype_of_buffer(buffer));
  read_at(header_bytes_ + place, bytes);
  checksum_.add(place, bytes);
}

}  // namespace tutti::collectives
