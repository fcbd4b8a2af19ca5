// SPDX-License-Identifier: Apache-2.0
#include "tutti/rng.hpp"

#include "backend/philox.hpp"
#include "device/current_device.hpp"
#include "os/floating_point_environment.hpp"
#include "rng/random_draws.hpp"
#include "tensor/tensor_factory.hpp"
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
  return Runtime::get().part<Generators>();
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

}  // namespace

PhiloxState take_random_words(Runtime& runtime, int device, std::uint64_t words) {
  return runtime.part<Generators>().of(device).take(words);
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

}  // namespace tutti
