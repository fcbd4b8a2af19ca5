// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/number_formats.hpp"
#include "support/values/random.hpp"
#include "support/values/reference_sum.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

/// What copies of tensors deliver, and what they refuse.
namespace tutti {
namespace {

using test::HostArray;
using test::Placement;
using test::refuses;
using test::Sizes;
using test::TestTensor;

constexpr auto invalid = ErrorCode::invalid_argument;

/// Where a tensor can be.
struct Place {
  Device device;
  HostMemory host_memory = HostMemory::pageable;
};

std::vector<Place> places() {
  std::vector<Place> result{{Device::host()}, {Device::host(), HostMemory::pinned}};
  for (const Device device : test::first_devices(2)) result.push_back({device});
  return result;
}

std::string name_of(const Place& place) {
  return place.host_memory == HostMemory::pinned ? "pinned host" : to_string(place.device);
}

constexpr Placement target_placements[] = {Placement::contiguous, Placement::misaligned, Placement::gapped,
                                           Placement::transposed, Placement::channels_last};

void expect_copies(DType dtype, const HostArray& values, Placement source_placement,
                   Placement target_placement) {
  for (const Place& from : places()) {
    for (const Place& to : places()) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " from " + name_of(from) + " to " + name_of(to) + ", " +
                   std::string(test::name_of(source_placement)) + " to " +
                   std::string(test::name_of(target_placement)));
      const TestTensor source(values, from.device, source_placement, from.host_memory);
      const auto target =
          TestTensor::poisoned(dtype, values.sizes, to.device, target_placement, to.host_memory);
      target.tensor().copy_(source);
      ASSERT_TRUE(target.holds(values));
      ASSERT_TRUE(source.untouched());
    }
  }
}

TEST(TensorCopy, MovesEveryElementTypeBetweenAllPlaces) {
  for (const DType dtype : all_dtypes) {
    expect_copies(dtype, test::random_bits(dtype, {37}, test::test_seed()), Placement::contiguous,
                  Placement::contiguous);
  }
}

TEST(TensorCopy, MovesBetweenAllLayoutsInAllPlaces) {
  for (const DType dtype :
       {DType::uint8, DType::float16, DType::float32, DType::float64, DType::complex128}) {
    const HostArray values = test::random_bits(dtype, {2, 3, 4, 5}, test::test_seed());
    for (const Placement source : target_placements) {
      for (const Placement target : target_placements) expect_copies(dtype, values, source, target);
    }
  }
}

TEST(TensorCopy, ReadsExpandedSources) {
  const HostArray row = test::random_bits(DType::int32, {1, 3, 4, 5}, test::test_seed());
  const std::vector<HostArray> rows(3, row);
  const HostArray repeated = test::concatenate(rows, 0);
  for (const Placement target : target_placements)
    expect_copies(DType::int32, repeated, Placement::expanded, target);
}

TEST(TensorCopy, MovesScalarsAndNothing) {
  for (const Sizes& sizes : {Sizes{}, Sizes{1, 1}, Sizes{0}, Sizes{4, 0, 2}}) {
    expect_copies(DType::float32, test::random_bits(DType::float32, sizes, 1), Placement::contiguous,
                  Placement::contiguous);
  }
}

/// A number as wide as any element type: an exact integer, or a double beside it. For the reference below.
struct Wide {
  bool is_integer = false;
  __extension__ __int128 integer = 0;
  double real = 0;
  double imaginary = 0;
};

template <class T>
Wide widen(T value) {
  if constexpr (std::is_integral_v<T>) {
    return {.is_integer = true, .integer = value, .real = static_cast<double>(value)};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {.real = value};
  } else if constexpr (requires { value.imag(); }) {
    return {.real = value.real(), .imaginary = value.imag()};
  } else {
    return {.real = static_cast<float>(value)};
  }
}

