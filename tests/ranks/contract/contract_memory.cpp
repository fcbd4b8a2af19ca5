// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract_memory.hpp"

#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/device.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test::ranks {
namespace {

/// Large enough to be read where they lie.
constexpr std::int64_t large_count = 150'001;

/// Memory that is not the caching allocator's, or does not begin at a multiple of 16 bytes.
enum class Memory { of_the_user, misaligned, ordinary };

Tensor zeros_in(Memory memory, std::int64_t elements, Device device) {
  const TensorOptions options{.dtype = DType::int32, .device = device};
  if (memory == Memory::ordinary) return zeros({elements}, options);
  if (memory == Memory::misaligned) return zeros({elements + 1}, options).narrow(0, 1, elements);
  backend::Backend& backend = Runtime::get().backend();
  void* const address =
      backend.allocate_device(device.index(), static_cast<std::size_t>(elements) * sizeof(std::int32_t));
  const Tensor tensor = from_blob(address, {elements}, {.dtype = DType::int32, .device = device}, [=](void*) {
    synchronize(device.index());
    Runtime::get().backend().free_device(device.index(), address);
  });
  Tensor zeroed(tensor);
  zeroed.fill_(0);
  return zeroed;
}

/// Every member's tensors, each in another kind of memory than its neighbour's.
std::vector<Tensor> mixed_zeros(const Group& group, std::int64_t elements, int round) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < group.locals(); ++i)
    tensors.push_back(
        zeros_in(static_cast<Memory>((group.member(i) + round) % 3), elements, group.device(i)));
  return tensors;
}

void fill(std::vector<Tensor>& tensors, const std::function<std::int32_t(int own)>& number) {
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].fill_(number(static_cast<int>(i)));
}

void expect_all(const std::vector<Tensor>& tensors, std::int32_t number) {
  for (const Tensor& tensor : tensors) {
    const auto values = tensor.to_vector<std::int32_t>();
    EXPECT_EQ(std::ranges::count(values, number), tensor.numel()) << "instead of " << number;
  }
}

}  // namespace

void large_operands_may_lie_anywhere(Group& group) {
  const std::int32_t members = group.members();
  for (int round = 0; round < 6; ++round) {
    std::vector<Tensor> numbers = mixed_zeros(group, large_count, round);
    std::vector<Tensor> sums = mixed_zeros(group, large_count, round + 1);
    fill(numbers, [&](int own) { return group.member(own) + 1; });
    group.communicator.all_reduce_add(numbers, sums);
    expect_all(sums, members * (members + 1) / 2);
    group.communicator.all_reduce_add(numbers, numbers);
    expect_all(numbers, members * (members + 1) / 2);

    fill(numbers, [&](int own) { return group.member(own) + round; });
    group.communicator.broadcast(numbers, round % members);
    expect_all(numbers, round % members + round);

    const int root = (round + 1) % members;
    std::vector<Tensor> all = mixed_zeros(group, large_count * members, round);
    fill(numbers, [&](int) { return 7; });
    group.communicator.all_gather(numbers, all);
    expect_all(all, 7);
    const bool has_root = group.is_local(root);
    const Tensor whole = has_root ? all[static_cast<std::size_t>(root - group.member(0))] : Tensor();
    if (has_root) Tensor(whole).fill_(round);
    group.communicator.scatter(whole, numbers, root);
    expect_all(numbers, round);
    fill(numbers, [&](int) { return 100 + round; });
    group.communicator.gather(numbers, whole, root);
    if (has_root) expect_all({whole}, 100 + round);
  }
}

void large_exchanges_in_place_may_lie_anywhere(Group& group) {
  const std::int32_t members = group.members();
  // Large enough to be written where they go: parts of more than 4 MiB, or 256 KiB of virtual devices.
  const std::int64_t largest = backend_kind() == BackendKind::cuda ? 2'100'032 : 65'600;
  const auto number = [&](std::int32_t member, std::int32_t part) { return 100 * member + part + 1; };
  for (int round = 0; round < 6; ++round) {
    const std::int64_t count = largest - round % 2;  // parts that can be swapped, and others
    std::vector<Tensor> tensors = mixed_zeros(group, count * members, round);
    const auto part_of = [&](int own, std::int32_t part) {
      return tensors[static_cast<std::size_t>(own)].narrow(0, part * count, count);
    };
    for (int own = 0; own < group.locals(); ++own) {
      for (std::int32_t part = 0; part < members; ++part)
        part_of(own, part).fill_(number(group.member(own), part));
    }
    group.communicator.all_to_all(tensors, tensors);
    for (int own = 0; own < group.locals(); ++own) {
      for (std::int32_t part = 0; part < members; ++part)
        expect_all({part_of(own, part)}, number(part, group.member(own)));
    }

    std::vector<Tensor> parts;
    for (int own = 0; own < group.locals(); ++own) parts.push_back(part_of(own, group.member(own)));
    group.communicator.all_gather(parts, tensors);
    for (int own = 0; own < group.locals(); ++own) {
      for (std::int32_t part = 0; part < members; ++part)
        expect_all({part_of(own, part)}, number(part, part));
    }
  }
}

