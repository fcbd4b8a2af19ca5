// SPDX-License-Identifier: Apache-2.0
#include "tutti/rng.hpp"

#include "backend/floating_point.hpp"
#include "backend/philox.hpp"
#include "random_draws.hpp"
#include "tensor_factory.hpp"
#include "thread_current.hpp"
#include "tutti/error.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr int every_device = -1;
constexpr int current_at_start = -2;

/// A call to a seeding function.
struct Seeding {
  int device = every_device;
  std::uint64_t seed = 0;
};

/// Seedings made while there was no runtime, in order.
struct RememberedSeedings {
  std::mutex mutex;
  std::vector<Seeding> seedings;
};

RememberedSeedings& remembered_seedings() {
  static RememberedSeedings remembered;
  return remembered;
}

/// The generator of one device.
class Generator {
 public:
  [[nodiscard]] PhiloxState state() {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  void set_state(PhiloxState state) {
    const std::lock_guard lock(mutex_);
    state_ = state;
  }
  /// The state to draw from; the next caller draws from `words` later.
  [[nodiscard]] PhiloxState take(std::uint64_t words) {
    const std::lock_guard lock(mutex_);
    const PhiloxState taken = state_;
    state_.offset += words;
    return taken;
  }

 private:
  std::mutex mutex_;
  PhiloxState state_{.seed = default_rng_seed};
};

/// The generators of a runtime's devices.
class Generators {
 public:
  explicit Generators(Runtime& runtime) : generators_(static_cast<std::size_t>(runtime.device_count())) {
    RememberedSeedings& remembered = remembered_seedings();
    const std::lock_guard lock(remembered.mutex);
    for (Seeding seeding : remembered.seedings) {
      if (seeding.device == current_at_start) seeding.device = current_index(runtime);
      apply(seeding);
    }
    remembered.seedings.clear();
  }

  [[nodiscard]] std::vector<Generator>& all() noexcept { return generators_; }
  [[nodiscard]] Generator& of(int device) { return generators_[static_cast<std::size_t>(device)]; }

  /// Does nothing for a device that does not exist.
  void apply(const Seeding& seeding) {
    for (std::size_t device = 0; device < generators_.size(); ++device) {
      if (seeding.device == every_device || static_cast<std::size_t>(seeding.device) == device) {
        generators_[device].set_state({.seed = seeding.seed, .offset = 0});
      }
    }
  }

 private:
  std::vector<Generator> generators_;
};

Generators& generators() {
  return Runtime::get().extension<Generators>();
}

/// Remembers `seeding` if there is no runtime yet. The lock makes a runtime that another thread creates
/// meanwhile wait with its generators until the seeding is in the list.
bool remember_before_initialization(const Seeding& seeding) {
  RememberedSeedings& remembered = remembered_seedings();
  const std::lock_guard lock(remembered.mutex);
  if (Runtime::get_if_initialized() != nullptr) return false;
  // Only the last seeding of a device counts.
  std::erase_if(remembered.seedings, [&](const Seeding& earlier) {
    return seeding.device == every_device || earlier.device == seeding.device;
  });
  remembered.seedings.push_back(seeding);
  return true;
}

std::uint64_t seed_from_entropy() {
  std::random_device entropy;
  const std::uint64_t high = entropy();
  return high << 32U | entropy();
}

Generator& generator_of(Device device, std::string_view function) {
  return generators().of(index_of(Runtime::get(), device, function));
}

static_assert(std::endian::native == std::endian::little, "RngState is defined as little endian");
static_assert(sizeof(PhiloxState) == sizeof(RngState));

RngState pack(const PhiloxState& state) {
  return std::bit_cast<RngState>(state);
}

PhiloxState unpack(const RngState& bytes, std::string_view function) {
  const auto state = std::bit_cast<PhiloxState>(bytes);
  if (state.offset % 4 != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: the state's offset is {}, expected a multiple of 4", function, state.offset));
  }
  return state;
}

/// The largest finite number of a floating-point element type that can be filled.
double largest_of(const Tensor& tensor, std::string_view function) {
  switch (tensor.dtype()) {
    case DType::float16:
      return static_cast<double>(static_cast<float>(std::bit_cast<Float16>(std::uint16_t{0x7bff})));
    case DType::bfloat16:
      return static_cast<double>(static_cast<float>(std::bit_cast<BFloat16>(std::uint16_t{0x7f7f})));
    case DType::float32:
      return std::numeric_limits<float>::max();
    case DType::float64:
      return std::numeric_limits<double>::max();
    default:
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: the tensor holds {}, expected float16, bfloat16, float32 or float64",
                              function, name_of(tensor.dtype())));
  }
}

void require_fillable(const Tensor& tensor, std::string_view function) {
  require_defined(tensor, function, "the tensor");
  if (tensor.device().is_host()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the tensor is on the host, expected a device", function));
  }
  Runtime::get().require_device(tensor.device(), function);
  if (!tensor.layout()->is_dense()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the tensor has sizes {} and strides {}, expected a dense tensor", function,
                            to_string(tensor.sizes()), to_string(tensor.strides())));
  }
}

