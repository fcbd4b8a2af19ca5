#include "tutti/communicator.hpp"

#include "support/errors.hpp"
#include "support/host_array.hpp"
#include "support/random.hpp"
#include "support/ranks.hpp"
#include "support/reference_sum.hpp"
#include "support/test_tensor.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// The contract of the collectives between processes.
namespace tutti {
namespace {

using test::expect_all_right;
using test::HostArray;
using test::Random;
using test::Sizes;
using test::TestTensor;

/// What every rank knows of a case: all members' data, from which it takes its own part and predicts the
/// results.
struct Group {
  Group(Exchange& exchange, int members_per_rank, CommunicatorOptions options = {})
      : communicator(exchange, [&] {
          for (int device = 0; device < members_per_rank; ++device) options.devices.emplace_back(device);
          return options;
        }()) {}

  [[nodiscard]] int members() const { return communicator.member_count(); }
  [[nodiscard]] int locals() const { return static_cast<int>(communicator.devices().size()); }
  [[nodiscard]] int member(int local) const { return communicator.first_member() + local; }
  [[nodiscard]] bool is_local(int any) const { return any >= member(0) && any < member(0) + locals(); }

  Communicator communicator;
};

std::vector<HostArray> numbers_for(int members, DType dtype, const Sizes& sizes, std::uint64_t seed) {
  std::vector<HostArray> arrays;
  for (int member = 0; member < members; ++member) {
    arrays.push_back(test::random_numbers(dtype, sizes, seed * 100 + static_cast<std::uint64_t>(member)));
  }
  return arrays;
}

void check_broadcast(Group& group, DType dtype, const Sizes& sizes, int root, std::uint64_t seed) {
  const HostArray source = test::random_bits(dtype, sizes, seed);
  std::vector<TestTensor> tensors;
  for (int i = 0; i < group.locals(); ++i) {
    tensors.push_back(group.member(i) == root ? TestTensor(source, i)
                                              : TestTensor::poisoned(dtype, sizes, i));
  }
  group.communicator.broadcast(test::tensors_of(tensors), root);
  for (const TestTensor& tensor : tensors) EXPECT_TRUE(tensor.holds(source));
}

void check_reduce(Group& group, DType dtype, const Sizes& sizes, int root, bool in_place,
                  std::uint64_t seed) {
  const auto inputs = numbers_for(group.members(), dtype, sizes, seed);
  const HostArray sum = test::reference_sum(inputs);
  std::vector<TestTensor> mine;
  std::vector<TestTensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    mine.emplace_back(inputs[static_cast<std::size_t>(group.member(i))], i);
    out.push_back(TestTensor::poisoned(dtype, sizes, i));
  }
  group.communicator.reduce_add(test::tensors_of(mine), test::tensors_of(in_place ? mine : out), root);
  for (int i = 0; i < group.locals(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool is_root = group.member(i) == root;
    EXPECT_TRUE(is_root && in_place ? mine[at].holds(sum) : mine[at].untouched());
    EXPECT_TRUE(is_root && !in_place ? out[at].holds(sum) : out[at].untouched());
  }
}

void check_all_reduce(Group& group, DType dtype, const Sizes& sizes, bool in_place, std::uint64_t seed) {
  const auto inputs = numbers_for(group.members(), dtype, sizes, seed);
  const HostArray sum = test::reference_sum(inputs);
  std::vector<TestTensor> mine;
  std::vector<TestTensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    mine.emplace_back(inputs[static_cast<std::size_t>(group.member(i))], i);
    out.push_back(TestTensor::poisoned(dtype, sizes, i));
  }
  group.communicator.all_reduce_add(test::tensors_of(mine), test::tensors_of(in_place ? mine : out));
  for (const TestTensor& tensor : in_place ? mine : out) EXPECT_TRUE(tensor.holds(sum));
}

void check_all_gather(Group& group, DType dtype, std::int64_t count, std::uint64_t seed) {
  const auto inputs = numbers_for(group.members(), dtype, {count}, seed);
  std::vector<TestTensor> mine;
  std::vector<TestTensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    mine.emplace_back(inputs[static_cast<std::size_t>(group.member(i))], i);
    out.push_back(TestTensor::poisoned(dtype, {count * group.members()}, i));
  }
  group.communicator.all_gather(test::tensors_of(mine), test::tensors_of(out));
  for (const TestTensor& tensor : out) EXPECT_TRUE(tensor.holds(test::concatenate(inputs, 0)));
}

