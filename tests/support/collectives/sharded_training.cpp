// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/sharded_training.hpp"

#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/collectives.hpp"

#include <array>
#include <cstddef>

namespace tutti::test {
namespace {

const std::array<Sizes, 5> parameter_sizes{Sizes{7, 33}, Sizes{}, Sizes{0, 4}, Sizes{500}, Sizes{1}};

HostArray gradient_of(int member, int index, std::uint64_t seed) {
  const auto number = static_cast<std::uint64_t>(member) * parameter_sizes.size() + 1;
  return random_numbers(DType::float32, parameter_sizes[static_cast<std::size_t>(index)],
                        seed * 1000 + number * 10 + static_cast<std::uint64_t>(index));
}

ReduceOp halved_and_added() {
  return ReduceOp::premul_sum({0.5, 1.0});
}
ReduceOp stepped_down() {
  return ReduceOp::premul_sum({1.0, -0.125});
}

}  // namespace

HostArray ShardedTraining::initial(int index) {
  return random_numbers(DType::float32, parameter_sizes[static_cast<std::size_t>(index)],
                        static_cast<std::uint64_t>(index));
}

std::vector<std::vector<Tensor>> ShardedTraining::make_parameters(const Communicator& communicator) {
  std::vector<std::vector<Tensor>> lists;
  for (const Device device : communicator.devices()) {
    lists.emplace_back();
    for (std::size_t i = 0; i < parameter_sizes.size(); ++i)
      lists.back().push_back(make_tensor(initial(static_cast<int>(i)), device));
  }
  return lists;
}

ShardedTraining::ShardedTraining(Communicator& communicator)
    : communicator_(communicator),
      optimizer_(communicator, make_parameters(communicator), {.state_count = 1}) {
  for (std::size_t i = 0; i < parameter_sizes.size(); ++i) {
    parameters_.push_back(initial(static_cast<int>(i)));
    momentum_.push_back(parameters_.back());
    momentum_.back().bytes.assign(momentum_.back().bytes.size(), std::byte{0});
  }
}

void ShardedTraining::update(const ParameterShard& shard) {
  reduce({shard.state[0], shard.gradients}, shard.state[0], halved_and_added());
  reduce({shard.parameters, shard.state[0]}, shard.parameters, stepped_down());
}

void ShardedTraining::step(std::uint64_t seed) {
  for (std::size_t i = 0; i < parameter_sizes.size(); ++i) {
    const int index = static_cast<int>(i);
    for (std::size_t local = 0; local < communicator_.devices().size(); ++local) {
      const int member = communicator_.first_member() + static_cast<int>(local);
      optimizer_.gradients(static_cast<int>(local))[i].copy_(
          make_tensor(gradient_of(member, index, seed), Device::host(), HostMemory::pinned), Blocking::no);
    }
    std::vector<HostArray> all;
    for (int member = 0; member < communicator_.member_count(); ++member)
      all.push_back(gradient_of(member, index, seed));
    const std::array moments{momentum_[i], reference_reduction(all, ReduceOp::avg)};
    momentum_[i] = reference_reduction(moments, halved_and_added());
    const std::array both{parameters_[i], momentum_[i]};
    parameters_[i] = reference_reduction(both, stepped_down());
  }
  optimizer_.step(update);
}

testing::AssertionResult ShardedTraining::holds() const {
  for (std::size_t local = 0; local < communicator_.devices().size(); ++local) {
    const std::vector<Tensor>& found = optimizer_.parameters(static_cast<int>(local));
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (auto result = test::holds(found[i], communicator_.devices()[local], parameters_[i]); !result)
        return result << " (parameter " << i << " of local member " << local << ")";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace tutti::test
