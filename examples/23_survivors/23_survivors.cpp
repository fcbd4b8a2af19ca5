// SPDX-License-Identifier: Apache-2.0
// A trainer whose ranks are killed at random steps. The others go on in the same processes, from the last
// checkpoint, as a smaller communicator. Their losses are, bit for bit, those of a run of as many ranks that
// is started from that checkpoint and that nothing disturbs.

#include "23_survivors/processes.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <random>
#include <vector>

namespace {

constexpr int features = 200;
constexpr int samples_per_step = 24;
constexpr int steps = 60;
constexpr int steps_per_checkpoint = 5;

using Values = std::array<float, features>;

/// Holds what training goes on from: the parameters and the optimiser's momentum before a step.
struct Checkpoint {
  int step = 0;
  Values parameters{};
  Values momentum{};
};

/// What a communicator of `ranks` has done, from a checkpoint on: written by its rank 0 for the parent
/// process.
struct Stretch {
  int ranks = 0;
  Checkpoint start;
  int end = 0;  ///< the step that was the next
  std::array<float, steps> losses{};
};

struct Record {
  int count = 0;
  std::array<Stretch, example::most_ranks> stretches{};
};

/// The member's samples of a step of a linear model: it adds their gradients and returns their loss.
float backward(const Values& parameters, int step, int member, int members, Values& gradients) {
  float loss = 0;
  for (int sample = member; sample < samples_per_step; sample += members) {
    std::minstd_rand random(static_cast<std::uint32_t>(1 + step * samples_per_step + sample));
    const auto draw = [&] { return static_cast<float>(random() % 2001) / 1000 - 1; };
    Values input{};
    float error = 0;
    for (std::size_t i = 0; i < input.size(); ++i) {
      input[i] = draw();
      error += input[i] * (parameters[i] - static_cast<float>(i % 7));
    }
    loss += error * error;
    for (std::size_t i = 0; i < input.size(); ++i) gradients[i] += 2 * error * input[i] / samples_per_step;
  }
  return loss / samples_per_step;
}

class Trainer {
 public:
  /// `dies_at`: the step in which this rank is killed; negative: it is not.
  Trainer(tutti::Exchange& exchange, const Checkpoint& start, int end, int dies_at, Record& record)
      : communicator_(exchange, {.devices = {tutti::Device(exchange.rank() % tutti::device_count())},
                                 .determinism = tutti::Determinism::bitwise}),
        optimizer_(communicator_, {tutti::tensor(start.parameters, {.device = device()})},
                   {.operation = tutti::ReduceOp::sum, .state_count = 1}),
        checkpoints_{start, start},
        end_(end),
        dies_at_(dies_at),
        record_(record) {
    load(start);
  }

  void run() {
    while (step_ < end_) {
      try {
        if (!communicator_.is_running()) go_on_without_the_lost();
        step();
        if (step_ % steps_per_checkpoint == 0) save();
      } catch (const tutti::Error&) {
        if (communicator_.is_running()) throw;  // it is not about the other ranks
      }
    }
  }

 private:
  [[nodiscard]] tutti::Device device() const { return communicator_.devices().front(); }
  [[nodiscard]] const tutti::Tensor& parameters() const { return optimizer_.parameters(0)[0]; }

  void step() {
    if (step_ == dies_at_) std::raise(SIGKILL);
    Values values{};
    parameters().copy_to(values);
    Values gradients{};
    const float own_loss =
        backward(values, step_, communicator_.rank(), communicator_.rank_count(), gradients);
    optimizer_.gradients(0)[0].copy_from(gradients);
    const tutti::Tensor loss =
        tutti::full({1}, own_loss, {.dtype = tutti::DType::float32, .device = device()});
    communicator_.all_reduce_add({loss}, {loss});
    optimizer_.step([](const tutti::ParameterShard& shard) {
      tutti::reduce({shard.state[0], shard.gradients}, shard.state[0],
                    tutti::ReduceOp::premul_sum({0.5, 1.0}));
      tutti::reduce({shard.parameters, shard.state[0]}, shard.parameters,
                    tutti::ReduceOp::premul_sum({1.0, -0.01}));
    });
    const float sum = loss.item<float>();
    communicator_.check();  // if it does not throw, the sum and the step are right
    if (communicator_.rank() == 0) {
      stretch().losses[static_cast<std::size_t>(step_)] = sum;
      stretch().end = step_ + 1;
    }
    ++step_;
  }

