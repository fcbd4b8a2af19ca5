// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/test_tensor.hpp"

#include <functional>
#include <list>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// The tensors of one refused call. They keep count of their bytes: whatever is made here must still hold
/// them after it.
class Scene {
 public:
  /// Makes a poisoned tensor of `sizes` on `device`.
  const Tensor& tensor(const Sizes& sizes, Device device, DType dtype = DType::float32,
                       Placement placement = Placement::contiguous);
  [[nodiscard]] testing::AssertionResult untouched() const;

 private:
  std::list<TestTensor> tensors_;
};

/// One line of the contract's list of bad input: a call and the required parts of its message.
struct BadInput {
  std::string name;
  /// Makes the tensors and returns the call.
  std::function<std::function<void()>(Scene&)> prepare;
  /// Required parts of the message: function, argument, index, what was given, what was expected. "#count"
  /// stands for the number of devices, "#last" for the greatest index.
  std::vector<std::string> message;

  friend std::ostream& operator<<(std::ostream& stream, const BadInput& input) {
    return stream << input.name;
  }
};

/// Returns a tensor with the address and layout of `tensor` that claims to be on another device; it keeps the
/// storage if `keep_storage`.
enum class KeepStorage { yes, no };
[[nodiscard]] Tensor claimed_for(const Tensor& tensor, Device device, KeepStorage keep_storage);
/// Returns `tensor` with a claimed size far beyond its allocation: 1 GiB of float32.
[[nodiscard]] Tensor oversized(const Tensor& tensor, KeepStorage keep_storage);
/// Returns as many elements as `oversized`, all of them the first of `tensor`: this is valid.
[[nodiscard]] Tensor repeated(const Tensor& tensor);

/// Checks that a call is refused with a good message, that nothing was enqueued and that no byte changed.
void expect_refusal(const BadInput& input);

/// Turns `words` into the name of a test, omitting characters that are not allowed.
[[nodiscard]] std::string test_name(std::string_view words);

class BadInputTest : public testing::TestWithParam<BadInput> {
 protected:
  void SetUp() override;
};

/// Defines one test per line; `lines` is a function that returns a std::vector<BadInput>.
#define TUTTI_BAD_INPUT_SUITE(suite, lines)                                               \
  class suite : public ::tutti::test::BadInputTest {};                                    \
  INSTANTIATE_TEST_SUITE_P(Refuses, suite, testing::ValuesIn(lines()),                    \
                           [](const auto& parameters) { return parameters.param.name; }); \
  TEST_P(suite, BeforeAnythingHappens) {                                                  \
    expect_refusal(GetParam());                                                           \
  }

}  // namespace tutti::test