void require_within(double value, double largest, std::string_view function, std::string_view argument,
                    DType dtype) {
  if (std::abs(value) <= largest) return;  // false for NaN
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} is {}, expected a finite {}", function, argument, value, name_of(dtype)));
}

/// The width counts in the arithmetic that makes the elements: float32's, but for float64.
[[gnu::noinline]] bool is_too_wide(double low, double high, double largest, DType dtype) {
  return dtype == DType::float64 ? high - low > largest
                                 : static_cast<float>(high) - static_cast<float>(low) > largest;
}

void random_fill(const Tensor& tensor, backend::Distribution distribution, double first, double second,
                 std::string_view function) {
  if (tensor.numel() == 0) return;
  Runtime& runtime = Runtime::get();
  const int device = tensor.device().index();
  const backend::StreamRef stream = current_stream_ref(runtime, device);
  backend::RandomFill task{.target = static_cast<std::byte*>(tensor.data()),
                           .count = static_cast<std::size_t>(tensor.numel()),
                           .dtype = tensor.dtype(),
                           .distribution = distribution,
                           .first = first,
                           .second = second};
  const std::uint64_t words = backend::random_offset_advance(task.dtype, task.count);
  if (const auto graph = runtime.captures().of(stream)) {
    if (graph->launches() != GraphLaunches::of_library) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: the stream of device {} is being captured, but not by Graph::capture: "
                              "only the launches of a Graph advance the generator",
                              function, device));
    }
    const RandomDraws::Place place = graph->draws().add(stream, words);
    task.state = place.state;
    task.offset = place.offset;
  } else {
    const PhiloxState state = take_random_words(runtime, device, words);
    task.seed = state.seed;
    task.offset = state.offset;
  }
  runtime.backend().random_fill(stream, task);
}

}  // namespace

PhiloxState take_random_words(Runtime& runtime, int device, std::uint64_t words) {
  return runtime.extension<Generators>().of(device).take(words);
}

void manual_seed(std::uint64_t seed) {
  if (remember_before_initialization({.device = current_at_start, .seed = seed})) return;
  if (device_count() == 0) return;
  generators().apply({.device = current_device(), .seed = seed});
}

void manual_seed_all(std::uint64_t seed) {
  const Seeding seeding{.device = every_device, .seed = seed};
  if (!remember_before_initialization(seeding)) generators().apply(seeding);
}

std::uint64_t seed() {
  const std::uint64_t fresh = seed_from_entropy();
  manual_seed(fresh);
  return fresh;
}

std::uint64_t seed_all() {
  const std::uint64_t fresh = seed_from_entropy();
  manual_seed_all(fresh);
  return fresh;
}

std::uint64_t initial_seed() {
  return generator_of(Device::current(), "initial_seed").state().seed;
}

RngState get_rng_state(Device device) {
  return pack(generator_of(device, "get_rng_state").state());
}

std::vector<RngState> get_rng_state_all() {
  std::vector<RngState> states;
  for (Generator& generator : generators().all()) states.push_back(pack(generator.state()));
  return states;
}

void set_rng_state(const RngState& state, Device device) {
  const PhiloxState unpacked = unpack(state, "set_rng_state");
  generator_of(device, "set_rng_state").set_state(unpacked);
}

void set_rng_state_all(const std::vector<RngState>& states) {
  std::vector<Generator>& all = generators().all();
  if (states.size() != all.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("set_rng_state_all: {} states are given, expected {}, one per device",
                            states.size(), all.size()));
  }
  std::vector<PhiloxState> unpacked;
  for (const RngState& state : states) unpacked.push_back(unpack(state, "set_rng_state_all"));
  for (std::size_t device = 0; device < all.size(); ++device) all[device].set_state(unpacked[device]);
}

void uniform_(const Tensor& tensor, double low, double high) {
  require_fillable(tensor, "uniform_");
  const double largest = largest_of(tensor, "uniform_");
  require_within(low, largest, "uniform_", "low", tensor.dtype());
  require_within(high, largest, "uniform_", "high", tensor.dtype());
  const backend::FloatingPointScope scope;
  if (low > high || is_too_wide(low, high, largest, tensor.dtype())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("uniform_: low is {} and high is {}, expected low <= high and high - low <= {}",
                            low, high, largest));
  }
  random_fill(tensor, backend::Distribution::uniform, low, high, "uniform_");
}

void normal_(const Tensor& tensor, double mean, double standard_deviation) {
  require_fillable(tensor, "normal_");
  const double largest = largest_of(tensor, "normal_");
  require_within(mean, largest, "normal_", "mean", tensor.dtype());
  require_within(standard_deviation, largest, "normal_", "standard_deviation", tensor.dtype());
  if (standard_deviation < 0.0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("normal_: standard_deviation is {}, expected 0 or more", standard_deviation));
  }
  random_fill(tensor, backend::Distribution::normal, mean, standard_deviation, "normal_");
}

}  // namespace tutti
