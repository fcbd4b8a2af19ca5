// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <chrono>
#include <string>

namespace tutti::perf {

/// Where, when and with what a run is made. Empty: unknown, or there is none.
struct Provenance {
  std::string date;  ///< UTC, such as 2026-11-24T22:26Z
  std::string
      commit;  ///< of the sources the program was built from; "-dirty" behind it if they had been changed
  std::string compiler;  ///< of the program
  std::string host;
  std::string cpu;           ///< its model, and how many of them the process may use
  std::string system;        ///< distribution and kernel
  std::string driver;        ///< of the GPUs
  std::string cuda;          ///< the toolkit the library was built with
  std::string nccl_library;  ///< the file that NCCL has been loaded from
};

/// UTC, as strftime formats it, in at most 31 letters.
[[nodiscard]] std::string utc_text(std::chrono::system_clock::time_point time, const char* format);

/// The name this machine has for itself; empty if it tells none.
[[nodiscard]] std::string host_name();

/// Of this process and this moment. Driver and CUDA are left out where devices are virtual.
[[nodiscard]] Provenance find_provenance(BackendKind backend);

/// The version in what /proc/driver/nvidia/version says; empty if it has none.
[[nodiscard]] std::string driver_version_in(const std::string& text);

}  // namespace tutti::perf
