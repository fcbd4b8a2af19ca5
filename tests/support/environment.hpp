// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

/// What the tests read from the machine and from the environment.
namespace tutti::test {

/// The first `wanted` devices, or all if there are fewer.
[[nodiscard]] std::vector<Device> first_devices(int wanted = 8);

/// `count` (of elements, rounds, tensors), reduced where the build is slow (sanitizers) and multiplied by the
/// environment variable `TUTTI_TEST_SCALE` where that is set; at least 1.
[[nodiscard]] std::int64_t scaled(std::int64_t count);

/// `time`, which other threads or processes are given: longer where the build is slow (sanitizers), and
/// multiplied by the environment variable `TUTTI_TEST_PATIENCE` where that is set, for busy machines.
/// (ctest's own limits are multiplied by CMake's `TUTTI_TEST_TIMEOUT_SCALE`.)
[[nodiscard]] std::chrono::milliseconds patient(std::chrono::milliseconds time);

/// The seed of everything random in the tests: `TUTTI_TEST_SEED`, or a fixed one.
[[nodiscard]] std::uint64_t test_seed();

/// Seconds that randomised tests run: `TUTTI_TEST_SECONDS`, or `standard`.
[[nodiscard]] double test_seconds(double standard);

[[nodiscard]] bool on_virtual_devices();
/// Whether programs run under the command in `TUTTI_TEST_LAUNCHER` (`tests/run_test`), as compute-sanitizer:
/// under that, hundreds of launches behind a kernel that waits seem to wait for it, a graph seems to wait for
/// a stream that it has nothing of, and programs wait for the processes they have forked.
[[nodiscard]] bool is_under_a_tool();

/// Bytes of the device that nobody has allocated.
[[nodiscard]] std::size_t free_memory(int device);

/// Operations virtual devices accepted so far; always 0 on GPUs, where nobody counts.
[[nodiscard]] std::uint64_t operations_enqueued();

/// Blocks until all devices are idle; throws the first failure of queued work.
void synchronize_all();

}  // namespace tutti::test
