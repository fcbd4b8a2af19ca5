// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tutti {

/// Holds the content of a file, or the reason why there is none.
struct FileText {
  std::optional<std::string> text;
  std::string complaint;  ///< empty if there is a text; else for instance "it is no regular file"
};

/// Reads a file that a user names: a regular file of at most 64 MiB. It neither reads from a pipe, a device
/// or a folder, nor waits for it.
[[nodiscard]] FileText read_named_file(const std::string& path);

}  // namespace tutti
