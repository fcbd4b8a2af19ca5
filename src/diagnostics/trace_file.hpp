// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/part_file.hpp"
#include "os/descriptor.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::watching {

/// Writes a list of JSON objects to a file, in the form that trace viewers read. It is a part file (see
/// files::PartFile) until it is finished, so that processes with the same path do not collide, and it is a
/// complete list after each write, so that it can be read however the process ends. If the path is a stream
/// (see files::Place), objects go there as they come. Not thread-safe.
class TraceFile {
 public:
  /// Begins the list with an object. "%p" in the path is replaced by the process's number; a relative path
  /// stays in the current folder of this moment. Throws std::system_error.
  TraceFile(std::string path, std::string_view first);

  /// Adds an object for the next `write`.
  void add(std::string_view object);
  /// Writes what has been added. If the system refuses it, it is lost with all that follows, and a warning is
  /// logged.
  void write();
  /// Names the file by the process's rank from now on, unless it is a stream.
  void name_by_rank(std::size_t rank);
  /// Moves the file to its final place. Nothing may be added afterwards.
  void finish();

  /// Returns the file name for a path and a rank: a dot and the rank are inserted before the last suffix.
  [[nodiscard]] static std::string name_for(std::string_view path, std::size_t rank);

 private:
  void open_where_it_is(const files::Place& place);
  [[nodiscard]] bool is_open() const noexcept { return part_.is_open() || where_it_is_.is_open(); }
  [[nodiscard]] bool write_to_part();
  void give_up(std::string_view what, int error);

  std::string path_;
  files::PartFile part_;
  Descriptor where_it_is_;  ///< open where there is no part file
  std::string unwritten_;
  std::size_t size_ = 0;  ///< of the part file, with the list's end
};

}  // namespace tutti::watching
