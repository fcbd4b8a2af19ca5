// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

/// The state of a training run: all that is needed to go on as if it had not ended.
struct Checkpoint {
  int step = 0;  ///< steps done
  std::vector<float> weights;
  std::vector<float> bias;
};

/// Replaces `file`: whenever a run ends, the file is a whole checkpoint.
void save(const Checkpoint& checkpoint, const std::string& file);
/// Throws std::runtime_error if the file is not there or not whole.
[[nodiscard]] Checkpoint load(const std::string& file);
