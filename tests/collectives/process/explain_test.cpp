// SPDX-License-Identifier: Apache-2.0
#include "collectives/process/prepare.hpp"
#include "support/collectives/collective_test.hpp"
#include "support/collectives/exercise.hpp"
#include "support/errors.hpp"
#include "transport/select/select.hpp"
#include "tutti/topology.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>

#include <fmt/format.h>

namespace tutti::test {
namespace {

std::ptrdiff_t lines_of(const std::string& text) {
  return std::ranges::count(text, '\n');
}

class Explain : public testing::TestWithParam<CollectiveForm> {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  }
};
INSTANTIATE_TEST_SUITE_P(Collectives, Explain, testing::ValuesIn(all_collectives),
                         [](const auto& parameters) { return std::string(name_of(parameters.param)); });

TEST_P(Explain, NamesTheTransportAndTheSteps) {
  for (const TransportKind transport : {TransportKind::p2p, TransportKind::staged}) {
    const std::string text =
        explain({.collective = GetParam().collective, .bytes = 1 << 20, .options = {.transport = transport}});
    EXPECT_NE(text.find(name_of(transport)), std::string::npos) << text;
    EXPECT_NE(text.find("step: "), std::string::npos) << text;
    EXPECT_NE(text.find("device:1"), std::string::npos) << text;
    EXPECT_GE(lines_of(text), 3) << text;
  }
}

TEST_P(Explain, SaysWhyNcclWasRefused) {
  if (reason_against_nccl().empty()) GTEST_SKIP() << "NCCL is usable here";
  const std::string text = explain({.collective = GetParam().collective, .bytes = 1 << 20});
  EXPECT_NE(text.find("nccl"), std::string::npos) << text;
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(explain({.collective = GetParam().collective,
                                   .bytes = 1 << 20,
                                   .options = {.transport = TransportKind::nccl}}));
      },
      ErrorCode::unsupported, {"nccl"}));
}

TEST_P(Explain, RunsNothing) {
  if (!on_virtual_devices()) GTEST_SKIP() << "operations are counted on virtual devices only";
  self_test_peers();
  static_cast<void>(
      explain({.collective = GetParam().collective, .bytes = 123'456}));  // which may make windows
  synchronize_all();
  const std::uint64_t before = virtual_devices::operations_enqueued();
  static_cast<void>(explain({.collective = GetParam().collective, .bytes = 123'456}));
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

TEST_P(Explain, TakesAWorkloadOfAnySizeAndElementType) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{1} << 12U, std::size_t{1} << 36U}) {
    for (const DType dtype : all_dtypes) {
      const std::string text = explain({.collective = GetParam().collective,
                                        .bytes = bytes,
                                        .dtype = dtype,
                                        .devices = first_devices(2),
                                        .root = first_devices(2).back()});
      EXPECT_FALSE(text.empty());
    }
  }
}

TEST_P(Explain, TakesListsOfTensorsWhereTheCallDoes) {
  const std::vector<std::size_t> tensor_bytes(1000, 1024);
  const auto explaining = [&] {
    return explain({.collective = GetParam().collective, .tensor_bytes = tensor_bytes});
  };
  if (traits_of(GetParam().collective).may_take_lists()) {
    EXPECT_FALSE(explaining().empty());
  } else {
    EXPECT_TRUE(refuses([&] { static_cast<void>(explaining()); }, ErrorCode::invalid_argument,
                        {"explain: tensor_bytes has 1000 entries, expected none",
                         std::string(name_of(GetParam())) + " takes no list of tensors"}));
  }
}

TEST_P(Explain, RefusesUnknownDevices) {
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(
            explain({.collective = GetParam().collective, .bytes = 4, .devices = {0, device_count()}}));
      },
      ErrorCode::invalid_argument, {std::to_string(device_count())}));
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(
            explain({.collective = GetParam().collective, .bytes = 4, .root = device_count() + 3}));
      },
      ErrorCode::invalid_argument, {std::to_string(device_count() + 3)}));
}

TEST(ExplainWorkload, LeavesToCommunicatorsWhatOnlyTheyDo) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    EXPECT_TRUE(refuses([&] { static_cast<void>(explain({.collective = collective, .bytes = 4})); },
                        ErrorCode::invalid_argument, {std::string(name_of(collective)), "free function"}));
  }
}

/// A scatter of a contiguous tensor into new ones, or a gather of such, as explained.
void expect_plan_of_call(const Workload& workload) {
  const bool is_scatter = workload.collective == Collective::scatter;
  const std::int64_t rows = workload.dim == 0 ? 1 : 256;
  const std::int64_t length = static_cast<std::int64_t>(workload.bytes / size_of(workload.dtype)) / rows;
  const auto make = [&](std::int64_t size, Device device) {
    return zeros({rows, size}, {.dtype = workload.dtype, .device = device});
  };
  const Tensor whole = make(length, workload.root);
  const Sizes chunks = equal_chunks(length, workload.devices.size());
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < chunks.size(); ++i) parts.push_back(make(chunks[i], workload.devices[i]));

  const collectives::Arguments arguments(Runtime::get(), "test");
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy, {});
  collectives::Call call =
      is_scatter ? collectives::prepare_scatter(arguments, packing, whole, parts, 1, {}, workload.options)
                 : collectives::prepare_gather(arguments, packing, parts, whole, 1, workload.options);
  const std::string text = explain(workload);
  EXPECT_EQ(text, transport::to_text(*call.plan(transport::LaunchMode::eager)))
      << name_of(workload.collective) << " of " << workload.bytes << " bytes of " << name_of(workload.dtype);
  call.launch();
  EXPECT_EQ(text.find("transport: " + last_plan().transport + "\nalgorithm: " + last_plan().algorithm), 0U);
}

