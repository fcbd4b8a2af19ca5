// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/part_file.hpp"
#include "files/place.hpp"
#include "os/descriptor.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Files with the state of a `ShardedOptimizer`.
///
/// A file has a header, then the flat buffer of parameters and those of the state, without the padding at
/// their end, then the checksum of the buffers. Numbers are little-endian. The header:
///
///     8 bytes  "TUTTIOPT"
///     u32      version, 1
///     u32 x 3  element types of parameters and state (`DType`), number of state tensors
///     u64 x 4  number of parameters, elements of a buffer, bytes of the header, bytes of `extra`
///     u64 ...  for each parameter: its number of dimensions and its sizes
///     bytes    `extra`, zeros up to a multiple of 8
///     u64      checksum of the header before it
///
/// Nothing in it depends on the number of members.
namespace tutti::collectives {

/// The most bytes of `extra`.
inline constexpr std::size_t most_extra_bytes = 4096;

/// Describes the buffers in a file.
struct OptimizerLayout {
  DType parameter_dtype = DType::float32;
  DType state_dtype = DType::float32;
  std::uint32_t state_count = 0;
  std::int64_t elements = 0;  ///< of each buffer, without the padding at its end; a multiple of 16
  std::vector<std::vector<std::int64_t>> sizes;  ///< of the parameters

  [[nodiscard]] std::size_t buffers() const noexcept { return 1 + std::size_t{state_count}; }
  [[nodiscard]] DType dtype_of_buffer(std::size_t buffer) const noexcept {
    return buffer == 0 ? parameter_dtype : state_dtype;
  }
  /// Returns where a buffer begins behind the header, in bytes; for the number of buffers, where all end.
  [[nodiscard]] std::uint64_t begin_of_buffer(std::size_t buffer) const noexcept;
};

/// A checksum of words of 8 bytes and their places, which may be added in any order. A single wrong word
/// always changes it.
class WordChecksum {
 public:
  /// Adds bytes at `place`; both the place and the number of bytes are multiples of 8.
  void add(std::uint64_t place, std::span<const std::byte> bytes) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// Writes a file, which takes its place only when it is complete. Throws Error(invalid_argument) whose text
/// is the path and the system's reason.
class OptimizerFileWriter {
 public:
  OptimizerFileWriter(const std::string& path, const OptimizerLayout& layout, std::string_view extra);

  /// Writes elements of a buffer, from the element `begin` on.
  void write(std::size_t buffer, std::int64_t begin, std::span<const std::byte> bytes);
  void deliver();

 private:
  static void require_replaceable(const files::Place& place);
  /// Throws with `errno`.
  [[noreturn]] void fail() const;

  OptimizerLayout layout_;
  files::Place place_;
  files::PartFile part_;
  std::uint64_t header_bytes_ = 0;
  WordChecksum checksum_;
};

/// Reads a file. Throws Error(invalid_argument) whose text is the path, what was found and what is expected.
class OptimizerFileReader {
 public:
  /// Reads the header, and checks it, the length of the file, and that its buffers are those of `expected`.
  OptimizerFileReader(std::string path, const OptimizerLayout& expected);

  [[nodiscard]] const std::string& extra() const noexcept { return extra_; }
  /// Returns the bytes of all buffers.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return expected_.begin_of_buffer(expected_.buffers());
  }
  /// Reads `length` bytes of the buffers from `begin` on, multiples of 8, into the checksum only.
  void check(std::uint64_t begin, std::uint64_t length);
  /// Checks that what has been read since the last call, all buffers, has the file's checksum.
  void check_sum();
  /// Reads elements of a buffer, from the element `begin` on.
  void read(std::size_t buffer, std::int64_t begin, std::span<std::byte> bytes);

 private:
  void read_at(std::uint64_t place, std::span<std::byte> bytes) const;
  void read_header();
  void require_layout(std::span<const std::byte> header) const;
  template <class... Values>
  [[noreturn]] void fail(const char* format, const Values&... values) const;

  std::string path_;
  OptimizerLayout expected_;
  Descriptor file_;
  std::string extra_;
  std::uint64_t header_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;
  WordChecksum checksum_;
};

}  // namespace tutti::collectives