/// What the documentation promises, in a way that is not the library's.
template <class T>
T narrow(const Wide& value) {
  constexpr DType dtype = dtype_of<T>;
  if constexpr (std::is_same_v<T, bool>) {
    return value.is_integer ? value.integer != 0 : value.real != 0 || value.imaginary != 0;
  } else if constexpr (std::is_integral_v<T>) {
    if (value.is_integer) return static_cast<T>(static_cast<std::uint64_t>(value.integer));
    if (std::isnan(value.real)) return 0;
    if (value.real >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
    if (value.real <= static_cast<double>(std::numeric_limits<T>::min()))
      return std::numeric_limits<T>::min();
    return static_cast<T>(std::trunc(value.real));
  } else if constexpr (requires(T complex) { complex.imag(); }) {
    using Real = typename T::value_type;
    return {narrow<Real>({value.is_integer, value.integer, value.real}), static_cast<Real>(value.imaginary)};
  } else {
    const auto single = value.is_integer ? static_cast<float>(value.integer) : static_cast<float>(value.real);
    if constexpr (std::is_same_v<T, double>) {
      return value.is_integer ? static_cast<double>(value.integer) : value.real;
    } else if constexpr (std::is_same_v<T, float>) {
      return single;
    } else {
      return std::bit_cast<T>(static_cast<decltype(T::bits)>(test::encode_small_float(dtype, single)));
    }
  }
}

/// Values that tell conversions apart, as far as T has them.
template <class T>
std::vector<T> telling_values() {
  std::vector<T> values;
  if constexpr (std::is_same_v<T, bool>) {
    return {};
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    values = {
        0, 1, 2, 100, Limits::max(), Limits::min(), Limits::max() - 1, static_cast<T>(Limits::max() / 3)};
    if constexpr (std::is_signed_v<T>) {
      for (const int negative : {-1, -100}) values.push_back(static_cast<T>(negative));
    }
  } else {
    // Ties for the smaller floats, limits of the integers from both sides, and what no integer is.
    constexpr double infinity = std::numeric_limits<double>::infinity();
    for (const double magnitude : {0.0,
                                   0.5,
                                   0.9,
                                   1.0,
                                   1.5,
                                   2.5,
                                   127.0,
                                   127.5,
                                   128.0,
                                   255.5,
                                   256.0,
                                   257.0,
                                   448.0,
                                   464.0,
                                   465.0,
                                   2049.0,
                                   32767.9,
                                   32768.0,
                                   65535.5,
                                   65536.0,
                                   65504.0,
                                   65520.0,
                                   2147483647.5,
                                   2147483648.0,
                                   4e9,
                                   4294967295.5,
                                   4294967296.0,
                                   9.2233720368547748e18,
                                   9.2233720368547758e18,
                                   1.844674407370955e19,
                                   1.8446744073709552e19,
                                   1e20,
                                   1e-3,
                                   1e-8,
                                   1e-40,
                                   3e38,
                                   1e300,
                                   infinity}) {
      for (const double value : {magnitude, -magnitude}) {
        if constexpr (std::is_floating_point_v<T>) {
          values.push_back(static_cast<T>(value));
        } else if constexpr (requires(T complex) { complex.imag(); }) {
          using Real = typename T::value_type;
          values.emplace_back(static_cast<Real>(value), static_cast<Real>(-2.5));
          values.emplace_back(Real{0}, static_cast<Real>(value));
        } else {
          values.push_back(T(static_cast<float>(value)));
        }
      }
    }
    if constexpr (std::is_floating_point_v<T>) values.push_back(std::numeric_limits<T>::quiet_NaN());
  }
  return values;
}

HostArray array_of(DType dtype, const void* values, std::size_t count) {
  HostArray array{dtype, {static_cast<std::int64_t>(count)}, std::vector<std::byte>(count * size_of(dtype))};
  std::memcpy(array.bytes.data(), values, array.bytes.size());
  return array;
}

/// A NaN of any bits equals a NaN; all else must agree bit for bit.
template <class T>
bool same_element(T a, T b) {
  if constexpr (requires { a.imag(); }) {
    return same_element(a.real(), b.real()) && same_element(a.imag(), b.imag());
  } else if constexpr (std::is_floating_point_v<T>) {
    return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(T)) == 0;
  } else {
    return a == b;
  }
}

