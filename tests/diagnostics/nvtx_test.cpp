// SPDX-License-Identifier: Apache-2.0
// What a tool hears that listens to NVTX. It is named to the process before anything asks for one.

#include "tutti/nvtx.hpp"

#include "ranks/bad_input/methods.hpp"
#include "support/environment.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/persistent.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

const int listener_named = setenv("NVTX_INJECTION64_PATH", TUTTI_TEST_LISTENER, 1);

/// What has been heard since the last time.
std::string heard() {
  using Take = std::size_t (*)(char*, std::size_t);
  static const Take take = [] {
    void* const library = dlopen(TUTTI_TEST_LISTENER, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) throw std::runtime_error("nobody has loaded the listener");
    return reinterpret_cast<Take>(dlsym(library, "listener_take"));
  }();
  std::string all;
  std::array<char, 4096> text{};
  while (const std::size_t length = take(text.data(), text.size())) all.append(text.data(), length);
  return all;
}

/// The same, without what others have told: compute-sanitizer, for one, has thousands of ranges of its own.
std::string heard_of_tutti() {
  std::istringstream lines(heard());
  std::string all;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("tutti ")) all += line + '\n';
  return all;
}

std::string range_of(std::string_view operation, std::size_t bytes, std::string_view transport) {
  return fmt::format("tutti push {}, {} bytes, {} | {}\ntutti pop\n", operation, bytes, transport, bytes);
}

constexpr std::size_t element_count = 96;
constexpr std::size_t tensor_bytes = element_count * sizeof(float);

class NvtxListener : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(listener_named, 0);
    nvtx::mark("begin");  // what comes before it, of other libraries too, is of no interest
    static_cast<void>(heard());
  }

  const std::vector<Device> devices_ = test::first_devices(3);

  [[nodiscard]] static Tensor tensor(Device device, std::size_t elements = element_count) {
    return zeros({static_cast<std::int64_t>(elements)}, {.device = device});
  }
  /// One on each device.
  [[nodiscard]] std::vector<Tensor> tensors(std::size_t elements = element_count) const {
    std::vector<Tensor> all;
    for (const Device device : devices_) all.push_back(tensor(device, elements));
    return all;
  }
  [[nodiscard]] std::vector<std::vector<Tensor>> lists(std::size_t elements = element_count) const {
    std::vector<std::vector<Tensor>> all;
    for (const Device device : devices_) all.push_back({tensor(device, elements), tensor(device, elements)});
    return all;
  }
};

TEST_F(NvtxListener, HearsMarksAndRangesInOrder) {
  nvtx::mark("a moment");
  EXPECT_EQ(nvtx::range_push("outer"), 0);
  {
    const nvtx::Range range(std::string_view("inner, and more").substr(0, 5));
    EXPECT_EQ(range.depth(), 1);
  }
  EXPECT_EQ(nvtx::range_pop(), 0);
  EXPECT_EQ(nvtx::range_pop(), -1);
  EXPECT_EQ(heard(), "mark a moment\npush outer\npush inner\npop\npop\n");
}

TEST_F(NvtxListener, HearsEveryCollectiveOfAProcessAsARange) {
  const std::size_t count = devices_.size();
  const Tensor source = tensor(devices_[0]);
  const Tensor whole = tensor(devices_[0], element_count * count);
  const std::vector<Tensor> out = tensors();
  const std::vector<std::vector<Tensor>> out_lists = lists();
  const auto expect = [](std::string_view operation, std::size_t bytes) {
    EXPECT_EQ(heard_of_tutti(), range_of(operation, bytes, last_plan().transport));
  };
  static_cast<void>(broadcast(source, devices_));
  expect("broadcast", tensor_bytes);
  broadcast(source, out);
  expect("broadcast", tensor_bytes);
  broadcast_coalesced(out_lists[0], out_lists);
  expect("broadcast_coalesced", 2 * tensor_bytes);
  static_cast<void>(reduce_add(out));
  expect("reduce_add", tensor_bytes);
  static_cast<void>(reduce_add_coalesced(out_lists));
  expect("reduce_add_coalesced", 2 * tensor_bytes);
  static_cast<void>(reduce(out, ReduceOp::max));
  expect("reduce", tensor_bytes);
  static_cast<void>(reduce_coalesced(out_lists, ReduceOp::max));
  expect("reduce_coalesced", 2 * tensor_bytes);
  scatter(whole, out);
  expect("scatter", count * tensor_bytes);
  gather(out, whole);
  expect("gather", count * tensor_bytes);
}

