// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <chrono>
#include <string>

namespace tutti::perf {

/// The place, time and software of a run. A text is empty if it is unknown or does not apply.
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

/// Formats a UTC time as strftime does.
[[nodiscard]] std::string utc_text(std::chrono::system_clock::time_point time, const char* format);

/// Returns the name of this machine; empty if it has none.
[[nodiscard]] std::string host_name();

/// Returns the provenance of this process at this time. Driver and CUDA are left out if devices are virtual.
[[nodiscard]] Provenance find_provenance(BackendKind backend);

/// Returns the version in the text of /proc/driver/nvidia/version; empty if it has none.
[[nodiscard]] std::string driver_version_in(const std::string& text);

}  // namespace tutti::perf