void check_reduce_scatter(Group& group, DType dtype, std::int64_t count, std::uint64_t seed) {
  const auto inputs = numbers_for(group.members(), dtype, {count * group.members()}, seed);
  const HostArray sum = test::reference_sum(inputs);
  std::vector<TestTensor> mine;
  std::vector<TestTensor> out;
  for (int i = 0; i < group.locals(); ++i) {
    mine.emplace_back(inputs[static_cast<std::size_t>(group.member(i))], i);
    out.push_back(TestTensor::poisoned(dtype, {count}, i));
  }
  group.communicator.reduce_scatter_add(test::tensors_of(mine), test::tensors_of(out));
  for (int i = 0; i < group.locals(); ++i) {
    EXPECT_TRUE(out[static_cast<std::size_t>(i)].holds(test::slice(sum, 0, group.member(i) * count, count)));
    EXPECT_TRUE(mine[static_cast<std::size_t>(i)].untouched());
  }
}

/// Lengths that differ from member to member, one of them zero now and then.
Sizes lengths_for(int members, std::uint64_t seed) {
  Random random(seed);
  Sizes lengths;
  for (int member = 0; member < members; ++member) lengths.push_back(random.between(0, 40));
  return lengths;
}

void check_scatter_and_gather(Group& group, DType dtype, Sizes sizes, int dim, int root, std::uint64_t seed) {
  const Sizes lengths = lengths_for(group.members(), seed);
  sizes[static_cast<std::size_t>(dim)] = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  const HostArray whole = test::random_bits(dtype, sizes, seed);
  const auto parts = test::split(whole, dim, lengths);
  const int root_device = root - group.member(0);

  std::vector<TestTensor> out;
  std::vector<TestTensor> mine;
  for (int i = 0; i < group.locals(); ++i) {
    const HostArray& part = parts[static_cast<std::size_t>(group.member(i))];
    out.push_back(TestTensor::poisoned(dtype, part.sizes, i));
    mine.emplace_back(part, i);
  }
  const std::optional<TestTensor> source =
      group.is_local(root) ? std::optional<TestTensor>(std::in_place, whole, root_device) : std::nullopt;
  const std::optional<TestTensor> joined =
      group.is_local(root) ? std::optional(TestTensor::poisoned(dtype, sizes, root_device)) : std::nullopt;
  group.communicator.scatter(source ? source->tensor() : Tensor(), test::tensors_of(out), root, dim);
  group.communicator.gather(test::tensors_of(mine), joined ? joined->tensor() : Tensor(), root, dim - 3);
  for (int i = 0; i < group.locals(); ++i) {
    EXPECT_TRUE(out[static_cast<std::size_t>(i)].holds(parts[static_cast<std::size_t>(group.member(i))]));
  }
  EXPECT_TRUE(!joined || joined->holds(whole));
}

struct Shape {
  int ranks;
  int members_per_rank;
};

class CommunicatorContract : public testing::TestWithParam<Shape> {
 protected:
  void on_all_ranks(const std::function<void(Group&)>& body) {
    expect_all_right(GetParam().ranks, [&](Exchange& exchange) {
      Group group(exchange, GetParam().members_per_rank);
      body(group);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorContract,
                         testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1}, Shape{2, 2},
                                         Shape{3, 2}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.ranks) + "x" +
                                  std::to_string(shape.param.members_per_rank);
                         });

