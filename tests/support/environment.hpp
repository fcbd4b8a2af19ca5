// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

/// Reads test settings from the machine and from the environment.
namespace tutti::test {

/// Returns the first `wanted` devices, or all if there are fewer.
[[nodiscard]] std::vector<Device> first_devices(int wanted = 8);

/// Scales `count` (of elements, rounds, tensors): reduced if the build is slow (sanitizers) and multiplied by
/// the environment variable `TUTTI_TEST_SCALE` if that is set; at least 1.
[[nodiscard]] std::int64_t scaled(std::int64_t count);

/// Scales a time that other threads or processes are given: longer if the build is slow (sanitizers), and
/// multiplied by the environment variable `TUTTI_TEST_PATIENCE` if that is set, for busy machines. (CMake's
/// `TUTTI_TEST_TIMEOUT_SCALE` multiplies ctest's own limits.)
[[nodiscard]] std::chrono::milliseconds patient(std::chrono::milliseconds time);

/// Returns a limit for what ends by itself unless something hangs: `time` as `patient` scales it or, if that
/// is longer, half of ctest's limit for this program, which CMake passes in seconds as `TUTTI_TEST_TIMEOUT`.
[[nodiscard]] std::chrono::milliseconds hang_limit(std::chrono::milliseconds time = std::chrono::seconds(60));
/// Returns a limit for processes, which tell what hangs before they are killed: three quarters of ctest's, if
/// that is known.
[[nodiscard]] std::chrono::milliseconds process_limit(std::chrono::milliseconds time);

/// Returns the seed of everything random in the tests: `TUTTI_TEST_SEED`, or a fixed one.
[[nodiscard]] std::uint64_t test_seed();

/// Returns for how many seconds randomised tests run: `TUTTI_TEST_SECONDS`, or `standard`.
[[nodiscard]] double test_seconds(double standard);

[[nodiscard]] bool on_virtual_devices();
/// Returns whether the environment asks for GPUs, where every process starts CUDA anew, which takes a second
/// or two. Starts nothing itself: a process that forks may ask.
[[nodiscard]] bool asks_for_gpus();
/// Returns whether programs run under the command in `TUTTI_TEST_LAUNCHER` (`tests/run_test`), such as
/// compute-sanitizer. Under that tool, hundreds of launches behind a kernel that waits seem to wait for it, a
/// graph seems to wait for an unrelated stream, and programs wait for the processes that they have forked.
[[nodiscard]] bool is_under_a_tool();

/// Returns the device's bytes that nobody has allocated.
[[nodiscard]] std::size_t free_memory(int device);

/// Returns the number of operations that virtual devices have accepted so far; always 0 on GPUs, where nobody
/// counts.
[[nodiscard]] std::uint64_t operations_enqueued();

/// Blocks until all devices are idle; throws the first failure of queued work.
void synchronize_all();

}  // namespace tutti::test
