// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/graph.hpp"
#include "tutti/persistent.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Sums have several forms, and ranks may mix them: it is one call.
namespace tutti {
namespace {

using test::expect_all_right;
using Floats = std::vector<float>;
using Forms = std::vector<std::function<std::vector<Tensor>()>>;

constexpr int ranks = 3;
constexpr std::int64_t elements = 6;

/// What the rank of the communicator has of a sum, by each form that there is of it; those of no results
/// leave them out.
class Sums {
 public:
  explicit Sums(Communicator& communicator)
      : communicator_(communicator),
        mine_(full({elements}, communicator.rank() + 1, {.device = communicator.devices()[0]})) {}

  [[nodiscard]] Forms all_reduces() const {
    return {[&] { return std::vector{communicator_.all_reduce(mine_)}; },
            [&] { return std::vector{communicator_.all_reduce_add(mine_)}; },
            [&] {
              return into(elements, [&](const Tensor& out) {
                communicator_.all_reduce({mine_}, {out}, ReduceOp::sum);
              });
            },
            [&] {
              return into(elements, [&](const Tensor& out) { communicator_.all_reduce_add({mine_}, {out}); });
            }};
  }
  [[nodiscard]] Forms all_reduces_of_lists() const {
    const std::vector<Tensor> list{mine_, mine_.narrow(0, 0, 2)};
    return {[=, this] { return communicator_.all_reduce_coalesced(list); },
            [=, this] { return communicator_.all_reduce_add_coalesced(list); },
            [=, this] {
              const std::vector<Tensor> out{like(elements), like(2)};
              communicator_.all_reduce_add_coalesced({list}, {out});
              return out;
            }};
  }
  [[nodiscard]] Forms reduces() const {
    return {
        [&] { return defined(communicator_.reduce(mine_, ReduceOp::sum, 1)); },
        [&] { return defined(communicator_.reduce_add(mine_, 1)); },
        [&] {
          return at_root(
              [&](const std::vector<Tensor>& out) { communicator_.reduce({mine_}, out, ReduceOp::sum, 1); });
        },
        [&] {
          return at_root([&](const std::vector<Tensor>& out) { communicator_.reduce_add({mine_}, out, 1); });
        }};
  }
  [[nodiscard]] Forms reduces_of_lists() const {
    const std::vector<Tensor> list{mine_, mine_.narrow(0, 0, 2)};
    return {[=, this] { return communicator_.reduce_coalesced(list, ReduceOp::sum, 2); },
            [=, this] { return communicator_.reduce_add_coalesced(list, 2); }};
  }
  [[nodiscard]] Forms reduce_scatters() const {
    return {[&] { return std::vector{communicator_.reduce_scatter(mine_)}; },
            [&] { return std::vector{communicator_.reduce_scatter_add(mine_)}; },
            [&] {
              return into(elements / ranks,
                          [&](const Tensor& out) { communicator_.reduce_scatter_add({mine_}, {out}); });
            }};
  }

 private:
  [[nodiscard]] Tensor like(std::int64_t count) const {
    return zeros({count}, {.device = communicator_.devices()[0]});
  }
  [[nodiscard]] std::vector<Tensor> into(std::int64_t count,
                                         const std::function<void(const Tensor&)>& call) const {
    const Tensor out = like(count);
    call(out);
    return {out};
  }
  [[nodiscard]] std::vector<Tensor> at_root(
      const std::function<void(const std::vector<Tensor>&)>& call) const {
    std::vector<Tensor> out;
    if (communicator_.rank() == 1) out.push_back(like(elements));
    call(out);
    return out;
  }
  [[nodiscard]] static std::vector<Tensor> defined(const Tensor& result) {
    return result.defined() ? std::vector{result} : std::vector<Tensor>();
  }

  Communicator& communicator_;
  Tensor mine_;
};

bool hold_the_sum(const std::vector<Tensor>& results) {
  return std::ranges::all_of(results, [](const Tensor& result) {
    return std::ranges::all_of(result.to_vector<float>(), [](float value) { return value == 1 + 2 + 3; });
  });
}

class MixedForms : public testing::TestWithParam<int> {};

/// On as many hosts as the parameter says.
TEST_P(MixedForms, AreOneCall) {
  expect_all_right(ranks, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank() % GetParam()).c_str(), 1);
    Communicator communicator(exchange, {.devices = {Device(exchange.rank() % device_count())}});
    const Sums sums(communicator);
    for (const Forms& forms : {sums.all_reduces(), sums.all_reduces_of_lists(), sums.reduces(),
                               sums.reduces_of_lists(), sums.reduce_scatters()}) {
      for (std::size_t turn = 0; turn < forms.size(); ++turn) {
        const std::size_t form = (turn + static_cast<std::size_t>(exchange.rank())) % forms.size();
        EXPECT_TRUE(hold_the_sum(forms[form]()));
      }
    }
    communicator.check();
  });
}

TEST_P(MixedForms, AreOneCallWhereTheyAreBound) {
  expect_all_right(2, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", fmt::format("host {}", exchange.rank() % GetParam()).c_str(), 1);
    const Device device(exchange.rank() % device_count());
    Communicator communicator(exchange, {.devices = {device}});
    const Tensor mine = full({elements}, 2, {.device = device});
    const Tensor sum = zeros({elements}, {.device = device});
    synchronize(device);
    PersistentCollective bound = communicator.persistent([&] {
      exchange.rank() == 0 ? communicator.all_reduce_add({mine}, {sum})
                           : communicator.all_reduce({mine}, {sum}, ReduceOp::sum);
    });
    bound.launch();
    synchronize(device);
    EXPECT_EQ(sum.to_vector<float>(), Floats(elements, 4));
    communicator.check();
  });
}

TEST(MixedFormsInGraphs, AreOneCall) {
  expect_all_right(2, [](Exchange& exchange) {
    const Device device(exchange.rank() % device_count());
    Communicator communicator(exchange, {.devices = {device}});
    const Tensor mine = full({elements}, 2, {.device = device});
    const Tensor sum = zeros({elements}, {.device = device});
    synchronize(device);
    const Stream stream(device);
    const Graph graph = Graph::capture(stream, [&] {
      exchange.rank() == 0 ? communicator.all_reduce_add({mine}, {sum})
                           : communicator.all_reduce({mine}, {sum}, ReduceOp::sum);
    });
    graph.launch(stream);
    stream.synchronize();
    EXPECT_EQ(sum.to_vector<float>(), Floats(elements, 4));
    communicator.check();
  });
}

INSTANTIATE_TEST_SUITE_P(Hosts, MixedForms, testing::Values(1, 2));

}  // namespace
}  // namespace tutti