TEST(ExplainWorkload, CutsAsTheCallDoes) {
  for (const Collective collective : {Collective::scatter, Collective::gather}) {
    for (const std::size_t bytes : {0U, 3U, 10U, 1001U, 40'000U, 1U << 20U, 3'000'001U}) {
      for (const DType dtype : {DType::int8, DType::float32, DType::complex128}) {
        for (const int dim : {0, 1}) {
          for (const int devices : {1, 3, device_count()}) {
            if (devices > device_count()) continue;
            expect_plan_of_call({.collective = collective,
                                 .bytes = bytes,
                                 .dtype = dtype,
                                 .devices = first_devices(devices),
                                 .root = first_devices(devices).back(),
                                 .dim = dim});
          }
        }
      }
    }
  }
}

TEST_P(Explain, AndTheCallRefuseATransportThatThereIsNot) {
  const CollectiveOptions options{.transport = static_cast<TransportKind>(9)};
  const Exercise exercise = make_exercise(GetParam(), first_devices(), 10);
  const std::vector<Tensor> inputs = make_inputs(exercise, exercise.values(1));
  std::vector<Tensor> outputs;
  for (const TestTensor& output : make_poisoned_outputs(exercise)) outputs.push_back(output.tensor());
  const std::function<void()> calls[] = {
      [&] {
        static_cast<void>(explain({.collective = GetParam().collective, .bytes = 4, .options = options}));
      },
      [&] { static_cast<void>(exercise.make(inputs, options)); },
      [&] { exercise.write(inputs, outputs, options); },
      [&] { static_cast<void>(exercise.bind(inputs, outputs, options)); },
  };
  for (const auto& call : calls) {
    EXPECT_TRUE(refuses(call, ErrorCode::invalid_argument,
                        {"options.transport is 9, expected automatic, p2p, nccl or staged"}));
  }
}

TEST_P(Explain, LastPlanTellsWhatCarriedTheCall) {
  const Exercise exercise = make_exercise(GetParam(), first_devices(), 100);
  const std::vector<HostArray> values = exercise.values(1);
  for (const TransportKind transport : {TransportKind::p2p, TransportKind::staged}) {
    const std::vector<Tensor> results =
        exercise.make(make_inputs(exercise, values), {.transport = transport});
    EXPECT_EQ(last_plan().transport, name_of(transport));
    EXPECT_FALSE(last_plan().algorithm.empty());
    EXPECT_TRUE(all_hold(exercise, results, exercise.expect(values)));
  }
}

TEST(LastPlan, IsEmptyBeforeTheFirstCallOfAThread) {
  static_cast<void>(broadcast(zeros({1}, {.device = 0}), first_devices()));
  std::thread([] {
    EXPECT_EQ(last_plan().transport, "");
    EXPECT_EQ(last_plan().algorithm, "");
  }).join();
}

TEST(LastPlan, IsNoneWhereNothingHadToMove) {
  static_cast<void>(broadcast(zeros({10}, {.device = 0}), {0}));
  EXPECT_EQ(last_plan().transport, "none");
}

TEST(TransportNames, RoundTrip) {
  for (const TransportKind kind : {TransportKind::p2p, TransportKind::nccl, TransportKind::staged}) {
    EXPECT_EQ(parse_transport(name_of(kind)), kind);
  }
  EXPECT_EQ(parse_transport("auto"), TransportKind::automatic);
  EXPECT_EQ(parse_transport(name_of(TransportKind::automatic)), TransportKind::automatic);
  EXPECT_TRUE(refuses([] { static_cast<void>(parse_transport("carrier pigeon")); },
                      ErrorCode::invalid_argument, {"carrier pigeon", "p2p", "nccl", "staged"}));
}

TEST(CollectiveNames, AreTheFunctionsNames) {
  EXPECT_EQ(name_of(Collective::broadcast), "broadcast");
  EXPECT_EQ(name_of(Collective::split), "split");
  EXPECT_EQ(name_of(CollectiveForm(Collective::all_reduce)), "all_reduce");
  EXPECT_EQ(name_of(coalesced(Collective::all_reduce)), "all_reduce_coalesced");
  EXPECT_EQ(name_of(coalesced(Collective::scatter)), "") << "there is no such form";
  EXPECT_EQ(name_of(coalesced(static_cast<Collective>(collective_count))), "unknown");
  for (std::size_t value = 0; value < collective_count; ++value) {
    const CollectiveTraits& traits = traits_of(static_cast<Collective>(value));
    if (!traits.may_take_lists()) continue;
    EXPECT_EQ(traits.name_of_lists, fmt::format("{}_coalesced", traits.name));
  }
}

}  // namespace
}  // namespace tutti::test
