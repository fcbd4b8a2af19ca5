// SPDX-License-Identifier: Apache-2.0
// A trainer whose ranks are killed at random steps. After the first loss, the others go on in the same
// processes, as a smaller communicator; after the second, a spare process takes the lost rank's place. They
// go on from replicas that each rank keeps of another one's state. Their losses are, bit for bit, those of a
// run of as many ranks that is started at that step and that nothing disturbs.

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
#include <utility>
#include <vector>

namespace {

constexpr int features = 200;
constexpr int samples_per_step = 24;
constexpr int steps = 60;
constexpr int steps_per_replica = 5;

using Values = std::array<float, features>;

/// Holds what training goes on from: the parameters and the optimiser's momentum before a step.
struct Checkpoint {
  int step = 0;
  Values parameters{};
  Values momentum{};
};

/// What a communicator of `ranks` has done, from a step on: written by its rank 0 for the parent process.
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

tutti::CommunicatorOptions options_of_rank(int rank) {
  return {.devices = {tutti::Device(rank % tutti::device_count())},
          .determinism = tutti::Determinism::bitwise};
}

class Trainer {
 public:
  /// `dies_at`: the step in which this rank is killed; negative: it is not.
  Trainer(tutti::Communicator communicator, const tutti::MeetingPoint& spares, const Checkpoint& start,
          int end, int dies_at, Record& record)
      : communicator_(std::move(communicator)),
        spares_(spares),
        optimizer_(
            communicator_, {tutti::tensor(start.parameters, {.device = device()})},
            {.operation = tutti::ReduceOp::sum, .state_count = 1, .steps_per_replica = steps_per_replica}),
        start_(start),
        end_(end),
        dies_at_(dies_at),
        record_(record) {
    if (optimizer_.steps() == 0) load_start();  // else it goes on where the others do
    begin_stretch();
  }

  void run() {
    // A loss in the last step is noticed after the step has been counted.
    while (step_number() < end_ || !communicator_.is_running()) {
      try {
        if (communicator_.is_running()) {
          step();
        } else {
          go_on_after_a_loss();
        }
      } catch (const tutti::Error&) {
        if (communicator_.is_running()) throw;  // it is not about the other ranks
      }
    }
  }

 private:
  [[nodiscard]] tutti::Device device() const { return communicator_.devices().front(); }
  [[nodiscard]] const tutti::Tensor& parameters() const { return optimizer_.parameters(0)[0]; }
  [[nodiscard]] int step_number() const { return start_.step + static_cast<int>(optimizer_.steps()); }

  void step() {
    const int number = step_number();
    if (number == dies_at_) std::raise(SIGKILL);
    Values values{};
    parameters().copy_to(values);
    Values gradients{};
    const float own_loss =
        backward(values, number, communicator_.rank(), communicator_.rank_count(), gradients);
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
      stretch().losses[static_cast<std::size_t>(number)] = sum;
      stretch().end = number + 1;
    }
  }

  /// All go on from the newest replicas that every one of them had. If some are lost, they begin again.
  void go_on_after_a_loss() {
    const bool is_first = communicator_.rank_count() == example::most_ranks;
    communicator_ = is_first ? communicator_.shrink() : communicator_.replace({.meeting_point = spares_});
    if (!optimizer_.rescale(communicator_)) load_start();
    begin_stretch();
  }

  void load_start() {
    parameters().copy_from(start_.parameters);
    optimizer_.rescale(communicator_, [&](const tutti::ParameterShard& shard) {
      std::vector<float> momentum(static_cast<std::size_t>(shard.state[0].numel()));
      const auto begin = std::min<std::size_t>(static_cast<std::size_t>(shard.begin), features);
      const auto count = std::min<std::size_t>(momentum.size(), features - begin);
      std::copy_n(start_.momentum.begin() + static_cast<std::ptrdiff_t>(begin), count, momentum.begin());
      shard.state[0].copy_from(momentum);
    });
  }

  void begin_stretch() {
    const tutti::Tensor momentum = tutti::empty_like(optimizer_.flat_parameters(0));
    communicator_.all_gather({optimizer_.shards()[0].state[0]}, {momentum});
    Checkpoint checkpoint{.step = step_number()};
    parameters().copy_to(checkpoint.parameters);
    momentum.narrow(0, 0, features).copy_to(checkpoint.momentum);
    communicator_.check();
    if (communicator_.rank() != 0) return;
    ++record_.count;
    stretch() = {.ranks = communicator_.rank_count(), .start = checkpoint, .end = checkpoint.step};
  }

  [[nodiscard]] Stretch& stretch() {
    return record_.stretches.at(static_cast<std::size_t>(record_.count - 1));
  }

  tutti::Communicator communicator_;
  const tutti::MeetingPoint spares_;
  tutti::ShardedOptimizer optimizer_;
  const Checkpoint start_;
  const int end_;
  const int dies_at_;
  Record& record_;
};

/// Trains the stretch again, undisturbed. Returns whether the losses are the same bits.
bool is_repeated(const Stretch& stretch, Record& again) {
  again = Record{};
  example::run_ranks(stretch.ranks, [&](tutti::Exchange& exchange) {
    tutti::Communicator communicator(exchange, options_of_rank(exchange.rank()));
    Trainer(std::move(communicator), {}, stretch.start, stretch.end, -1, again).run();
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
    // Two of four ranks are killed, one after the other; the record stays with rank 0, which is not.
    std::random_device seed;
    std::array<int, example::most_ranks> dies_at{-1, -1, -1, -1};
    const auto first = 1 + seed() % 3;
    dies_at[first] = static_cast<int>(seed() % (steps / 2));
    dies_at[1 + first % 3] = steps / 2 + static_cast<int>(seed() % (steps / 2));
    const tutti::MeetingPoint spares{.port = example::free_port()};
    const int killed = example::run_ranks(
        example::most_ranks,
        [&](tutti::Exchange& exchange) {
          tutti::Communicator communicator(exchange, options_of_rank(exchange.rank()));
          Trainer(std::move(communicator), spares, {}, steps,
                  dies_at[static_cast<std::size_t>(exchange.rank())], records[0])
              .run();
        },
        [&] {
          auto communicator = tutti::Communicator::join({.meeting_point = spares}, options_of_rank(1));
          Trainer(std::move(communicator), spares, {}, steps, -1, records[0]).run();
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
    return killed == 2 && last.end == steps && last.ranks == 3 ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
