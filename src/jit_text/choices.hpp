// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tutti::jit_text {

/// Answers questions that a text alone does not answer, such as what a compiler predefines. A question has
/// the same answer whenever it is asked; `next` moves on to other answers, until all have been tried.
class Choices {
 public:
  static constexpr std::size_t most = 512;  ///< sets of answers

  [[nodiscard]] bool ask(const std::string& question) {
    for (const auto& [known, answer] : answers_) {
      if (known == question) return answer;
    }
    answers_.emplace_back(question, true);
    if (first_.empty()) first_ = question;
    return true;
  }
  /// Moves on to the next set of answers. Returns false if there is none, or there are too many.
  [[nodiscard]] bool next() {
    while (!answers_.empty() && !answers_.back().second) answers_.pop_back();
    if (answers_.empty()) return false;
    answers_.back().second = false;
    return ++given_ < most;
  }
  [[nodiscard]] bool are_too_many() const noexcept { return given_ >= most; }
  /// Returns the first question that was asked; empty if there was none.
  [[nodiscard]] const std::string& first() const noexcept { return first_; }

 private:
  std::vector<std::pair<std::string, bool>> answers_{};
  std::string first_{};
  std::size_t given_ = 0;
};

}  // namespace tutti::jit_text
