// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tutti {

/// The bytes of a file, or why there are none.
struct FileText {
  std::optional<std::string> text;
  std::string complaint;  ///< empty where there is a text, else such as "it is no regular file"
};

/// Reads a file that a user names: a regular one of at most 64 MiB. A pipe, a device or a folder is not read
/// and not waited for.
[[nodiscard]] FileText read_named_file(const std::string& path);

}  // namespace tutti