void operands_may_be_written_right_after_a_large_call(Group& group) {
  // Their readers may be slow; what they read is what there was when the call was made.
  std::vector<Tensor> numbers = mixed_zeros(group, large_count, 2);
  std::vector<Tensor> seen = mixed_zeros(group, large_count, 2);
  std::vector<Tensor> sums = mixed_zeros(group, large_count, 2);
  std::vector<std::vector<Tensor>> copies;
  for (int round = 1; round <= 20; ++round) {
    fill(numbers, [&](int) { return round; });
    const int root = round % group.members();
    group.communicator.broadcast(
        group.is_local(root) ? numbers[static_cast<std::size_t>(root - group.member(0))] : Tensor(), seen,
        root);
    group.communicator.all_reduce_add(numbers, sums);
    fill(numbers, [&](int) { return -1; });
    auto& kept = copies.emplace_back();
    for (const std::vector<Tensor>* tensors : {&seen, &sums}) {
      for (const Tensor& tensor : *tensors) {
        kept.push_back(zeros({large_count}, {.dtype = DType::int32, .device = tensor.device()}));
        kept.back().copy_(tensor);
      }
    }
  }
  for (int round = 1; round <= 20; ++round) {
    const auto& kept = copies[static_cast<std::size_t>(round - 1)];
    const auto half = kept.begin() + group.locals();
    expect_all({kept.begin(), half}, round);
    expect_all({half, kept.end()}, round * group.members());
  }
}

void memory_of_large_operands_goes_back_to_the_device(Group& group) {
  const auto free_bytes = [&] {
    std::vector<std::size_t> free;
    for (int i = 0; i < group.locals(); ++i) free.push_back(free_memory(group.device(i).index()));
    return free;
  };
  empty_cache();
  const std::vector<std::size_t> before = free_bytes();
  for (int round = 0; round < 5; ++round) {
    std::vector<Tensor> numbers = mixed_zeros(group, 2 * large_count + 100 * round, 2);
    fill(numbers, [&](int) { return round; });
    group.communicator.all_reduce_add(numbers, numbers);
    group.communicator.broadcast(numbers, 0);
    expect_all(numbers, round * group.members());
    if (round % 2 == 0) empty_cache();
  }
  group.communicator.barrier();
  for (int i = 0; i < group.locals(); ++i) synchronize(group.device(i).index());
  // Others close it as soon as they have no calls under way.
  for (int again = 0; again < 20 && on_virtual_devices() && free_bytes() != before; ++again) empty_cache();
  if (on_virtual_devices()) {  // on GPUs, others may use the same device
    EXPECT_EQ(free_bytes(), before);
  }
}

void memory_is_opened_and_closed_while_others_wait(Group& group) {
  // Every member but the root has its device wait in a call that the root has not made yet; meanwhile the
  // root frees memory that the others have open, and has them open other memory.
  if (group.members() == group.locals()) return;
  for (int round = 0; round < 3; ++round) {
    const int root = round % group.members();
    const bool is_root = group.is_local(root);
    std::vector<Tensor> numbers = mixed_zeros(group, large_count, 2);
    {
      std::vector<Tensor> earlier = mixed_zeros(group, 3 * large_count, 2);
      fill(earlier, [&](int) { return round; });
      group.communicator.broadcast(earlier, root);
      expect_all(earlier, round);
    }
    if (is_root) {
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(30))
        std::this_thread::yield();
      empty_cache();
      numbers = mixed_zeros(group, large_count + 5000 * (round + 1), 2);
      for (Tensor& tensor : numbers) tensor = tensor.narrow(0, 0, large_count);
      fill(numbers, [&](int) { return 50 + round; });
    }
    group.communicator.broadcast(numbers, root);
    expect_all(numbers, 50 + round);
  }
}

}  // namespace tutti::test::ranks
