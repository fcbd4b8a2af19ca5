// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/tensor_lists.hpp"

#include "perf/options/usage_errors.hpp"
#include "support/mutations.hpp"
#include "support/odd_files.hpp"

#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

std::int64_t elements_of(const std::vector<TensorSpec>& tensors) {
  std::int64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    total += std::accumulate(tensor.sizes.begin(), tensor.sizes.end(), std::int64_t{1}, std::multiplies<>());
  }
  return total;
}

std::vector<TensorSpec> parsed_list(const std::string& text) {
  constexpr DType dtype = DType::float32;
  return parse_tensors(text, std::span(&dtype, 1)).front();
}

TEST(PerfTensorLists, ResNet50HasItsParametersAndRunningStatistics) {
  const std::vector<TensorSpec> tensors = resnet50_tensors();
  EXPECT_EQ(tensors.size(), 267U);
  constexpr std::int64_t parameters = 25'557'032;
  constexpr std::int64_t running_statistics = 53'120;
  EXPECT_EQ(elements_of(tensors), parameters + running_statistics);
  EXPECT_EQ(tensors.front().sizes, (std::vector<std::int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(tensors.back().sizes, (std::vector<std::int64_t>{1000}));
}

TEST(PerfTensorLists, Gpt2HasItsParameters) {
  const std::vector<TensorSpec> tensors = gpt2_tensors();
  EXPECT_EQ(tensors.size(), 148U);
  EXPECT_EQ(elements_of(tensors), 124'439'808);
}

TEST(PerfTensorLists, CountsElementsOfEveryTypeInBytesGiven) {
  const auto lists = parse_tensors("10x1K", all_dtypes);
  ASSERT_EQ(lists.size(), std::size(all_dtypes));
  for (std::size_t type = 0; type < lists.size(); ++type) {
    const auto elements = static_cast<std::int64_t>(1024 / size_of(all_dtypes[type]));
    EXPECT_EQ(lists[type], std::vector<TensorSpec>(10, {{elements}, std::nullopt}));
  }
  EXPECT_NE(usage_error_of([] {
              static_cast<void>(parse_tensors("10x4", all_dtypes));
            }).find("not a whole number of float64 elements"),
            std::string::npos);
  const std::vector<DType> two{DType::int8, DType::float64};
  EXPECT_EQ(parse_tensors("gpt2", two), (std::vector{gpt2_tensors(), gpt2_tensors()}));
}

TEST(PerfTensorLists, RepeatsOneSizeInBytes) {
  const std::vector<TensorSpec> tensors = parsed_list("1000x1K");
  EXPECT_EQ(tensors.size(), 1000U);
  EXPECT_EQ(tensors[999].sizes, (std::vector<std::int64_t>{256}));
  EXPECT_NE(usage_error_of([] { static_cast<void>(parsed_list("3x6")); }).find("float32"), std::string::npos);
  EXPECT_NE(usage_error_of([] { static_cast<void>(parsed_list("0x8")); }).find("0 tensors"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] { static_cast<void>(parsed_list("3x8Q")); }).find("8Q"), std::string::npos);
}

TEST(PerfTensorLists, ReadsShapesTypesAndComments) {
  const std::vector<TensorSpec> tensors =
      parse_tensor_lines("# a model\n64x3x7x7 float16\n\n  1000   # bias\nscalar int64\n0x5\n", "list");
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors[0], (TensorSpec{{64, 3, 7, 7}, DType::float16}));
  EXPECT_EQ(tensors[1], (TensorSpec{{1000}, std::nullopt}));
  EXPECT_EQ(tensors[2], (TensorSpec{{}, DType::int64}));
  EXPECT_EQ(tensors[3], (TensorSpec{{0, 5}, std::nullopt}));
}

TEST(PerfTensorLists, NamesTheLineThatIsWrong) {
  const char* const wrong_lines[] = {"64x",
                                     "x64",
                                     "64xx3",
                                     "-4",
                                     "4 floaty",
                                     "4 float32 more",
                                     "1x1x1x1x1x1x1x1x1",
                                     "4,4",
                                     "99999999999999999999",
                                     "4611686018427387904x4"};
  for (const char* line : wrong_lines) {
    const std::string content = std::string("8\n# fine\n") + line + "\n8\n";
    const std::string message =
        usage_error_of([&] { static_cast<void>(parse_tensor_lines(content, "my.list")); });
    EXPECT_EQ(message.rfind("my.list:3: ", 0), 0U) << line << " gave: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(PerfTensorLists, TakesOrRefusesWhateverAFileHolds) {
  const std::string original = "# a model\n64x3x7x7 float16\n\n  1000   # bias\nscalar int64\n0x5\n";
  const auto words =
      test::with_strange_numbers({"x", "\n", "\r\n", "#", " ", "scalar", "float8_e4m3", "complex128"});
  test::Random random(1);
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string content = test::mutated(original, random, words);
    SCOPED_TRACE(content);
    try {
      const std::vector<TensorSpec> tensors = parse_tensor_lines(content, "list");
      EXPECT_EQ(parse_tensor_lines(format_tensor_lines(tensors), "again"), tensors);
      ++taken;
    } catch (const UsageError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind("list:", 0), 0U) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      ++refused;
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(PerfTensorLists, RefusesFilesWithoutTensorsAndWithoutExistence) {
  EXPECT_NE(
      usage_error_of([] { static_cast<void>(parse_tensor_lines("# nothing\n", "f")); }).find("no tensor"),
      std::string::npos);
  EXPECT_NE(usage_error_of([] { static_cast<void>(parsed_list("/no/such/file")); }).find("/no/such/file"),
            std::string::npos);
}

TEST(PerfTensorLists, RefusesFilesWithoutAnEnd) {
  const test::OddFiles files;
  for (const std::string& name : {files.pipe, files.large}) {
    const std::string refusal = usage_error_of([&] { static_cast<void>(parsed_list(name)); });
    EXPECT_NE(refusal.find("'" + name + "' is neither"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(name == files.pipe ? ": it is no regular file" : ": it has more than"),
              std::string::npos)
        << refusal;
  }
}

TEST(PerfTensorLists, ReadsAFile) {
  const std::string name = testing::TempDir() + "tutti_tensor_list";
  std::ofstream(name) << "2x3\n";
  EXPECT_EQ(parsed_list(name), (std::vector<TensorSpec>{{{2, 3}, std::nullopt}}));
  std::remove(name.c_str());
}

TEST(PerfTensorLists, SplitsASizeWithoutLosingElements) {
  for (const std::size_t elements : {0U, 1U, 15U, 16U, 17U, 1000U}) {
    const std::vector<TensorSpec> tensors = split_evenly(elements * 4, DType::float32, 16);
    EXPECT_EQ(elements_of(tensors), static_cast<std::int64_t>(elements));
    EXPECT_LE(tensors.size(), 16U);
    if (elements == 0) continue;
    for (const TensorSpec& tensor : tensors) EXPECT_GT(tensor.sizes.at(0), 0);
  }
}

}  // namespace
}  // namespace tutti::perf
