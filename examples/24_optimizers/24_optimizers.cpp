// SPDX-License-Identifier: Apache-2.0
// SGD, Adam and AdamW over all devices: each device has a part of the optimiser's state and updates its part
// of the parameters (`ShardedOptimizer`), after the gradients have been clipped by their norm. Halfway, the
// state is saved, and one device alone loads it and goes on. All results are compared with a plain loop over
// the elements on the host.

#include "kernels.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using optimizers::Adam;
using optimizers::Sgd;
using optimizers::Step;

constexpr int steps = 20;
constexpr std::int64_t count = 3037;
constexpr double max_norm = 90.0;  // some steps are clipped, others not

/// Gradients are multiples of 1/8, so that sums over devices are exact in any order.
float gradient_of(std::int64_t member, std::int64_t element, int step) {
  const std::int64_t number = (member + 3) * 1009 + element * 31 + step * 17;
  const std::int64_t spread = number * number % 17 - 8;
  return static_cast<float>(spread * (step % 3 + 1)) / 8.0F;
}

float initial(std::int64_t element) {
  return static_cast<float>(element % 101 - 50) / 64.0F;
}

/// The optimiser at a step, counted from 1.
Step at(const Step& optimizer, int step) {
  if (const auto* adam = std::get_if<Adam>(&optimizer)) return adam->at(step);
  return optimizer;
}

/// Makes the steps in a plain loop, with the gradients of `members` members added up.
std::vector<float> plain(const Step& optimizer, std::int64_t members) {
  std::vector<float> parameters(count);
  std::vector<float> gradients(count);
  std::vector<float> first(count, 0.0F);
  std::vector<float> second(count, 0.0F);
  for (std::int64_t i = 0; i < count; ++i) parameters[static_cast<std::size_t>(i)] = initial(i);
  for (int step = 1; step <= steps; ++step) {
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::int64_t member = 0; member < members; ++member) sum += gradient_of(member, i, step);
      gradients[static_cast<std::size_t>(i)] = sum;
      squares += double{sum} * sum;
    }
    const double factor = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
    for (float& gradient : gradients) gradient *= static_cast<float>(factor);
    const optimizers::Elements elements{parameters.data(), gradients.data(), first.data(), second.data(),
                                        count};
    std::visit(
        [&](const auto& each) {
          for (std::int64_t i = 0; i < count; ++i) each(elements, i);
        },
        at(optimizer, step));
  }
  return parameters;
}

/// One parameter of `count` elements for each device.
std::vector<std::vector<tutti::Tensor>> make_parameters(const tutti::Communicator& communicator) {
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = initial(i);
  std::vector<std::vector<tutti::Tensor>> lists;
  for (const tutti::Device device : communicator.devices())
    lists.push_back({tutti::tensor(values, {.device = device})});
  return lists;
}

tutti::ShardedOptimizerOptions options_for(const Step& optimizer) {
  const bool is_adam = std::holds_alternative<Adam>(optimizer);
  return {.operation = tutti::ReduceOp::sum, .state_count = is_adam ? 2U : 1U};
}

/// Makes steps `first` to `last`. Each local member has the gradients of several members of the plain loop.
void train(tutti::ShardedOptimizer& sharded, const tutti::Communicator& communicator, const Step& optimizer,
           std::int64_t members, int first, int last) {
  const int locals = communicator.member_count();
  std::vector<float> gradients(count);
  for (int step = first; step <= last; ++step) {
    for (int local = 0; local < locals; ++local) {
      std::ranges::fill(gradients, 0.0F);
      for (std::int64_t member = local; member < members; member += locals) {
        for (std::int64_t i = 0; i < count; ++i)
          gradients[static_cast<std::size_t>(i)] += gradient_of(member, i, step);
      }
      sharded.gradients(local)[0].copy_from(gradients);
    }
    const Step now = at(optimizer, step);
    sharded.step([&](const tutti::ParameterShard& shard) { optimizers::queue(now, shard); },
                 {.max_norm = max_norm});
  }
}

float largest_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  float largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    largest = std::max(largest, std::abs(found[i] - expected[i]) / (1 + std::abs(expected[i])));
  return largest;
}

bool agrees(const std::string& name, const Step& optimizer, const std::string& file) {
  const auto options = options_for(optimizer);
  std::vector<tutti::Device> devices;
  for (int device = 0; device < tutti::device_count(); ++device) devices.emplace_back(device);
  tutti::Communicator all({.devices = devices});
  const std::int64_t members = all.member_count();
  tutti::ShardedOptimizer together(all, make_parameters(all), options);
  train(together, all, optimizer, members, 1, steps / 2);
  together.save(file, std::to_string(steps / 2));
  train(together, all, optimizer, members, steps / 2 + 1, steps);

  tutti::Communicator one({.devices = {0}});
  tutti::ShardedOptimizer alone(one, make_parameters(one), options);
  const int done = std::stoi(alone.load(file));
  train(alone, one, optimizer, members, done + 1, steps);

  const std::vector<float> expected = plain(optimizer, members);
  const float difference =
      std::max(largest_difference(together.parameters(0)[0].to_vector<float>(), expected),
               largest_difference(alone.parameters(0)[0].to_vector<float>(), expected));
  std::cout << name << " on " << members << " devices, and resumed on one: differs from a plain loop by "
            << difference << " at most\n";
  return difference < 1e-5F;
}

}  // namespace

int main() {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("tutti-optimizers-" + std::to_string(getpid()));
  bool all_agree = true;
  all_agree &= agrees("SGD", Sgd{.weight_decay = 0.01F}, file);
  all_agree &= agrees("Adam", Adam{.weight_decay = 0.01F}, file);
  all_agree &= agrees("AdamW", Adam{.weight_decay = 0.01F, .is_decoupled = true}, file);
  std::filesystem::remove(file);
  return all_agree ? EXIT_SUCCESS : EXIT_FAILURE;
}
