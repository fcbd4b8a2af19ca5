// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/backward_pass.hpp"

#include "support/values/random.hpp"
#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/device.hpp"

#include <array>
#include <utility>

namespace tutti::test {
namespace {

struct GradientKind {
  DType dtype;
  Sizes sizes;
};
const std::array gradient_kinds{
    GradientKind{DType::float32, {300}},  GradientKind{DType::float32, {17, 91}},
    GradientKind{DType::float16, {77}},   GradientKind{DType::float32, {0}},
    GradientKind{DType::int64, {9}},      GradientKind{DType::float32, {1}},
    GradientKind{DType::float16, {5, 3}}, GradientKind{DType::float32, {2000}},
    GradientKind{DType::float32, {131}},  GradientKind{DType::float32, {10}},
};

}  // namespace

BackwardPass::BackwardPass(Communicator& communicator)
    : first_member_(communicator.first_member()), members_(communicator.member_count()) {
  for (const Device device : communicator.devices()) {
    for (Lists* const lists : {&gradients_, &sources_}) {
      std::vector<Tensor>& list = lists->emplace_back();
      for (const GradientKind& kind : gradient_kinds)
        list.push_back(zeros(kind.sizes, {.dtype = kind.dtype, .device = device}));
    }
  }
}

HostArray BackwardPass::values(int member, int index, std::uint64_t seed) const {
  const GradientKind& kind = gradient_kinds[static_cast<std::size_t>(index)];
  const auto number = static_cast<std::uint64_t>(member * count() + index);
  return random_numbers(kind.dtype, kind.sizes, seed * 1000 + number);
}

void BackwardPass::write(int local, int index, std::uint64_t seed) const {
  const HostArray found = values(first_member_ + local, index, seed);
  gradient(local, index).copy_(make_tensor(found, Device::host(), HostMemory::pinned), Blocking::no);
}

void BackwardPass::prepare(std::uint64_t seed) {
  for (int local = 0; local < locals(); ++local) {
    for (int index = 0; index < count(); ++index) {
      const Tensor& source = at(sources_, local, index);
      source.copy_(make_tensor(values(first_member_ + local, index, seed), Device::host()));
      synchronize(source.device());
    }
  }
}

void BackwardPass::run(GradientBuckets& buckets, std::uint64_t seed, std::uint64_t order) const {
  std::vector<std::pair<int, int>> steps;
  for (int local = 0; local < locals(); ++local) {
    for (int index = count(); index-- > 0;) steps.emplace_back(local, index);
  }
  Random random(order);
  for (std::size_t left = steps.size(); order != 0 && left > 1; --left)
    std::swap(steps[left - 1], steps[random.next() % left]);
  for (const auto& [local, index] : steps) {
    write(local, index, seed);
    buckets.ready(local, index);
  }
}

testing::AssertionResult BackwardPass::holds(std::uint64_t seed, const ReduceOp& operation) const {
  for (int index = 0; index < count(); ++index) {
    std::vector<HostArray> all;
    for (int member = 0; member < members_; ++member) all.push_back(values(member, index, seed));
    const HostArray expected = reference_reduction(all, operation);
    for (int local = 0; local < locals(); ++local) {
      const Tensor& found = gradient(local, index);
      if (auto result = test::holds(found, found.device(), expected); !result)
        return result << " (gradient " << index << " of local member " << local << ")";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace tutti::test
