// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

namespace tutti::perf {

/// Says why a file was not read, such as "Permission denied".
struct NotRead {
  std::string reason;
};

/// Reads a file that the command line names: a regular one of at most 64 MiB. A pipe, a device or a folder is
/// not read and not waited for.
[[nodiscard]] std::variant<std::string, NotRead> read_named_file(const std::string& name);

}  // namespace tutti::perf
