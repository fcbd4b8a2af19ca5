// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Random numbers: one Philox4x32-10 generator per device. The same seed gives the same bits on GPUs, on
/// virtual devices and for any launch shape. Thread-safe.
///
/// Philox turns a counter into four 32-bit words. A generator is a seed, which selects a stream of words, and
/// an offset, the number of words used so far. A fill takes words from the offset on: one per element for
/// float16, bfloat16 and float32, two for float64, for others as their comments say. It then advances the
/// offset by as many, rounded up to a multiple of 4. So a tensor filled at once equals its parts filled one
/// after the other, if all parts but the last take a multiple of 4 words.
///
/// A fill uses the state at the time of the call. A fill that is recorded in a graph of the library (`Graph`,
/// `CUDAGraph`, `make_graphed_callables`) uses the state at each launch. The launch then advances the offset
/// by the words of all fills of the graph, as the calls themselves would have: a mix of launches and calls
/// gives the numbers that calls alone would give. The capture itself advances nothing; setting seeds and
/// states during a capture takes effect at once, not when the graph is launched. In a stream that is being
/// captured by other means, a fill throws Error(unsupported), because nothing would advance the offset when
/// that graph is launched.
namespace tutti {

/// Seed of every generator until the program sets one.
inline constexpr std::uint64_t default_rng_seed = 67280421310721;

/// A generator's state: the 64-bit seed, then the 64-bit offset, little endian; the offset is a multiple of
/// 4.
using RngState = std::array<std::byte, 16>;

/// Seeds the current device's generator and sets its offset to 0. Before initialisation, the call is
/// remembered and applied, in order, when the generators are first needed, to the device that is current then
/// on the thread that needs them; without any device it is silently accepted.
TUTTI_EXPORT void manual_seed(std::uint64_t seed);
TUTTI_EXPORT void manual_seed_all(std::uint64_t seed);
/// Seeds from the system's entropy and returns the seed; `seed_all` gives every device the same one.
TUTTI_EXPORT std::uint64_t seed();
TUTTI_EXPORT std::uint64_t seed_all();
/// Returns the current device's seed.
[[nodiscard]] TUTTI_EXPORT std::uint64_t initial_seed();

/// Get and set the state of a device's generator. They throw Error(invalid_argument) for an unknown device;
/// setting also throws it, and changes nothing, for an offset that is not a multiple of 4 or if there are
/// more or fewer states than devices.
[[nodiscard]] TUTTI_EXPORT RngState get_rng_state(Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT std::vector<RngState> get_rng_state_all();
TUTTI_EXPORT void set_rng_state(const RngState& state, Device device = Device::current());
TUTTI_EXPORT void set_rng_state_all(const std::vector<RngState>& states);

/// Fill a tensor on a device, in stream order, and advance the device's offset. Elements are numbered as they
/// lie in memory, or, if the tensor is not dense, in index order: a dense temporary is then filled and
/// copied. All throw Error(invalid_argument) for a tensor that is undefined, on the host, read-only or of an
/// unsupported element type.
///
/// `uniform_` draws uniformly from [low, high), with the bounds rounded to the element type; `normal_` draws
/// from a normal distribution. Both support float16, bfloat16, float32 and float64. They throw
/// Error(invalid_argument) for low > high, a range wider than the element type's greatest value, a negative
/// deviation, and for parameters that are not finite.
TUTTI_EXPORT void uniform_(const Tensor& tensor, double low = 0.0, double high = 1.0);
TUTTI_EXPORT void normal_(const Tensor& tensor, double mean = 0.0, double standard_deviation = 1.0);
/// Draws integers from [low, high), for the integer types. All are equally likely; if there are at most 2^32
/// of them, the probability of each deviates by less than one part in 2^32. Takes two words per element.
/// Throws Error(invalid_argument) unless low < high and the element type holds both `low` and `high` - 1; of
/// uint64, no more than 2^63 - 2 can be drawn.
TUTTI_EXPORT void random_(const Tensor& tensor, std::int64_t low, std::int64_t high);
/// Draws 1 with the given probability, which is rounded to a multiple of 2^-32, else 0, for all element types
/// but complex ones. Takes one word per element. Throws Error(invalid_argument) for a probability outside [0,
/// 1].
TUTTI_EXPORT void bernoulli_(const Tensor& tensor, double probability = 0.5);

/// Make tensors filled by `uniform_` (in [0, 1)), `normal_` (mean 0, deviation 1) and `random_`; `options`
/// name the device. They throw what these throw, and what `tutti::empty` throws.
[[nodiscard]] TUTTI_EXPORT Tensor rand(IntList sizes, const TensorOptions& options);
[[nodiscard]] TUTTI_EXPORT Tensor randn(IntList sizes, const TensorOptions& options);
[[nodiscard]] TUTTI_EXPORT Tensor randint(std::int64_t low, std::int64_t high, IntList sizes,
                                          const TensorOptions& options);
/// Do the same for tensors that are made like `other`, as by `empty_like`.
[[nodiscard]] TUTTI_EXPORT Tensor rand_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor randn_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor randint_like(const Tensor& other, std::int64_t low, std::int64_t high,
                                               const LikeOptions& options = {});

}  // namespace tutti
