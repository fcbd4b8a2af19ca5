// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/message.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Calls of 2^31 + 1 elements: no count and no offset fits 32 bits.
namespace tutti::test {
namespace {

using Lists = std::vector<std::vector<Tensor>>;

constexpr std::int64_t half = std::int64_t{1} << 31;
constexpr std::int64_t long_count = half + 1;
constexpr std::int64_t block_length = std::int64_t{1} << 26;
constexpr std::uint64_t needed_memory = std::uint64_t{7}
                                        << 30;  // two tensors, and as much as a machine needs

/// Of virtual devices, whose memory is the machine's: GPUs are asked.
std::optional<std::string> lack_of_memory() {
  if (device_count() < 2) return "there is one device";
  if (backend_kind() == BackendKind::cuda) {
    if (std::min(free_memory(0), free_memory(1)) < needed_memory) return "a GPU has less than 7 GiB free";
    return std::nullopt;
  }
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::uint64_t kibibytes = 0;
  while (file >> word && word != "MemAvailable:") {
  }
  if (file >> kibibytes && kibibytes < needed_memory >> 10U) return "the machine has less than 7 GiB free";
  return std::nullopt;
}

/// What a block of 64 MiB is filled with: a block that comes from 2^31 or 2^32 bytes away, or from another
/// tensor, has another number.
std::uint8_t number_of(std::int64_t block, int salt) {
  return static_cast<std::uint8_t>((7 * block + 50 * salt + 1) % 101);
}

void fill_blocks(const Tensor& tensor, int salt) {
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += block_length) {
    const std::int64_t length = std::min(block_length, tensor.numel() - begin);
    Tensor block = tensor.narrow(0, begin, length);
    block.fill_(number_of(begin / block_length, salt));
  }
}

/// The begin, the middle and the end of each block of the tensor, which lies at `start` of a whole that
/// `expected` tells the numbers of.
template <class Expected>
void expect_blocks(const Tensor& tensor, std::int64_t start, const Expected& expected) {
  constexpr std::int64_t looked_at = 4096;
  for (std::int64_t begin = 0; begin < tensor.numel(); begin += block_length / 2) {
    for (const std::int64_t place : {begin, begin + block_length / 2 - looked_at}) {
      if (place < 0 || place >= tensor.numel()) continue;
      const std::int64_t length = std::min(looked_at, tensor.numel() - place);
      const auto found = tensor.narrow(0, place, length).template to_vector<std::uint8_t>();
      std::int64_t right = 0;
      for (std::int64_t i = 0; i < length; ++i) {
        if (found[static_cast<std::size_t>(i)] == expected((start + place + i) / block_length)) ++right;
      }
      ASSERT_EQ(right, length) << "from element " << start + place;
    }
  }
}

/// Two tensors, one on each of two devices, that all calls share.
class LargeCalls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (lack_of_memory()) return;
    for (const int device : {0, 1})
      tensors.push_back(empty({long_count}, {.dtype = DType::uint8, .device = Device(device)}));
    single = zeros({1}, {.dtype = DType::uint8, .device = Device(0)});
  }
  static void TearDownTestSuite() {
    tensors.clear();
    single = Tensor();
  }
  void SetUp() override {
    if (const auto lack = lack_of_memory(); lack && tensors.empty()) GTEST_SKIP() << *lack;
    fill_blocks(tensors[0], 0);
    fill_blocks(tensors[1], 1);
  }
  static std::uint8_t number(std::int64_t block, int salt) { return number_of(block, salt); }
  static void expect_number(const Tensor& tensor, int salt, std::int64_t start = 0) {
    expect_blocks(tensor, start, [salt](std::int64_t block) { return number_of(block, salt); });
  }
  static void expect_sum(const Tensor& tensor, std::int64_t start = 0) {
    expect_blocks(tensor, start, [](std::int64_t block) {
      return static_cast<std::uint8_t>(number_of(block, 0) + number_of(block, 1));
    });
  }

  static inline std::vector<Tensor> tensors;
  static inline Tensor single;
};

TEST_F(LargeCalls, OfOneProcessMoveEveryElement) {
  gather({tensors[1].narrow(0, 0, half), single}, tensors[0]);
  expect_number(tensors[0].narrow(0, 0, half), 1);
  EXPECT_EQ(tensors[0].narrow(0, half, 1).to_vector<std::uint8_t>(), std::vector<std::uint8_t>{0});
  fill_blocks(tensors[0], 2);
  scatter(tensors[0], {single, tensors[1].narrow(0, 0, half)});
  EXPECT_EQ(single.to_vector<std::uint8_t>(), std::vector{number_of(0, 2)});
  expect_blocks(tensors[1].narrow(0, 0, half), 1, [](std::int64_t block) { return number_of(block, 2); });
  fill_blocks(tensors[0], 0);
  broadcast(tensors[0], {tensors[1]});
  expect_number(tensors[1], 0);
  fill_blocks(tensors[1], 1);
  reduce_add(tensors, tensors[0]);
  expect_sum(tensors[0]);
  single.fill_(0);
}

