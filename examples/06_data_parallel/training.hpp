// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <vector>

/// A linear regression, and how one process trains it on its devices.
namespace training {

inline constexpr std::int64_t samples =
    250;  // seldom a multiple of the number of devices: parts differ in size
inline constexpr std::int64_t features = 8;
inline constexpr float rate = 0.1F;
inline constexpr int steps_to_converge = 300;

struct Data {
  tutti::Tensor inputs;   ///< [samples, features]
  tutti::Tensor targets;  ///< [samples]
};

/// A made-up regression problem without noise, on the host in pinned memory.
[[nodiscard]] Data make_data();

struct Parameters {
  tutti::Tensor weights;  ///< [features]
  tutti::Tensor bias;     ///< [1]
};

[[nodiscard]] Parameters zero_parameters(tutti::Device device);
/// Bit for bit; waits for both.
[[nodiscard]] bool operator==(const Parameters& left, const Parameters& right);
/// The parameters are those that the data was made with, but for 0.001.
[[nodiscard]] bool has_converged(const Parameters& parameters);

/// The kernels for the devices in use.
[[nodiscard]] const Kernels& kernels();

/// Trains on `devices`, all of which keep the parameters; returns those of the first. No call in a step waits
/// for a device.
[[nodiscard]] Parameters train(const Data& data, const std::vector<tutti::Device>& devices, int steps);

}  // namespace training