TEST_F(NvtxListener, HearsEveryLaunchOfAPersistentCollective) {
  PersistentCollective call = persistent_broadcast(tensor(devices_[0]), tensors());
  for (const Device device : devices_) synchronize(device);
  EXPECT_EQ(heard_of_tutti(), "");
  for (int launch = 0; launch < 2; ++launch) {
    call.launch();
    EXPECT_EQ(heard_of_tutti(), range_of("broadcast", tensor_bytes, call.summary().transport));
  }
}

TEST_F(NvtxListener, HearsWhatIsCaptured) {
  const std::vector<Tensor> out = tensors();
  const std::vector<Stream> before = [this] {
    std::vector<Stream> streams;
    for (const Device device : devices_) streams.push_back(current_stream(device));
    return streams;
  }();
  for (std::size_t i = devices_.size(); i-- > 0;) set_stream(Stream(devices_[i]));
  CUDAGraph graph;
  graph.capture_begin();
  broadcast(out[0], out);
  graph.capture_end();
  for (std::size_t i = devices_.size(); i-- > 0;) set_stream(before[i]);
  EXPECT_EQ(heard_of_tutti(), range_of("broadcast", tensor_bytes, last_plan().transport));
}

/// What a call's range tells: the bytes of the whole that is scattered or gathered, or else of what a member
/// gives.
std::size_t told_bytes(Collective collective, const test::ranks::Operands& operands) {
  const CollectiveTraits& traits = traits_of(collective);
  const bool is_told_of_output = traits.has_own_sizes && traits.output == CollectiveOutput::one;
  std::size_t bytes = 0;
  for (const Tensor& each : is_told_of_output ? operands.out.back() : operands.inputs.front())
    bytes += each.nbytes();
  return bytes;
}

TEST_F(NvtxListener, HearsEveryCollectiveOfATeamAsARange) {
  if (devices_.size() < 2) GTEST_SKIP() << "the methods' operands are on two devices";
  Communicator team(CommunicatorOptions{.devices = {Device(0), Device(1)}});
  for (std::size_t value = 0; value < collective_count; ++value) {
    const auto collective = static_cast<Collective>(value);
    if (!moves_tensors(collective)) continue;
    for (const std::string_view name : {traits_of(collective).name, traits_of(collective).name_of_lists}) {
      if (name.empty()) continue;
      const std::vector<test::ranks::Method>& methods = test::ranks::methods();
      const auto method = std::ranges::find(methods, name, &test::ranks::Method::name);
      ASSERT_NE(method, methods.end()) << name;
      test::Scene scene;
      const test::ranks::Operands operands = method->operands(scene);
      static_cast<void>(heard());
      method->call(team, operands, method->root, {});
      const std::size_t bytes = told_bytes(collective, operands);
      EXPECT_GT(bytes, 0U);
      EXPECT_EQ(heard_of_tutti(), range_of(name, bytes, team.last_plan().transport));
    }
  }
  team.barrier();
  EXPECT_EQ(heard_of_tutti(), range_of("barrier", 0, team.last_plan().transport));
  static_cast<void>(team.split(0));
  EXPECT_EQ(heard_of_tutti(), "tutti push split | 0\ntutti pop\n");
}

}  // namespace
}  // namespace tutti
