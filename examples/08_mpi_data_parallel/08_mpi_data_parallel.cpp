// SPDX-License-Identifier: Apache-2.0
// Data-parallel training with one process per device:
//
//   mpirun -np 4 08_mpi_data_parallel [--optimizer KIND] [--steps N] [--checkpoint FILE] [--resume FILE]
//
// Every process holds the parameters and a part of the data; in every step it computes the gradients of its
// part, all gradients are added up among the processes, and every process makes the same step: of all
// parameters, or with a sharded optimiser of its part of them, which it then tells the others. At the end all
// hold the same parameters, and these are the ones that a single process finds (../06_data_parallel), bit for
// bit. With a checkpoint, a run that was interrupted ends where it would have ended, on any number of
// processes.

#include "06_data_parallel/training.hpp"
#include "checkpoint.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace {

constexpr int steps_between_checkpoints = 50;

constexpr const char* usage =
    R"(usage: mpirun -np RANKS 08_mpi_data_parallel [--optimizer KIND] [--steps N] [--checkpoint FILE] [--resume FILE]

Trains with one process per device, and checks that all of them, and a single one, find the same parameters.
  --optimizer KIND   replicated: every process updates all parameters (default); sharded: each its part
  --steps N          how many steps (default: as many as it takes)
  --checkpoint FILE  write the parameters there every 50 steps and at the end
  --resume FILE      go on from what --checkpoint wrote
  -h, --help         print this and exit
)";

struct Options {
  bool is_sharded = false;
  int steps = training::steps_to_converge;
  std::string checkpoint;
  std::string resume;
};

/// A mistake on the command line, which all processes find alike.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int parse_steps(const std::string& text) {
  int steps = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, steps);
  if (error != std::errc() || rest != end || steps < 0)
    throw UsageError("--steps: '" + text + "' is not valid: expected a whole number, 0 or more");
  return steps;
}

bool parse_is_sharded(const std::string& kind) {
  if (kind != "replicated" && kind != "sharded")
    throw UsageError("--optimizer: '" + kind + "' is not valid: expected replicated or sharded");
  return kind == "sharded";
}

bool wants_help(const std::vector<std::string>& arguments) {
  return std::ranges::any_of(
      arguments, [](const std::string& argument) { return argument == "--help" || argument == "-h"; });
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string& value = arguments[i + 1];
    if (arguments[i] == "--steps") {
      options.steps = parse_steps(value);
    } else if (arguments[i] == "--optimizer") {
      options.is_sharded = parse_is_sharded(value);
    } else if (arguments[i] == "--checkpoint") {
      options.checkpoint = value;
    } else if (arguments[i] == "--resume") {
      options.resume = value;
    } else {
      throw UsageError("unknown option " + arguments[i] + " (try --help)");
    }
  }
  if (arguments.size() % 2 != 0) throw UsageError(arguments.back() + " needs a value");
  return options;
}

/// One process's share of the training. Rank 0 reads and writes files.
class Trainer {
 public:
  explicit Trainer(tutti::Communicator& communicator)
      : communicator_(communicator),
        device_(communicator.devices().front()),
        parameters_(training::zero_parameters(device_)),
        step_(tutti::zeros({1}, {.dtype = tutti::DType::int64, .device = device_})) {
    take_part_of_data();
  }

  /// Rank 0's parameters and step become those of all.
  void start(const std::string& resume) {
    if (communicator_.rank() == 0 && !resume.empty()) {
      const Checkpoint checkpoint = load(resume);
      parameters_.weights.copy_from(checkpoint.weights);
      parameters_.bias.copy_from(checkpoint.bias);
      step_.fill_(checkpoint.step);
    }
    tutti::replicate(communicator_, {{parameters_.weights, parameters_.bias, step_}});
  }

  [[nodiscard]] std::int64_t steps_done() const { return step_.item<std::int64_t>(); }

  /// Every process updates all parameters, by gradients that all-reduces have added up.
  void train_replicated(int steps, const std::string& checkpoint) {
    const tutti::TensorOptions fixed_point{.dtype = tutti::DType::int64, .device = device_};
    const std::vector<tutti::Tensor> gradients{tutti::empty({training::features}, fixed_point),
                                               tutti::empty({1}, fixed_point)};
    tutti::GradientBuckets buckets(communicator_, gradients, {.operation = tutti::ReduceOp::sum});
    const Kernels& kernels = training::kernels();
    for (int step = static_cast<int>(steps_done()); step < steps; ++step) {
      kernels.compute_gradients(parameters_.weights, parameters_.bias, inputs_, targets_, gradients[0],
                                gradients[1]);
      buckets.ready(0, 1);
      buckets.ready(0, 0);
      buckets.synchronize();
      kernels.step(parameters_.weights, gradients[0], training::samples, training::rate);
      kernels.step(parameters_.bias, gradients[1], training::samples, training::rate);
      save_if_due(step + 1, steps, checkpoint);
    }
  }

  /// Every process updates its part of the parameters.
  void train_sharded(int steps, const std::string& checkpoint) {
    tutti::ShardedOptimizer optimizer(
        communicator_, {parameters_.weights, parameters_.bias},
        {.operation = tutti::ReduceOp::sum, .gradient_dtype = tutti::DType::int64});
    parameters_ = {optimizer.parameters(0)[0], optimizer.parameters(0)[1]};
    const std::vector<tutti::Tensor>& gradients = optimizer.gradients(0);
    const Kernels& kernels = training::kernels();
    for (int step = static_cast<int>(steps_done()); step < steps; ++step) {
      kernels.compute_gradients(parameters_.weights, parameters_.bias, inputs_, targets_, gradients[0],
                                gradients[1]);
      optimizer.step([&](const tutti::ParameterShard& shard) {
        kernels.step(shard.parameters, shard.gradients, training::samples, training::rate);
      });
      save_if_due(step + 1, steps, checkpoint);
    }
  }

