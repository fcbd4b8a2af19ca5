// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

namespace tutti::backend {

/// Labels the work of its thread for as long as it lives: reports about single operations name the whole that
/// they are part of. Costs two stores: the text is made when it is needed. Scopes nest; the innermost counts.
class WorkLabel {
 public:
  using Describe = std::string (*)(const void* subject);

  /// `subject` must outlive the scope.
  WorkLabel(const void* subject, Describe describe) noexcept
      : subject_(subject), describe_(describe), outer_(std::exchange(innermost, this)) {}
  WorkLabel(const WorkLabel&) = delete;
  WorkLabel& operator=(const WorkLabel&) = delete;
  ~WorkLabel() { innermost = outer_; }

  /// Returns the label of the calling thread; empty if there is none.
  [[nodiscard]] static std::string in_words() {
    return innermost == nullptr ? std::string{} : innermost->describe_(innermost->subject_);
  }

 private:
  static inline thread_local constinit const WorkLabel* innermost = nullptr;

  const void* subject_;
  Describe describe_;
  const WorkLabel* outer_;
};

}  // namespace tutti::backend