template <class From>
void expect_conversions_from(const std::vector<From>& values) {
  const HostArray source = array_of(dtype_of<From>, values.data(), values.size());
  for (const DType dtype : all_dtypes) {
    if (dtype == dtype_of<From>) continue;
    visit_dtype(dtype, [&]<class To>() {
      SCOPED_TRACE(std::string(name_of(dtype_of<From>)) + " to " + std::string(name_of(dtype)));
      const HostArray on_host = test::read(test::make_tensor(source, Device::host()).to(dtype));
      for (std::size_t i = 0; i < values.size(); ++i) {
        To found{};
        std::memcpy(&found, on_host.bytes.data() + i * sizeof(To), sizeof(To));
        ASSERT_TRUE(same_element(found, narrow<To>(widen(values[i]))))
            << "value " << i << ": " << widen(values[i]).real;
      }
      // The same source converts on devices, on either side of a crossing: bit for bit.
      const Tensor on_device = test::make_tensor(source, Device(0));
      ASSERT_EQ(test::read(on_device.to(dtype)), on_host);
      for (const Place& to : places()) {
        for (const Place& from : places()) {
          const Tensor target =
              empty(source.sizes, {.dtype = dtype, .device = to.device, .host_memory = to.host_memory});
          target.copy_(test::make_tensor(source, from.device, from.host_memory));
          ASSERT_EQ(test::read(target), on_host) << "from " << name_of(from) << " to " << name_of(to);
        }
      }
    });
  }
}

TEST(TensorCopy, ConvertsBetweenAllElementTypes) {
  for (const DType dtype : all_dtypes) {
    visit_dtype(dtype, []<class From>() {
      if constexpr (!std::is_same_v<From, bool>) expect_conversions_from(telling_values<From>());
    });
  }
}

TEST(TensorCopy, ConvertsBoolsOfAnyByte) {
  const HostArray flags{DType::boolean, {3}, {std::byte{0}, std::byte{1}, std::byte{200}}};
  for (const Place& place : places()) {
    const Tensor source = test::make_tensor(flags, place.device, place.host_memory);
    EXPECT_EQ(source.to(DType::int32).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 1}));
    EXPECT_EQ(source.to(DType::float32).to_vector<float>(), (std::vector<float>{0, 1, 1}));
  }
}

TEST(TensorCopy, ConvertsAndRearrangesAtOnceAcrossPlaces) {
  const HostArray values = test::random_numbers(DType::float32, {2, 3, 4, 5}, test::test_seed());
  const HostArray expected = test::read(test::make_tensor(values, Device::host()).to(DType::float16));
  for (const Place& from : places()) {
    for (const Place& to : places()) {
      for (const Placement source_placement : target_placements) {
        for (const Placement target_placement : target_placements) {
          const TestTensor source(values, from.device, source_placement, from.host_memory);
          const auto target =
              TestTensor::poisoned(DType::float16, values.sizes, to.device, target_placement, to.host_memory);
          target.tensor().copy_(source);
          ASSERT_TRUE(target.holds(expected)) << name_of(from) << " to " << name_of(to);
        }
      }
    }
  }
}

TEST(TensorCopy, ToReturnsTheTensorItselfWhereNothingChanges) {
  for (const Place& place : places()) {
    const Tensor tensor = empty({4}, {.device = place.device, .host_memory = place.host_memory});
    EXPECT_EQ(tensor.to(place.device).data(), tensor.data());
    EXPECT_EQ(tensor.to(DType::float32).data(), tensor.data());
  }
}

TEST(TensorCopy, ToKeepsDenseStridesAndPacksOthers) {
  const Tensor images = empty({2, 3, 4, 5}, {.format = MemoryFormat::channels_last});
  EXPECT_TRUE(images.to(Device(0)).is_channels_last());
  EXPECT_TRUE(images.to(DType::float64).is_channels_last());
  EXPECT_TRUE(images.to(Device(0)).to(DType::int8).to(Device::host()).is_channels_last());
  EXPECT_TRUE(images.narrow(1, 0, 2).to(Device(0)).is_contiguous());
  EXPECT_TRUE(images.narrow(1, 0, 2).to(DType::float64).is_contiguous());
}

TEST(TensorCopy, ToTheHostWithoutBlockingIsPinned) {
  const Tensor tensor = ones({1000}, {.dtype = DType::int32, .device = Device(0)});
  const Tensor pinned = tensor.to(Device::host(), Blocking::no);
  EXPECT_TRUE(pinned.is_pinned());
  synchronize(0);
  EXPECT_EQ(pinned.to_vector<std::int32_t>(), std::vector<std::int32_t>(1000, 1));
  EXPECT_FALSE(tensor.to(Device::host()).is_pinned());
}

