// SPDX-License-Identifier: Apache-2.0
#include "tutti/graph.hpp"
#include "tutti/tensor.hpp"

#include <complex>
#include <cstdint>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

std::string printed(const Tensor& tensor) {
  std::ostringstream stream;
  stream << tensor;
  EXPECT_EQ(stream.str(), to_string(tensor));
  return stream.str();
}

TEST(TensorPrinting, ShowsTypeSizesPlaceAndValues) {
  const Tensor tensor = tutti::tensor(std::vector<std::int32_t>{1, -2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(printed(tensor),
            "Tensor of int32 [2, 3] on " + to_string(Device::host()) + "\n[[1, -2, 3],\n [4, 5, 6]]");
  const Tensor there = tensor.transpose(0, 1).to(Device(0));
  EXPECT_EQ(printed(there),
            "Tensor of int32 [3, 2] on " + to_string(Device(0)) + "\n[[1, 4],\n [-2, 5],\n [3, 6]]");
}

TEST(TensorPrinting, ShowsEveryKindOfNumber) {
  const auto values = [](const Tensor& tensor) {
    const std::string text = printed(tensor);
    return text.substr(text.find('\n') + 1);
  };
  EXPECT_EQ(values(tutti::tensor(std::vector<float>{0.5F, -1e20F}, {2})), "[0.5, -1e+20]");
  EXPECT_EQ(values(full({2}, 1.5, {.dtype = DType::bfloat16})), "[1.5, 1.5]");
  EXPECT_EQ(values(full({1}, -1, {.dtype = DType::int8, .device = Device(0)})), "[-1]");
  EXPECT_EQ(values(full({1}, 200, {.dtype = DType::uint8})), "[200]");
  EXPECT_EQ(values(full({1}, 65535, {.dtype = DType::uint16})), "[65535]");
  EXPECT_EQ(values(full({1}, 4294967295, {.dtype = DType::uint32})), "[4294967295]");
  EXPECT_EQ(values(full({1}, 0x1p63, {.dtype = DType::uint64, .device = Device(0)})),
            "[9223372036854775808]");
  EXPECT_EQ(values(full({2}, 1, {.dtype = DType::boolean})), "[true, true]");
  EXPECT_EQ(values(tutti::tensor(std::vector<std::complex<double>>{{1, -2}}, {1})), "[1-2i]");
  EXPECT_EQ(values(full({}, 3, {.dtype = DType::int64})), "3");
}

TEST(TensorPrinting, AbbreviatesWhatIsLarge) {
  std::vector<std::int64_t> numbers(40 * 50);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor tensor = tutti::tensor(numbers, {40, 50}, {.device = Device(0)});
  const std::string text = printed(tensor);
  EXPECT_NE(text.find("[[0, 1, 2, ..., 47, 48, 49],\n [50, 51, 52, ..., 97, 98, 99],"), std::string::npos)
      << text;
  EXPECT_NE(text.find("...,\n [1850,"), std::string::npos) << text;
  EXPECT_NE(text.find("1997, 1998, 1999]]"), std::string::npos) << text;
  EXPECT_EQ(printed(tensor.view({2000})).find("[0, 1, 2, ..., 1997, 1998, 1999]") == std::string::npos,
            false);
}

TEST(TensorPrinting, ShowsWhatHasNoValues) {
  EXPECT_EQ(printed(Tensor()), "Tensor (undefined)");
  EXPECT_EQ(printed(empty({0, 3})), "Tensor of float32 [0, 3] on " + to_string(Device::host()));
  const Stream stream(0);
  const Tensor tensor = zeros({3}, {.device = Device(0)});
  synchronize(0);
  const Graph graph = Graph::capture(stream, [&] {
    EXPECT_NE(printed(tensor).find("being captured"), std::string::npos);
    tensor.fill_(1);
  });
  graph.launch(stream);
  stream.synchronize();
  EXPECT_NE(printed(tensor).find("[1, 1, 1]"), std::string::npos);
}

}  // namespace
}  // namespace tutti
