// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstddef>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti {

/// Kinds of failure that an `Error` reports.
enum class ErrorCode {
  invalid_argument,  ///< the caller passed something the contract forbids; nothing was enqueued
  out_of_memory,  ///< memory is exhausted (see `OutOfMemoryError`), or what the system limits: threads, …
  unsupported,    ///< valid, but not available on this backend, build or topology
  peer_unavailable,   ///< another device or process cannot be reached
  device_failure,     ///< work on a device failed, now or earlier (asynchronous failures surface late)
  transport_failure,  ///< a transport's library reported a failure
  timeout,            ///< something did not finish in the time allowed
  aborted,            ///< the operation was abandoned on request
  internal,           ///< a broken invariant of the library itself
};

/// Returns the enumerator's name, for instance "invalid_argument".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(ErrorCode code) noexcept;

/// The one exception type of the library.
///
/// `what()` is one clear message; `native_code()` is the number that the underlying system returned (a
/// `cudaError_t`, an `ncclResult_t`, an `errno`, MPI's error code), 0 where there is none.
class TUTTI_EXPORT Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int native_code = 0,
        std::source_location where = std::source_location::current());

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] int native_code() const noexcept { return native_code_; }
  /// Returns the place in the library's source that raised the error.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  int native_code_;
  std::source_location where_;
};

/// Reports that memory is exhausted. All figures are bytes and describe the device that refused. For pinned
/// memory, `free` and `total` are unknown and 0; for ordinary host memory, only `requested` is known.
class TUTTI_EXPORT OutOfMemoryError : public Error {
 public:
  struct Figures {
    std::size_t requested = 0;  ///< asked for by the failing call
    std::size_t free = 0;       ///< free according to the device
    std::size_t total = 0;      ///< the device's whole memory
    std::size_t reserved = 0;   ///< held by the caching allocator, in use or cached
    std::size_t allocated = 0;  ///< of these, in use
  };

  OutOfMemoryError(const std::string& message, const Figures& figures, int native_code = 0,
                   std::source_location where = std::source_location::current());

  [[nodiscard]] const Figures& figures() const noexcept { return figures_; }

 private:
  Figures figures_;
};

}  // namespace tutti
