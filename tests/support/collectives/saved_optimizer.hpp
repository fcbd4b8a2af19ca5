// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// A path in the temporary folder, whose file and parts are removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  [[nodiscard]] std::string path() const { return folder_ / "state"; }
  [[nodiscard]] std::vector<char> read() const;
  void write(const std::vector<char>& bytes) const;
  /// Returns whether there is nothing beside the file.
  [[nodiscard]] bool is_alone() const;

 private:
  std::filesystem::path folder_;
};

/// Returns a parameter list for each local member, all with the same values.
[[nodiscard]] std::vector<std::vector<Tensor>> saved_parameters(const Communicator& communicator);
/// Returns options with two state tensors of float64.
[[nodiscard]] ShardedOptimizerOptions saved_options();
/// Gives each element of parameters and state, without the padding at the end, a number that depends on
/// `seed` and its place alone.
void fill_by_place(const ShardedOptimizer& optimizer, std::uint64_t seed);
/// Checks that parameters, on all local members, and state are as `fill_by_place` left them.
[[nodiscard]] testing::AssertionResult is_filled_by_place(const ShardedOptimizer& optimizer,
                                                          std::uint64_t seed);

}  // namespace tutti::test
