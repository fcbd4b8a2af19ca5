// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/bad_input.hpp"

#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/topology.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace tutti::test {

namespace {

constexpr std::int64_t too_many = std::int64_t{1} << 28;

std::string with_numbers(std::string text) {
  const auto replace = [&text](const std::string& placeholder, int value) {
    if (const std::size_t at = text.find(placeholder); at != std::string::npos) {
      text.replace(at, placeholder.size(), std::to_string(value));
    }
  };
  replace("#count", device_count());
  replace("#last", device_count() - 1);
  return text;
}

}  // namespace

const Tensor& Scene::tensor(const Sizes& sizes, Device device, DType dtype, Placement placement) {
  return tensors_.emplace_back(TestTensor::poisoned(dtype, sizes, device, placement)).tensor();
}

testing::AssertionResult Scene::untouched() const {
  for (const TestTensor& tensor : tensors_) {
    if (const auto result = tensor.untouched(); !result) return result;
  }
  return testing::AssertionSuccess();
}

Tensor claimed_for(const Tensor& tensor, Device device, KeepStorage keep_storage) {
  const TensorView view(tensor.data(), tensor.layout(), device);
  return keep_storage == KeepStorage::yes ? Tensor(tensor.storage(), view) : Tensor(view);
}

Tensor oversized(const Tensor& tensor, KeepStorage keep_storage) {
  const TensorView view(tensor.data(), tensor.dtype(), {too_many}, tensor.device());
  return keep_storage == KeepStorage::yes ? Tensor(tensor.storage(), view) : Tensor(view);
}

Tensor repeated(const Tensor& tensor) {
  return Tensor(tensor.storage(),
                TensorView(tensor.data(), tensor.dtype(), {too_many}, {0}, tensor.device()));
}

void expect_refusal(const BadInput& input) {
  Scene scene;
  const std::function<void()> call = input.prepare(scene);
  std::vector<std::string> fragments;
  for (const std::string& fragment : input.message) fragments.push_back(with_numbers(fragment));

  synchronize_all();
  const std::uint64_t before = operations_enqueued();
  EXPECT_TRUE(refuses(call, ErrorCode::invalid_argument, fragments));
  EXPECT_EQ(operations_enqueued(), before) << "something was enqueued";
  EXPECT_TRUE(scene.untouched());
}

std::string test_name(std::string_view words) {
  std::string name;
  std::ranges::copy_if(words, std::back_inserter(name),
                       [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return name;
}

void BadInputTest::SetUp() {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  self_test_peers();  // its operations are not the call's
}

}  // namespace tutti::test
