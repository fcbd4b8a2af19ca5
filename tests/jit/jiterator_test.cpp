// SPDX-License-Identifier: Apache-2.0
// Elementwise operations given as source text. Where there is no compiler, as on machines with a driver
// alone, only the refusals are tested.

#include "tutti/jiterator.hpp"

#include "jit/jit_combination.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/variable_guard.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/rng.hpp"
#include "tutti/stream.hpp"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::VariableGuard;

const std::string axpy_text = "template <typename T> T axpy(T x, T y, T alpha) { return alpha * x + y; }";

Tensor on_device(const std::vector<float>& values, DType dtype = DType::float32) {
  return tutti::tensor(values, {static_cast<std::int64_t>(values.size())}, {.device = Device(0)}).to(dtype);
}

class Jiterator : public testing::Test {
 protected:
  void SetUp() override {
    try {
      const Tensor one = zeros({1}, {.device = 0});
      static_cast<void>(create_jit_fn(axpy_text, {{"alpha", 1}})({one, one}));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      GTEST_SKIP() << error.what();
    }
  }
};

TEST_F(Jiterator, AppliesAFunctionToEachElement) {
  const JitFunction axpy = create_jit_fn(axpy_text, {{"alpha", 2.0}});
  const Tensor x = on_device({1, 2, 3});
  const Tensor y = on_device({10, 20, 30});
  EXPECT_EQ(axpy({x, y}).to_vector<float>(), (std::vector<float>{12, 24, 36}));
  EXPECT_EQ(axpy({x, y}, {{"alpha", 0.5}}).to_vector<float>(), (std::vector<float>{10.5, 21, 31.5}));
  EXPECT_EQ(axpy({x, y}, {{"alpha", -1}}).to_vector<float>(), (std::vector<float>{9, 18, 27}));
  EXPECT_EQ(axpy({x, y}).device(), x.device());
  EXPECT_EQ(axpy({zeros({0, 4}, {.device = 0}), zeros({1, 4}, {.device = 0})}).numel(), 0);
}

TEST_F(Jiterator, KeepsTheSignOfLargeUnsignedScalars) {
  const JitFunction axpy = create_jit_fn(axpy_text, {{"alpha", std::uint64_t{1} << 63}});
  const Tensor one = on_device({1});
  const Tensor zero = on_device({0});
  EXPECT_EQ(axpy({one, zero}).to_vector<float>(), std::vector<float>{0x1p63F});
  EXPECT_EQ(axpy({one, zero}, {{"alpha", std::numeric_limits<std::int64_t>::min()}}).to_vector<float>(),
            std::vector<float>{-0x1p63F});
  EXPECT_EQ(axpy({one, zero}, {{"alpha", 7U}}).to_vector<float>(), std::vector<float>{7});
}

TEST_F(Jiterator, TakesNumbersOfAllKinds) {
  const JitFunction axpy = create_jit_fn(axpy_text, {{"alpha", 3}});
  for (const DType dtype :
       {DType::float16, DType::bfloat16, DType::float64, DType::int8, DType::uint8, DType::int16,
        DType::uint16, DType::int32, DType::uint32, DType::int64, DType::uint64}) {
    SCOPED_TRACE(name_of(dtype));
    const Tensor result = axpy({on_device({1, 2, 3}, dtype), on_device({10, 20, 30}, dtype)});
    EXPECT_EQ(result.dtype(), dtype);
    EXPECT_EQ(result.to(DType::float32).to_vector<float>(), (std::vector<float>{13, 26, 39}));
  }
  // A number that is negative where the type has a sign.
  const JitFunction half = create_jit_fn("template <class T> T half(T a) { return (a - 2) / 2; }");
  const auto halves = [&](DType dtype) {
    return half({on_device({0}, dtype)}).to(DType::float64).item<double>();
  };
  EXPECT_EQ(halves(DType::int32), -1.0);
  EXPECT_EQ(halves(DType::uint32), 2147483647.0);
  EXPECT_EQ(halves(DType::uint64), 0x1p63);
  const JitFunction differ = create_jit_fn("template <class T> T differ(T a, T b) { return a != b; }");
  const Tensor truths = differ({on_device({0, 1, 1}, DType::boolean), on_device({0, 0, 1}, DType::boolean)});
  EXPECT_EQ(truths.to(DType::float32).to_vector<float>(), (std::vector<float>{0, 1, 0}));
}

