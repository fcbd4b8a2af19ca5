// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

namespace tutti::perf {

/// What people read, of which only rank 0 says anything.
class Output {
 public:
  explicit Output(bool speaks, std::string program = "tutti-perf")
      : speaks_(speaks), program_(std::move(program)) {}
  [[nodiscard]] bool speaks() const noexcept { return speaks_; }
  /// Writes the text. A full disk is no reason to stop measuring: see `is_broken`.
  void print(const std::string& text) const;
  /// Returns true if something could not be written, other than for want of a reader.
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_; }
  /// Writes a line of this program to the standard error stream.
  void complain(const std::string& text) const;

 private:
  bool speaks_;
  std::string program_;
  mutable bool is_closed_ = false;  ///< nothing more can be written
  mutable bool is_broken_ = false;
};

/// Shows what is being measured on the standard error stream, if that is a terminal: in one line of it, of
/// which nothing is left when it is cleared.
class Progress {
 public:
  explicit Progress(bool speaks);
  void show(const std::string& text) const;
  void clear() const { show(""); }

 private:
  bool visible_;
};

}  // namespace tutti::perf
