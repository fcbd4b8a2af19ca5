// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/descriptor.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::watching {

/// A list of JSON objects in a file, as viewers of traces read it. Until it is finished the file's name ends
/// in the process's number and "part", so that processes that are given one path do not meet. Not
/// thread-safe.
class TraceFile {
 public:
  /// Begins the list with an object. "%p" in the path is the process's number. Throws std::system_error.
  TraceFile(std::string path, std::string_view first);

  /// Adds an object. What the system does not take is lost, with a warning, and all that follows.
  void add(std::string_view object);
  /// Ends the list, and gives the file its name: the path, for ranks with a dot and the number of the rank
  /// before its last suffix. Nothing is added afterwards.
  void finish(std::optional<std::size_t> rank);

  /// What the file of a path and a rank is called.
  [[nodiscard]] static std::string name_for(std::string_view path, std::optional<std::size_t> rank);

 private:
  void write();
  void give_up(std::string_view what, int error);

  std::string path_;
  std::string part_;  ///< the name until the end
  Descriptor file_;
  std::string buffer_;
  std::chrono::steady_clock::time_point written_ = std::chrono::steady_clock::now();
};

}  // namespace tutti::watching