/// From nothing to several chunks, with odd ends.
const Sizes element_counts{0, 1, 7, 1000, 33'333, 300'001};

TEST_P(CommunicatorContract, BroadcastReachesAllFromEveryRoot) {
  on_all_ranks([](Group& group) {
    std::uint64_t seed = 1;
    for (int root = 0; root < group.members(); ++root) {
      for (const std::int64_t count : element_counts)
        check_broadcast(group, DType::float32, {count}, root, ++seed);
    }
    for (const DType dtype : all_dtypes) check_broadcast(group, dtype, {3, 5, 7}, 0, ++seed);
  });
}

TEST_P(CommunicatorContract, SumsAreThoseOfOneProcessBitForBit) {
  on_all_ranks([](Group& group) {
    std::uint64_t seed = 100;
    for (const std::int64_t count : element_counts) {
      for (const bool in_place : {false, true}) {
        check_reduce(group, DType::float32, {count}, group.members() - 1, in_place, ++seed);
        check_all_reduce(group, DType::float32, {count}, in_place, ++seed);
      }
      check_reduce_scatter(group, DType::float32, count, ++seed);
    }
    for (const DType dtype : all_dtypes) {
      check_reduce(group, dtype, {5, 201}, 0, false, ++seed);
      check_all_reduce(group, dtype, {5, 2001}, true, ++seed);
      check_reduce_scatter(group, dtype, 321, ++seed);
    }
  });
}

TEST_P(CommunicatorContract, AllGatherJoinsInOrderOfMembers) {
  on_all_ranks([](Group& group) {
    std::uint64_t seed = 200;
    for (const std::int64_t count : element_counts) check_all_gather(group, DType::int32, count, ++seed);
    for (const DType dtype : all_dtypes) check_all_gather(group, dtype, 77, ++seed);
  });
}

TEST_P(CommunicatorContract, ScatterAndGatherTakeUnequalPartsAlongAnyDimension) {
  on_all_ranks([](Group& group) {
    std::uint64_t seed = 300;
    for (int root = 0; root < group.members(); ++root) {
      for (const int dim : {0, 1, 2})
        check_scatter_and_gather(group, DType::float32, {31, 17, 23}, dim, root, ++seed);
    }
    check_scatter_and_gather(group, DType::int16, {3, 1001, 5}, 0, 0, ++seed);
    check_scatter_and_gather(group, DType::complex128, {1, 5, 3000}, 0, 0, ++seed);
  });
}

