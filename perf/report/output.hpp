// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

namespace tutti::perf {

/// Prints text for people, on rank 0 only.
class Output {
 public:
  explicit Output(bool speaks, std::string program = "tutti-perf")
      : speaks_(speaks), program_(std::move(program)) {}
  [[nodiscard]] bool speaks() const noexcept { return speaks_; }
  /// Writes the text. Does not throw if the disk is full, because that should not stop a measurement: see
  /// `is_broken`.
  void print(const std::string& text) const;
  /// Returns true if something could not be written for a reason other than a missing reader.
  [[nodiscard]] bool is_broken() const noexcept { return is_broken_; }
  /// Writes a line of this program to the standard error stream.
  void complain(const std::string& text) const;

 private:
  bool speaks_;
  std::string program_;
  mutable bool is_closed_ = false;  ///< nothing more can be written
  mutable bool is_broken_ = false;
};

/// Returns the exit status of `work`. If it throws, writes a line to the standard error stream, and returns
/// the corresponding status.
[[nodiscard]] int guarded(const Output& output, const std::function<int()>& work);

}  // namespace tutti::perf