  /// Keeps the last two checkpoints: a rank that is lost meanwhile may keep some of the others from the
  /// newest.
  void save() {
    const tutti::ParameterShard& shard = optimizer_.shards()[0];
    const tutti::Tensor momentum = tutti::empty_like(optimizer_.flat_parameters(0));
    communicator_.all_gather({shard.state[0]}, {momentum});
    Checkpoint checkpoint{.step = step_};
    parameters().copy_to(checkpoint.parameters);
    momentum.narrow(0, 0, features).copy_to(checkpoint.momentum);
    communicator_.check();
    checkpoints_ = {checkpoints_[1], checkpoint};
  }

  void go_on_without_the_lost() {
    communicator_ = communicator_.shrink();
    // All go on from the newest checkpoint that every one of them has.
    const tutti::Tensor newest =
        tutti::full({1}, checkpoints_[1].step, {.dtype = tutti::DType::int32, .device = device()});
    communicator_.all_reduce({newest}, {newest}, tutti::ReduceOp::min);
    const int common = newest.item<std::int32_t>();
    communicator_.check();
    load(checkpoints_[checkpoints_[1].step == common ? 1 : 0]);
  }

  void load(const Checkpoint& checkpoint) {
    checkpoints_ = {checkpoint, checkpoint};
    step_ = checkpoint.step;
    parameters().copy_from(checkpoint.parameters);
    optimizer_.rescale(communicator_, [&](const tutti::ParameterShard& shard) {
      std::vector<float> momentum(static_cast<std::size_t>(shard.state[0].numel()));
      const auto begin = std::min<std::size_t>(static_cast<std::size_t>(shard.begin), features);
      const auto count = std::min<std::size_t>(momentum.size(), features - begin);
      std::copy_n(checkpoint.momentum.begin() + static_cast<std::ptrdiff_t>(begin), count, momentum.begin());
      shard.state[0].copy_from(momentum);
    });
    if (communicator_.rank() == 0) {
      ++record_.count;
      stretch() = {.ranks = communicator_.rank_count(), .start = checkpoint, .end = checkpoint.step};
    }
  }

  [[nodiscard]] Stretch& stretch() {
    return record_.stretches.at(static_cast<std::size_t>(record_.count - 1));
  }

  tutti::Communicator communicator_;
  tutti::ShardedOptimizer optimizer_;
  std::array<Checkpoint, 2> checkpoints_;
  int step_ = 0;
  const int end_;
  const int dies_at_;
  Record& record_;
};

/// Trains the stretch again, undisturbed. Returns whether the losses are the same bits.
bool is_repeated(const Stretch& stretch, Record& again) {
  again = Record{};
  example::run_ranks(stretch.ranks, [&](tutti::Exchange& exchange) {
    Trainer(exchange, stretch.start, stretch.end, -1, again).run();
  });
  const auto bits = [](float loss) { return std::bit_cast<std::uint32_t>(loss); };
  return std::ranges::equal(stretch.losses.begin() + stretch.start.step, stretch.losses.begin() + stretch.end,
                            again.stretches[0].losses.begin() + stretch.start.step,
                            again.stretches[0].losses.begin() + stretch.end, {}, bits, bits);
}

}  // namespace

int main() {
  try {
    auto* const records = new (example::shared_memory(2 * sizeof(Record))) Record[2]{};
    // Two of four ranks are killed; the record stays with rank 0, which is not.
    std::random_device seed;
    std::array<int, example::most_ranks> dies_at{-1, -1, -1, -1};
    const auto first = 1 + seed() % 3;
    dies_at[first] = static_cast<int>(seed() % steps);
    dies_at[1 + first % 3] = static_cast<int>(seed() % steps);
    const int killed = example::run_ranks(example::most_ranks, [&](tutti::Exchange& exchange) {
      Trainer(exchange, {}, steps, dies_at[static_cast<std::size_t>(exchange.rank())], records[0]).run();
    });
    for (int i = 0; i < records[0].count; ++i) {
      const Stretch& stretch = records[0].stretches[static_cast<std::size_t>(i)];
      const bool is_same = is_repeated(stretch, records[1]);
      std::cout << stretch.ranks << " ranks, steps " << stretch.start.step << " to " << stretch.end - 1
                << ", last loss " << stretch.losses[static_cast<std::size_t>(std::max(stretch.end - 1, 0))]
                << (is_same ? ": the bits of an undisturbed run\n"
                            : ": other bits than an undisturbed run\n");
      if (!is_same) return EXIT_FAILURE;
    }
    std::cout << killed << " of " << example::most_ranks << " ranks were killed\n";
    const Stretch& last = records[0].stretches[static_cast<std::size_t>(records[0].count - 1)];
    return killed == 2 && last.end == steps && last.ranks == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
