// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tutti::transport::nccl {

/// A file of NCCL's that has been opened and stays open, or the reason why it cannot be used.
struct OpenedLibrary {
  void* handle = nullptr;  ///< for `dlsym`
  std::string problem{};   ///< empty if the library is open
};

/// Opens NCCL's library for calls from here alone. NCCL calls functions of its own by names that
/// libtutti_nccl.so may have taken, which would refuse NCCL's communicators: from now on such calls find
/// NCCL's, also if the program has loaded the file before. Thread-safe; costs one look at each of the file's
/// relocations.
[[nodiscard]] OpenedLibrary open_library(const std::string& path);

}  // namespace tutti::transport::nccl
