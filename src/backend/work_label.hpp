// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

namespace tutti::backend {

/// Says, for as long as it lives, what the calls of its thread are for: reports about single operations name
/// the whole that they are part of. Costs two stores: words are made when somebody asks. Scopes nest; the
/// innermost counts.
class WorkLabel {
 public:
  using Describe = std::string (*)(const void* subject);

  /// `subject` outlives the scope.
  WorkLabel(const void* subject, Describe describe) noexcept
      : subject_(subject), describe_(describe), outer_(std::exchange(innermost, this)) {}
  WorkLabel(const WorkLabel&) = delete;
  WorkLabel& operator=(const WorkLabel&) = delete;
  ~WorkLabel() { innermost = outer_; }

  /// Of the calling thread; empty if there is none.
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
