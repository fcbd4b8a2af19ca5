// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/saved_optimizer.hpp"

#include "support/values/test_tensor.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <unistd.h>

namespace tutti::test {
namespace {

const std::vector<Sizes> saved_sizes{{7, 33}, {}, {0, 4}, {500}, {1}};

/// Elements of a flat buffer up to the padding at its end.
std::int64_t flat_elements() {
  std::int64_t elements = 0;
  for (const Sizes& sizes : saved_sizes) elements += (element_count(sizes) + 15) / 16 * 16;
  return elements;
}

/// The numbers of a whole buffer of `length` elements.
HostArray saved_numbers(DType dtype, std::int64_t length, std::uint64_t seed) {
  HostArray all = random_numbers(dtype, {flat_elements()}, seed);
  all.bytes.resize(static_cast<std::size_t>(length) * size_of(dtype));
  all.sizes = {length};
  return all;
}

std::int64_t length_of(const ShardedOptimizer& optimizer) {
  return optimizer.flat_parameters(0).numel();
}

/// A shard's part of a buffer.
HostArray part_of(const ParameterShard& shard, const HostArray& whole) {
  return slice(whole, 0, shard.begin, shard.parameters.numel());
}

HostArray saved_state(const ShardedOptimizer& optimizer, std::size_t index, std::uint64_t seed) {
  return saved_numbers(DType::float64, length_of(optimizer), seed * 10 + index + 1);
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& name)
    : folder_(std::filesystem::path(testing::TempDir()) /
              ("tutti-state-" + name + "-" + std::to_string(getpid()))) {
  std::filesystem::create_directory(folder_);
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<char> TemporaryFile::read() const {
  std::ifstream file(path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void TemporaryFile::write(const std::vector<char>& bytes) const {
  std::ofstream file(path(), std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

bool TemporaryFile::is_alone() const {
  return std::ranges::distance(std::filesystem::directory_iterator(folder_)) == 1;
}

std::vector<std::vector<Tensor>> saved_parameters(const Communicator& communicator) {
  std::vector<std::vector<Tensor>> lists;
  for (const Device device : communicator.devices()) {
    lists.emplace_back();
    for (const Sizes& sizes : saved_sizes)
      lists.back().push_back(make_tensor(random_numbers(DType::float32, sizes, 1), device));
  }
  return lists;
}

ShardedOptimizerOptions saved_options() {
  return {.state_count = 2, .state_dtype = DType::float64};
}

void fill_by_place(const ShardedOptimizer& optimizer, std::uint64_t seed) {
  const HostArray parameters = saved_numbers(DType::float32, length_of(optimizer), seed * 10);
  for (const ParameterShard& shard : optimizer.shards()) {
    optimizer.flat_parameters(shard.member).copy_(make_tensor(parameters, Device::host()));
    for (std::size_t i = 0; i < shard.state.size(); ++i)
      shard.state[i].copy_(make_tensor(part_of(shard, saved_state(optimizer, i, seed)), Device::host()));
  }
}

testing::AssertionResult is_filled_by_place(const ShardedOptimizer& optimizer, std::uint64_t seed) {
  const HostArray parameters = saved_numbers(DType::float32, length_of(optimizer), seed * 10);
  for (const ParameterShard& shard : optimizer.shards()) {
    const Device device = shard.parameters.device();
    if (auto result = holds(optimizer.flat_parameters(shard.member), device, parameters); !result)
      return result << " (parameters of local member " << shard.member << ")";
    for (std::size_t i = 0; i < shard.state.size(); ++i) {
      const HostArray expected = part_of(shard, saved_state(optimizer, i, seed));
      if (auto result = holds(shard.state[i], device, expected); !result)
        return result << " (state " << i << " of local member " << shard.member << ")";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace tutti::test
