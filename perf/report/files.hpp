// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

namespace tutti::files {
class WholeFile;
}

/// Reads and writes files that the command line names.
namespace tutti::perf {

/// Reads a regular file of at most 64 MiB that the command line names. A pipe, a device or a folder is
/// neither read nor waited for. If it cannot be read, throws UsageError "<refusal>: <reason>".
[[nodiscard]] std::string read_named_file(const std::string& name, const std::string& refusal);

/// A file that is written at the end of a run, by the library's rule for files (files::Place). A file that
/// cannot be written is reported before the run, so that the run is not lost.
class ResultFile {
 public:
  /// Checks the file that `option` names; an empty name means no file. Throws UsageError if it cannot be
  /// written.
  ResultFile(std::string option, std::string name);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  [[nodiscard]] bool is_wanted() const noexcept { return file_ != nullptr; }
  /// Writes the file. Throws std::runtime_error, for instance if the disk is full by now.
  void write(const std::string& text);

 private:
  std::string option_;
  std::string name_;
  std::unique_ptr<files::WholeFile> file_;
};

}  // namespace tutti::perf