/// All numbers of 16 bits through float32 and back, and numbers between them, which are rounded.
TEST_F(Jiterator, RoundsNumbersOf16BitsAsConversionsDo) {
  const JitFunction third = create_jit_fn("template <class T> T third(T a) { return a / 3; }");
  const JitFunction same = create_jit_fn("template <class T> T same(T a) { return a; }");
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    SCOPED_TRACE(name_of(dtype));
    std::vector<std::int16_t> words(65536);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int16_t>(i);
    const Tensor all = tutti::tensor(words, {65536}, {.device = Device(0)});
    const Tensor numbers(all.storage(), TensorView(all.data(), dtype, {65536}, all.device()));
    const auto expect_equal = [](const Tensor& a, const Tensor& b) {
      const auto found = a.to(DType::float32).to_vector<float>();
      const auto expected = b.to(DType::float32).to_vector<float>();
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (std::isnan(expected[i]) ? std::isnan(found[i]) : found[i] == expected[i]) continue;
        ADD_FAILURE() << "word " << i << ": " << found[i] << ", expected " << expected[i];
        return;
      }
    };
    expect_equal(same({numbers}), numbers);
    expect_equal(third({numbers}), third({numbers.to(DType::float32)}).to(dtype));
  }
}

TEST_F(Jiterator, TakesStridedTensorsAndBroadcasts) {
  const JitFunction minus = create_jit_fn("template <class T> T minus(T a, T b) { return a - b; }");
  std::vector<float> values(12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor whole = tutti::tensor(values, {12}, {.device = Device(0)});
  const Tensor matrix(whole.storage(), TensorView(whole.data(), DType::float32, {3, 4}, whole.device()));
  const Tensor part = matrix.narrow(1, 1, 2);
  const Tensor result = minus({part, on_device({100, 200})});
  ASSERT_TRUE(result.is_contiguous());
  EXPECT_EQ(result.to_vector<float>(), (std::vector<float>{-99, -198, -95, -194, -91, -190}));
  const Tensor column = matrix.narrow(1, 3, 1);
  EXPECT_EQ(minus({column, on_device({1, 2})}).to_vector<float>(), (std::vector<float>{2, 1, 6, 5, 10, 9}));
  EXPECT_TRUE(refuses(
      [&] {
        minus({part, on_device({1, 2, 3})});
      },
      ErrorCode::invalid_argument, {"minus: inputs[1] has sizes [3]", "broadcast"}));
}

TEST_F(Jiterator, GivesSeveralOutputs) {
  const MultiOutputJitFunction both = create_multi_output_jit_fn(
      "template <typename T> T twice(T a) { return a + a; }\n"
      "template <typename T> void both(T a, T b, T scale, T& sum, T& difference) {\n"
      "  sum = twice(a + b) * scale;\n  difference = a - b;\n}",
      2, {{"scale", 1.0}});
  const std::vector<Tensor> outputs = both({on_device({5, 7}), on_device({1, 2})}, {{"scale", 10.0}});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[0].to_vector<float>(), (std::vector<float>{120, 180}));
  EXPECT_EQ(outputs[1].to_vector<float>(), (std::vector<float>{4, 5}));
}

/// Helpers, comments and macros are not taken for the function, whose name may stand in the text around it.
TEST_F(Jiterator, AppliesTheFunctionThatComesLast) {
  const Tensor x = on_device({2});
  const Tensor y = on_device({3});
  const std::string mean = "template <typename T> T mean(T a, T b) { return (a + b) / 2; }\n";
  for (const std::string& text :
       {mean + "template <typename T> T result(T a, T b) { return mean(a, b) * 2; }\n// a template <> like "
               "mean(\n",
        std::string(mean)
            .append("#define MAKE(name, op) template <typename T> T name(T a, T b) { return a op b; }\n"
                    "namespace made { MAKE(minus, -) MAKE(p, +) }\n#if 0\n")
            .append(mean)
            .append("#endif\n")})
    EXPECT_EQ(create_jit_fn(text)({x, y}).to_vector<float>(), std::vector<float>{5}) << text;
}

