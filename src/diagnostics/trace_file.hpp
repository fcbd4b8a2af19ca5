// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/part_file.hpp"
#include "os/descriptor.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::watching {

/// A list of JSON objects in a file, as viewers of traces read it. It is a part file (see files::PartFile)
/// until it is finished, so that processes that are given one path do not meet, and a whole list whenever
/// objects have been written: whatever ends the process, it can be read. Where the path is a stream (see
/// files::Place), objects go there as they come. Not thread-safe.
class TraceFile {
 public:
  /// Begins the list with an object. "%p" in the path is the process's number; a relative path stays in the
  /// folder that the process is in now. Throws std::system_error.
  TraceFile(std::string path, std::string_view first);

  /// Adds an object, which the next `write` writes.
  void add(std::string_view object);
  /// Writes what has been added. What the system does not take is lost, with a warning, and all that follows.
  void write();
  /// Names the file by a rank of the process's from now on, unless it is a stream.
  void name_by_rank(std::size_t rank);
  /// Gives the file its place. Nothing is added afterwards.
  void finish();

  /// What the file of a path and a rank is called: a dot and the rank come before the last suffix.
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
