// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <variant>

namespace tutti::files {
class WholeFile;
}

/// Files that the command line names.
namespace tutti::perf {

/// Says why a file was not read, such as "Permission denied".
struct NotRead {
  std::string reason;
};

/// Reads a file that the command line names: a regular one of at most 64 MiB. A pipe, a device or a folder is
/// not read and not waited for.
[[nodiscard]] std::variant<std::string, NotRead> read_named_file(const std::string& name);

/// A file that is written at the end of a run, by the library's rule for files (files::Place). That it cannot
/// be written should not cost the run, and is found out before.
class ResultFile {
 public:
  /// `option` has named it. An empty name: there is none. Throws UsageError where nothing can be written.
  ResultFile(std::string option, std::string name);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  [[nodiscard]] bool is_wanted() const noexcept { return file_ != nullptr; }
  /// Throws std::runtime_error: by now the disk may be full.
  void write(const std::string& text);

 private:
  std::string option_;
  std::string name_;
  std::unique_ptr<files::WholeFile> file_;
};

}  // namespace tutti::perf