TEST_F(Jiterator, HasMathematicalFunctionsAndKindsOfScalars) {
  const JitFunction shaped = create_jit_fn(
      "template <class T> T shaped(T x, double power, long long steps, bool flips) {\n"
      "  T y = pow(x, static_cast<T>(power));\n  for (long long i = 0; i < steps; ++i) y = sqrt(y);\n"
      "  return flips ? -fabs(y) : y;\n}",
      {{"power", 4.0}, {"steps", 1}, {"flips", false}});
  const Tensor x = on_device({1, 2, 3}, DType::float64);
  EXPECT_EQ(shaped({x}).to_vector<double>(), (std::vector<double>{1, 4, 9}));
  EXPECT_EQ(shaped({x}, {{"flips", true}, {"steps", 2}}).to_vector<double>(),
            (std::vector<double>{-1, -2, -3}));
}

TEST_F(Jiterator, DoesNotContractProductsAndSums) {
  const JitFunction axpy = create_jit_fn(axpy_text, {{"alpha", 1.1}});
  const Tensor x = rand({10000}, {.device = 0});
  const Tensor y = rand({10000}, {.device = 0});
  const auto from_x = x.to_vector<float>();
  const auto from_y = y.to_vector<float>();
  const auto results = axpy({x, y}).to_vector<float>();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const volatile float product = 1.1F * from_x[i];
    ASSERT_EQ(results[i], product + from_y[i]) << i;
  }
}

TEST_F(Jiterator, IsCapturedIntoGraphs) {
  const JitFunction axpy = create_jit_fn(axpy_text, {{"alpha", 2.0}});
  const Stream stream(0);
  const StreamGuard guard(stream);
  const Tensor x = on_device({1, 2, 3});
  Tensor result;
  synchronize(0);
  const Graph graph = Graph::capture(stream, [&] { result = axpy({x, x}); });
  x.fill_(5);
  graph.launch(stream);
  EXPECT_EQ(result.to_vector<float>(), std::vector<float>(3, 15));
}

TEST_F(Jiterator, CanBePreparedForLaterCalls) {
  const JitFunction later = create_jit_fn("template <class T> T later(T a, T b) { return a * b + 17; }");
  for (int device = 0; device < device_count(); ++device) {
    const Tensor one = ones({1}, {.device = device});
    later.prepare({one, one});
  }
  std::optional<VariableGuard> compiler;
  if (backend_kind() == BackendKind::host) compiler.emplace("TUTTI_JIT_CXX", "/nowhere/c++");
  EXPECT_EQ(later({on_device({1, 2}), on_device({3, 4})}).to_vector<float>(), (std::vector<float>{20, 25}));
  EXPECT_TRUE(refuses([&] { later.prepare({}); }, ErrorCode::invalid_argument, {"0 inputs are given"}));
}

TEST_F(Jiterator, SaysWhatTheCompilerSays) {
  const JitFunction wrong = create_jit_fn("template <class T> T wrong(T a) { return a + undeclared_name; }");
  EXPECT_TRUE(refuses([&] { wrong({on_device({1})}); }, ErrorCode::invalid_argument,
                      {"does not compile", "undeclared_name"}));
  const JitFunction axpy = create_jit_fn(axpy_text, {{"alpha", 2.0}});
  EXPECT_TRUE(refuses(
      [&] {
        axpy({on_device({1}), on_device({1})}, {{"beta", 1}});
      },
      ErrorCode::invalid_argument, {"jitted function axpy: scalars[0] is \"beta\"", "created with"}));
  EXPECT_TRUE(refuses(
      [&] {
        axpy({on_device({1}), on_device({1})}, {{"alpha", 1}, {"alpha", 2}});
      },
      ErrorCode::invalid_argument, {"jitted function axpy: scalars[1] is \"alpha\"", "not given twice"}));
  EXPECT_TRUE(refuses(
      [&] {
        axpy({on_device({1, 2}), on_device({1, 2, 3})});
      },
      ErrorCode::invalid_argument, {"jitted function axpy: inputs[1] has sizes [3]"}));
  EXPECT_TRUE(refuses(
      [&] {
        axpy({on_device({1}), on_device({1}, DType::float64)});
      },
      ErrorCode::invalid_argument, {"axpy: inputs[1] is of float64", "expected float32"}));
  EXPECT_TRUE(refuses([&] { axpy({}); }, ErrorCode::invalid_argument, {"0 inputs are given"}));
  EXPECT_TRUE(refuses([&] { axpy({zeros({1}), zeros({1})}); }, ErrorCode::invalid_argument, {"on the host"}));
  const Tensor complex = zeros({1}, {.dtype = DType::complex64, .device = 0});
  EXPECT_TRUE(refuses([&] { axpy({complex, complex}); }, ErrorCode::unsupported, {"hold complex64"}));
}