TEST_P(CommunicatorContract, CoalescedCallsMoveListsOfAllSizes) {
  on_all_ranks([](Group& group) {
    const std::vector<std::pair<DType, Sizes>> shapes{{DType::float32, {3, 4}},    {DType::float64, {0}},
                                                      {DType::float32, {100'003}}, {DType::bfloat16, {7}},
                                                      {DType::float32, {}},        {DType::int8, {999}}};
    const int root = group.members() / 2;
    std::vector<std::vector<TestTensor>> copies;
    std::vector<std::vector<TestTensor>> inputs;
    std::vector<std::vector<TestTensor>> sums;
    std::vector<std::vector<Tensor>> copy_lists;
    std::vector<std::vector<Tensor>> input_lists;
    std::vector<std::vector<Tensor>> sum_lists;
    const auto source = [&](std::size_t t) {
      return test::random_bits(shapes[t].first, shapes[t].second, 400 + t);
    };
    const auto numbers = [&](std::size_t t) {
      return numbers_for(group.members(), shapes[t].first, shapes[t].second, 500 + t);
    };
    for (int i = 0; i < group.locals(); ++i) {
      auto& copy = copies.emplace_back();
      auto& input = inputs.emplace_back();
      auto& sum = sums.emplace_back();
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        const auto& [dtype, sizes] = shapes[t];
        copy.push_back(group.member(i) == root ? TestTensor(source(t), i)
                                               : TestTensor::poisoned(dtype, sizes, i));
        input.emplace_back(numbers(t)[static_cast<std::size_t>(group.member(i))], i);
        sum.push_back(TestTensor::poisoned(dtype, sizes, i));
      }
      copy_lists.push_back(test::tensors_of(copy));
      input_lists.push_back(test::tensors_of(input));
      sum_lists.push_back(test::tensors_of(sum));
    }
    group.communicator.broadcast_coalesced(copy_lists, root);
    group.communicator.all_reduce_add_coalesced(input_lists, sum_lists);
    for (int i = 0; i < group.locals(); ++i) {
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        EXPECT_TRUE(copies[static_cast<std::size_t>(i)][t].holds(source(t))) << t;
        EXPECT_TRUE(sums[static_cast<std::size_t>(i)][t].holds(test::reference_sum(numbers(t)))) << t;
      }
    }
    group.communicator.reduce_add_coalesced(input_lists, input_lists, root);
    for (int i = 0; i < group.locals(); ++i) {
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        const TestTensor& input = inputs[static_cast<std::size_t>(i)][t];
        if (group.member(i) == root) {
          EXPECT_TRUE(input.holds(test::reference_sum(numbers(t)))) << t;
        } else {
          EXPECT_TRUE(input.untouched()) << t;
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, CallsFollowOneAnotherWhateverTheirStreams) {
  on_all_ranks([](Group& group) {
    // The root changes the tensor between the calls: every call must have taken what it held then.
    const std::int64_t count = 50'000;
    std::vector<Tensor> history;
    std::vector<Tensor> mine;
    for (int i = 0; i < group.locals(); ++i)
      mine.push_back(zeros({count}, {.dtype = DType::int32, .device = i}));
    for (int round = 1; round <= 40; ++round) {
      std::vector<Stream> streams;
      for (int i = 0; i < group.locals(); ++i)
        streams.push_back(round % 3 == 0 ? Stream(i) : current_stream(i));
      const int root = round % group.members();
      for (int i = 0; i < group.locals(); ++i) {
        const StreamGuard guard(streams[static_cast<std::size_t>(i)]);
        if (group.member(i) == root) mine[static_cast<std::size_t>(i)].fill_(round);
      }
      group.communicator.broadcast(mine, root, streams);
      for (int i = 0; i < group.locals(); ++i) {
        const StreamGuard guard(streams[static_cast<std::size_t>(i)]);
        history.push_back(mine[static_cast<std::size_t>(i)].to(DType::int64));
      }
      // The next round's current stream need not be this one.
      for (int i = 0; i < group.locals(); ++i) streams[static_cast<std::size_t>(i)].synchronize();
    }
    for (std::size_t at = 0; at < history.size(); ++at) {
      const auto values = history[at].to_vector<std::int64_t>();
      const auto round = static_cast<std::int64_t>(at) / group.locals() + 1;
      EXPECT_EQ(std::ranges::count(values, round), count) << "round " << round;
    }
  });
}

TEST_P(CommunicatorContract, ABarrierHoldsBackWorkQueuedAfterIt) {
  on_all_ranks([](Group& group) {
    for (int round = 0; round < 20; ++round) group.communicator.barrier();
    for (int i = 0; i < group.locals(); ++i) synchronize(i);
    EXPECT_TRUE(group.communicator.is_running());
  });
}

TEST_P(CommunicatorContract, RandomCallsAreAllRight) {
  on_all_ranks([](Group& group) {
    Random random(77);  // the same on all ranks
    for (int call = 0; call < 120; ++call) {
      const DType dtype = random.pick(all_dtypes);
      const std::int64_t count = random.between(0, std::int64_t{1} << random.between(0, 15));
      const int root = static_cast<int>(random.between(0, group.members() - 1));
      const auto seed = static_cast<std::uint64_t>(1000 + call);
      switch (random.between(0, 5)) {
        case 0:
          check_broadcast(group, dtype, {count}, root, seed);
          break;
        case 1:
          check_reduce(group, dtype, {count}, root, random.one_in(2), seed);
          break;
        case 2:
          check_all_reduce(group, dtype, {count}, random.one_in(2), seed);
          break;
        case 3:
          check_all_gather(group, dtype, count, seed);
          break;
        case 4:
          check_reduce_scatter(group, dtype, count, seed);
          break;
        default:
          check_scatter_and_gather(group, dtype,
                                   {random.between(0, 9), random.between(0, 9), random.between(0, 9)},
                                   static_cast<int>(random.between(0, 2)), root, seed);
      }
    }
  });
}

TEST(Communicator, RefusesBadArgumentsAndGoesOn) {
  expect_all_right(2, [](Exchange& exchange) {
    Group group(exchange, 1);
    Communicator& communicator = group.communicator;
    const auto invalid = ErrorCode::invalid_argument;
    const Tensor three = zeros({3}, {.device = 0});
    const Tensor four = zeros({4}, {.device = 0});
    const Tensor elsewhere = zeros({3}, {.device = 1});
    using test::refuses;
    EXPECT_TRUE(
        refuses([&] { communicator.broadcast({three}, 2); }, invalid, {"broadcast", "root is 2", "0 to 1"}));
    EXPECT_TRUE(refuses([&] { communicator.broadcast({three}, -1); }, invalid, {"broadcast", "root is -1"}));
    EXPECT_TRUE(
        refuses([&] { communicator.broadcast({}, 0); }, invalid, {"tensors has 0 entries", "own member"}));
    EXPECT_TRUE(refuses([&] { communicator.broadcast({Tensor()}, 0); }, invalid, {"tensors[0]"}));
    EXPECT_TRUE(refuses([&] { communicator.broadcast({elsewhere}, 0); }, invalid,
                        {"tensors[0]", "device:1", "device:0"}));
    EXPECT_TRUE(
        refuses([&] { communicator.all_reduce_add({three}, {four}); }, invalid, {"all_reduce_add", "out"}));
    EXPECT_TRUE(refuses([&] { communicator.all_reduce_add({three}, {}); }, invalid, {"out has 0 entries"}));
    EXPECT_TRUE(
        refuses([&] { communicator.all_gather({three}, {four}); }, invalid, {"all_gather", "expected 6"}));
    EXPECT_TRUE(refuses([&] { communicator.reduce_scatter_add({three}, {four}); }, invalid, {"expected 8"}));
    EXPECT_TRUE(refuses([&] { communicator.scatter(three, {four}, 0, 1); }, invalid, {"scatter", "dim"}));
    EXPECT_TRUE(refuses([&] { communicator.broadcast({three}, 0, {Stream(1)}); }, invalid, {"streams[0]"}));
    // None of them was announced to the other rank.
    check_all_reduce(group, DType::float32, {1000}, false, 9);
  });
}

TEST(Communicator, RefusesDevicesItCannotTake) {
  expect_all_right(1, [](Exchange& exchange) {
    const auto make = [&](CommunicatorOptions options) {
      return [&exchange, options] { const Communicator communicator(exchange, options); };
    };
    const auto invalid = ErrorCode::invalid_argument;
    EXPECT_TRUE(test::refuses(make({.devices = {Device(99)}}), invalid, {"options.devices[0]", "99"}));
    EXPECT_TRUE(test::refuses(make({.devices = {Device(0), Device(0)}}), invalid,
                              {"options.devices[1]", "one member"}));
    EXPECT_TRUE(test::refuses(make({.devices = {}, .timeout = std::chrono::milliseconds(0)}), invalid,
                              {"options.timeout"}));
    EXPECT_TRUE(
        test::refuses(make({.devices = {}, .window_bytes = 1000}), invalid, {"options.window_bytes"}));
  });
}

}  // namespace
}  // namespace tutti