TEST_F(LargeCalls, OfACommunicatorMoveEveryElement) {
  Communicator communicator({.devices = {Device(0), Device(1)}, .determinism = Determinism::bitwise});
  const std::vector<std::int64_t> sizes{half, 1};
  const std::vector<Tensor> parts{tensors[0].narrow(0, 0, half), tensors[1].narrow(0, half, 1)};
  communicator.all_gather(parts, tensors, sizes);
  for (const Tensor& tensor : tensors) {
    expect_number(tensor.narrow(0, 0, half), 0);
    expect_number(tensor.narrow(0, half, 1), 1, half);
  }
  fill_blocks(tensors[0], 0);
  fill_blocks(tensors[1], 1);
  communicator.reduce_scatter(tensors, parts, ReduceOp::sum, sizes);
  expect_sum(parts[0]);
  expect_sum(parts[1], half);
  fill_blocks(tensors[0], 0);
  fill_blocks(tensors[1], 1);
  communicator.all_reduce(tensors, tensors, ReduceOp::sum);
  for (const Tensor& tensor : tensors) expect_sum(tensor);
  fill_blocks(tensors[0], 0);
  fill_blocks(tensors[1], 1);
  communicator.reduce(tensors, tensors, ReduceOp::min, 1);
  expect_blocks(tensors[1], 0,
                [](std::int64_t block) { return std::min(number_of(block, 0), number_of(block, 1)); });
  communicator.broadcast(tensors, 0);
  expect_number(tensors[1], 0);
  fill_blocks(tensors[1], 1);
  communicator.batch_send_recv({Message::send(tensors[1], 0), Message::recv(tensors[0], 1)});
  expect_number(tensors[0], 1);
}

TEST_F(LargeCalls, OfListsMoveEveryElement) {
  Communicator communicator({.devices = {Device(0), Device(1)}, .determinism = Determinism::bitwise});
  const Tensor other = ones({1}, {.dtype = DType::uint8, .device = Device(1)});
  const Lists lists{{single, tensors[0]}, {other, tensors[1]}};
  communicator.reduce_coalesced(lists, lists, ReduceOp::max, 1);
  expect_blocks(tensors[1], 0,
                [](std::int64_t block) { return std::max(number_of(block, 0), number_of(block, 1)); });
  fill_blocks(tensors[1], 1);
  communicator.all_reduce_coalesced(lists, lists, ReduceOp::sum);
  for (const Tensor& tensor : tensors) expect_sum(tensor);
  for (const Tensor& tensor : {single, other})
    EXPECT_EQ(tensor.to_vector<std::uint8_t>(), std::vector<std::uint8_t>{1});
  fill_blocks(tensors[0], 0);
  communicator.broadcast_coalesced(lists, 0);
  expect_number(tensors[1], 0);
  fill_blocks(tensors[1], 1);
  const std::int64_t part = half / 2;
  const Lists wholes{{tensors[0].narrow(0, 0, half)}, {tensors[1].narrow(0, 0, half)}};
  const Lists parts{{tensors[0].narrow(0, 0, part)}, {tensors[1].narrow(0, part, part)}};
  communicator.reduce_scatter_coalesced(wholes, parts, ReduceOp::sum);
  expect_sum(parts[0][0]);
  expect_sum(parts[1][0], part);
  communicator.all_gather_coalesced(parts, wholes);
  for (const std::vector<Tensor>& whole : wholes) expect_sum(whole[0]);
  single.fill_(0);
}

TEST_F(LargeCalls, OfUnequalPartsMoveEveryElement) {
  Communicator communicator({.devices = {Device(0), Device(1)}, .determinism = Determinism::bitwise});
  const Tensor other = ones({1}, {.dtype = DType::uint8, .device = Device(1)});
  // One element stays with each member; all others go to the second.
  const std::vector<std::vector<std::int64_t>> input_sizes{{1, half}, {0, 1}};
  const std::vector<std::vector<std::int64_t>> out_sizes{{1, 0}, {half, 1}};
  communicator.all_to_all({tensors[0], other}, {single, tensors[1]}, input_sizes, out_sizes);
  EXPECT_EQ(single.to_vector<std::uint8_t>(), std::vector{number_of(0, 0)});
  expect_number(tensors[1].narrow(0, 0, half), 0, 1);
  EXPECT_EQ(tensors[1].narrow(0, half, 1).to_vector<std::uint8_t>(), std::vector<std::uint8_t>{1});
  single.fill_(0);
}

TEST_F(LargeCalls, InHostMemoryMoveEveryElement) {
  Communicator communicator({.devices = {Device(0), Device(1)},
                             .transport = TransportKind::staged,
                             .determinism = Determinism::bitwise});
  const std::vector<Tensor> exchanged{tensors[0].narrow(0, 1, half), tensors[1].narrow(0, 1, half)};
  communicator.all_to_all(exchanged, exchanged);
  const std::int64_t part = half / 2;
  expect_number(tensors[0].narrow(0, 0, 1 + part), 0);
  expect_number(tensors[1].narrow(0, 1 + part, part), 1, 1 + part);
  expect_number(tensors[0].narrow(0, 1 + part, part), 1, 1);
  expect_number(tensors[1].narrow(0, 1, part), 0, 1 + part);
  const Lists lists{{exchanged[0]}, {exchanged[1]}};
  communicator.all_to_all_coalesced(lists, lists);  // undoes it
  expect_number(tensors[0], 0);
  expect_number(tensors[1], 1);
  fill_blocks(tensors[0], 3);
  communicator.scatter(tensors[0], {single, tensors[1].narrow(0, 0, half)}, 0);
  expect_number(tensors[1].narrow(0, 0, half), 3, 1);
  communicator.gather({single, tensors[1].narrow(0, 0, half)}, tensors[0], 0);
  expect_number(tensors[0], 3);
  single.fill_(0);
}

}  // namespace
}  // namespace tutti::test