TEST(JiteratorTexts, AreRefusedWithoutAFunctionTemplate) {
  for (const char* const text :
       {"", "float plain(float a) { return a; }", "template <class T> struct Type;"}) {
    EXPECT_TRUE(refuses([&] { static_cast<void>(create_jit_fn(text)); }, ErrorCode::invalid_argument,
                        {"create_jit_fn: source has", "expected a function template"}));
  }
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(create_jit_fn(axpy_text, {{"alpha", 1}, {"alpha", 2}}));
      },
      ErrorCode::invalid_argument, {"create_jit_fn: defaults[1] is \"alpha\""}));
  EXPECT_TRUE(refuses([] { static_cast<void>(create_multi_output_jit_fn(axpy_text, 0)); },
                      ErrorCode::invalid_argument, {"num_outputs is 0, expected 1 to 8"}));
}

TEST(JiteratorTexts, NeedACompilerAndLeaveNothingBehind) {
  if (backend_kind() == BackendKind::cuda) GTEST_SKIP() << "NVRTC compiles for GPUs";
  const std::string directory = testing::TempDir() + "jiterator";
  std::filesystem::create_directories(directory);
  const VariableGuard place("TMPDIR", directory);
  {
    const VariableGuard compiler("TUTTI_JIT_CXX", "/nowhere/c++");
    const JitFunction fresh = create_jit_fn("template <class T> T fresh(T a) { return a + 4711; }");
    EXPECT_TRUE(refuses(
        [&] { fresh({on_device({1})}); }, ErrorCode::unsupported,
        {"TUTTI_JIT_CXX is \"/nowhere/c++\", which is taken as one file name and cannot be started"}));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

/// As the operation of a reduction.
TEST_F(Jiterator, CombinesOperandsInAscendingOrder) {
  Runtime& runtime = Runtime::get();
  const JitCombination chained("template <class T> T chained(T a, T value) { return a * 2 + value; }",
                               "reduce");
  constexpr std::size_t elements = 100;
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{70}}) {
    std::vector<Tensor> tensors;
    std::vector<const void*> operands;
    std::uint64_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<std::int64_t>(i % 3 + 1);
      tensors.push_back(full({elements}, static_cast<double>(value), {.dtype = DType::int64, .device = 0}));
      operands.push_back(tensors.back().data());
      expected =
          i == 0 ? static_cast<std::uint64_t>(value) : expected * 2 + static_cast<std::uint64_t>(value);
    }
    const Tensor target = empty({elements}, {.dtype = DType::int64, .device = 0});
    chained.run(runtime, StreamAccess::ref(current_stream(0)), DType::int64, target.data(), operands,
                elements);
    EXPECT_EQ(target.to_vector<std::int64_t>(),
              std::vector<std::int64_t>(elements, static_cast<std::int64_t>(expected)))
        << count;
    if (count > 64) continue;  // in several parts, the target is written before all operands are read
    chained.run(runtime, StreamAccess::ref(current_stream(0)), DType::int64, tensors.back().data(), operands,
                elements);
    EXPECT_EQ(tensors.back().to_vector<std::int64_t>()[7], static_cast<std::int64_t>(expected));
  }
}

}  // namespace
}  // namespace tutti