TEST(TensorCopy, OntoItselfDoesNothing) {
  for (const Place& place : places()) {
    const HostArray values = test::random_bits(DType::int16, {3, 4}, 5);
    const TestTensor tensor(values, place.device, Placement::gapped, place.host_memory);
    tensor.tensor().copy_(tensor);
    tensor.tensor().narrow(1, 0, 4).copy_(tensor.tensor().narrow(1, 0, 4));
    EXPECT_TRUE(tensor.holds(values));
  }
}

TEST(TensorCopy, BetweenInterleavedPartsOfOneTensor) {
  for (const Place& place : places()) {
    const Tensor tensor =
        tutti::tensor(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}, {.device = place.device});
    tensor.narrow(1, 0, 1).copy_(tensor.narrow(1, 1, 1));
    EXPECT_EQ(tensor.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 1, 3, 3, 5, 5, 7, 7}));
  }
}

/// `call` is refused, enqueues nothing and leaves `target` as it is.
void expect_refusal(const TestTensor& target, const std::function<void()>& call,
                    const std::vector<std::string>& fragments) {
  synchronize(0);
  const auto enqueued = [] {
    return test::on_virtual_devices() ? virtual_devices::operations_enqueued() : 0;
  };
  const std::uint64_t before = enqueued();
  EXPECT_TRUE(refuses(call, invalid, fragments));
  EXPECT_EQ(enqueued(), before);
  EXPECT_TRUE(target.untouched());
}

TEST(TensorCopy, RefusesOtherSizes) {
  for (const Place& place : places()) {
    const auto target = TestTensor::poisoned(DType::float32, {2, 3}, place.device);
    for (const Sizes& sizes : {Sizes{3, 2}, Sizes{6}, Sizes{2, 3, 1}, Sizes{2, 0}, Sizes{}}) {
      const Tensor source = zeros(sizes, {.device = Device(0)});
      expect_refusal(target, [&] { target.tensor().copy_(source); },
                     {"Tensor::copy_", "source has sizes " + to_string(sizes), "expected [2, 3]"});
    }
  }
}

TEST(TensorCopy, RefusesPartialOverlap) {
  for (const Place& place : places()) {
    const auto target =
        TestTensor::poisoned(DType::float32, {8, 4}, place.device, Placement::contiguous, place.host_memory);
    const Tensor& tensor = target.tensor();
    expect_refusal(target, [&] { tensor.narrow(0, 0, 7).copy_(tensor.narrow(0, 1, 7)); },
                   {"Tensor::copy_", "overlaps", "sizes [7, 4]", "the same elements or none"});
    expect_refusal(target, [&] { tensor.narrow(1, 0, 3).copy_(tensor.narrow(1, 1, 3)); }, {"overlaps"});
    const Tensor square = tensor.narrow(0, 0, 4);
    expect_refusal(target, [&] { square.copy_(square.transpose(0, 1)); }, {"overlaps", "strides [1, 4]"});
    // The same bytes under another element type are no copy onto itself.
    const Tensor reinterpreted(TensorView(tensor.data(), DType::int32, {8, 4}, place.device));
    expect_refusal(target, [&] { tensor.copy_(reinterpreted); }, {"overlaps", "int32", "float32"});
  }
}

TEST(TensorCopy, RefusesTargetsWhoseIndicesShareElements) {
  for (const Place& place : places()) {
    const auto memory = TestTensor::poisoned(DType::float32, {4}, place.device);
    const Tensor expanded(memory.tensor().storage(),
                          TensorView(memory.tensor().data(), DType::float32, {3, 4}, {0, 1}, place.device));
    const Tensor source = zeros({3, 4}, {.device = Device(0)});
    expect_refusal(memory, [&] { expanded.copy_(source); },
                   {"Tensor::copy_", "strides [0, 1]", "share an element"});
  }
}

TEST(TensorCopy, RefusesUnknownDevices) {
  const auto target = TestTensor::poisoned(DType::float32, {2}, Device(0));
  const Tensor nowhere(TensorView(reinterpret_cast<void*>(64), DType::float32, {2}, Device(99)));
  expect_refusal(target, [&] { target.tensor().copy_(nowhere); }, {"Tensor::copy_", "99"});
  expect_refusal(target, [&] { nowhere.copy_(target.tensor()); }, {"Tensor::copy_", "99"});
  expect_refusal(target, [&] { static_cast<void>(target.tensor().to(Device(99))); }, {"Tensor::to", "99"});
}

}  // namespace
}  // namespace tutti
