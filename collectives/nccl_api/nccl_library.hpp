// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tutti::nccl_api {

/// NCCL's own library, which carries the communicators that tutti does not. It is opened when the first one
/// is made, keeps to its own functions from then on, and stays open. Thread-safe.
class NcclLibrary {
 public:
  /// Returns the library, which the first call looks for and opens: the file that `TUTTI_NCCL_FALLBACK` or
  /// `TUTTI_NCCL_LIBRARY` names, else the first of the usual places, which virtual devices do not have. Never
  /// tutti's own. Throws a `Refusal` that says why there is none.
  [[nodiscard]] static const NcclLibrary& get();
  /// Returns whether the library has been opened.
  [[nodiscard]] static bool is_open() noexcept;

  /// Returns the address of a function. Throws a `Refusal` if the library's version does not have it.
  [[nodiscard]] void* find(const char* function) const;
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] int version() const noexcept { return version_; }

 private:
  NcclLibrary();
  /// Opens a file. Returns an empty string, or why it cannot be used.
  [[nodiscard]] std::string open(const std::string& path);

  void* handle_ = nullptr;
  std::string path_;
  std::string problem_;  ///< empty if the library is open
  int version_ = 0;
};

/// Returns "2.32.3" for the number that stands for this version.
[[nodiscard]] std::string version_text(int version);

}  // namespace tutti::nccl_api
