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
  /// What cannot be written to a full disk is no reason to stop measuring. A reader that stops reading holds
  /// a run up, but not its end: after an interrupt it is waited for no longer than a moment.
  void print(const std::string& text) const;
  /// Something could not be written, and nobody would have read it: `head` has seen enough.
  [[nodiscard]] bool has_lost_its_reader() const noexcept { return has_lost_its_reader_; }
  /// Something could not be written for another reason.
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_; }
  /// On the standard error stream, as a line of this program.
  void complain(const std::string& text) const;

 private:
  bool speaks_;
  std::string program_;
  mutable bool is_broken_ = false;
  mutable bool has_lost_its_reader_ = false;
  mutable bool has_given_up_ = false;  ///< nobody has read after an interrupt
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