  [[nodiscard]] const training::Parameters& parameters() const noexcept { return parameters_; }

  /// Every process compares all processes' parameters with its own.
  [[nodiscard]] bool all_have_the_same() {
    const std::int64_t ranks = communicator_.rank_count();
    const tutti::Tensor weights = tutti::empty({ranks * training::features}, {.device = device_});
    const tutti::Tensor bias = tutti::empty({ranks}, {.device = device_});
    communicator_.all_gather({parameters_.weights}, {weights});
    communicator_.all_gather({parameters_.bias}, {bias});
    bool same = true;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      same = same && training::Parameters{weights.narrow(0, rank * training::features, training::features),
                                          bias.narrow(0, rank, 1)} == parameters_;
    }
    communicator_.check();
    return same;
  }

 private:
  void save_if_due(int done, int steps, const std::string& checkpoint) {
    const bool is_due = done % steps_between_checkpoints == 0 || done == steps;
    if (communicator_.rank() != 0 || checkpoint.empty() || !is_due) return;
    const Checkpoint reached{.step = done,
                             .weights = parameters_.weights.to_vector<float>(),
                             .bias = parameters_.bias.to_vector<float>()};
    communicator_.check();  // of a call that was ended, the sums may be anything
    save(reached, checkpoint);
  }

  void take_part_of_data() {
    const std::int64_t ranks = communicator_.rank_count();
    const std::int64_t part = (training::samples + ranks - 1) / ranks;
    const std::int64_t begin = std::min(communicator_.rank() * part, training::samples);
    const std::int64_t count = std::min(part, training::samples - begin);
    inputs_ = tutti::empty({count, training::features}, {.device = device_});
    targets_ = tutti::empty({count}, {.device = device_});
    training::Data all;
    if (communicator_.rank() == 0) {
      all = training::make_data();
      all.inputs = all.inputs.to(device_);
      all.targets = all.targets.to(device_);
    }
    communicator_.scatter(all.inputs, {inputs_}, 0);
    communicator_.scatter(all.targets, {targets_}, 0);
  }

  tutti::Communicator& communicator_;
  tutti::Device device_;
  training::Parameters parameters_;
  tutti::Tensor step_;
  tutti::Tensor inputs_;
  tutti::Tensor targets_;
};

/// The same training by this process alone, on one device.
bool equals_that_of_one_device(const training::Parameters& parameters, int steps) {
  return training::train(training::make_data(), {tutti::Device(0)}, steps) == parameters;
}

std::string bits_of(const training::Parameters& parameters) {
  std::string text;
  std::vector<float> values = parameters.weights.to_vector<float>();
  values.push_back(parameters.bias.item<float>());
  for (const float value : values) {
    std::array<char, 32> digits{};
    std::snprintf(digits.data(), digits.size(), " %a", static_cast<double>(value));
    text += digits.data();
  }
  return text;
}

bool run(const Options& options) {
  tutti::Communicator communicator = tutti::mpi::make_communicator(MPI_COMM_WORLD);
  tutti::set_device(communicator.devices().front().index());
  std::cout << "rank " + std::to_string(communicator.rank()) + " is process " + std::to_string(getpid()) +
                   "\n"
            << std::flush;

  Trainer trainer(communicator);
  trainer.start(options.resume);
  if (trainer.steps_done() > options.steps) {
    throw UsageError("--steps is " + std::to_string(options.steps) + ", but " + options.resume + " has " +
                     std::to_string(trainer.steps_done()) + " steps behind it already");
  }
  if (options.is_sharded) {
    trainer.train_sharded(options.steps, options.checkpoint);
  } else {
    trainer.train_replicated(options.steps, options.checkpoint);
  }

  bool is_right = trainer.all_have_the_same();
  if (communicator.rank() == 0) {
    const bool same = equals_that_of_one_device(trainer.parameters(), options.steps);
    std::cout << communicator.rank_count() << " processes, " << options.steps << " steps: "
              << (training::has_converged(trainer.parameters()) ? "converged" : "not converged yet")
              << ", weights " << (is_right ? "equal" : "differ") << " on all and "
              << (same ? "equal" : "differ from")
              << " those of one device bit for bit\nweights:" << bits_of(trainer.parameters()) << '\n';
    is_right = is_right && same;
  }
  return is_right;
}

}  // namespace

int main(int argc, char** argv) {
  // On one host MPI_Init is enough. Between several, a thread of the communicator's calls MPI too.
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  // When a process is lost, mpirun sends SIGTERM to all others. They are about to hear of it, and say so.
  std::signal(SIGTERM, SIG_IGN);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (wants_help(arguments)) {
    if (rank == 0) std::cout << usage << std::flush;
    MPI_Finalize();
    return 0;
  }
  try {
    const bool is_right = run(parse(arguments));
    MPI_Finalize();
    return is_right ? 0 : 1;
  } catch (const UsageError& error) {
    if (rank == 0) std::cerr << std::string("08_mpi_data_parallel: ") + error.what() + "\n" << std::flush;
    MPI_Finalize();
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "rank " + std::to_string(rank) + ": " + error.what() + "\n" << std::flush;
    std::_Exit(1);  // without MPI_Finalize, which waits for the lost process: mpirun ends the job
  }
}
