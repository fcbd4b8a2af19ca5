// SPDX-License-Identifier: Apache-2.0
#include "perf/session/provenance.hpp"

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <regex>
#include <string_view>
#include <thread>
#include <tutti_commit.hpp>  // made by the build

#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

#ifndef TUTTI_PERF_CUDA_VERSION
constexpr const char* cuda_version = "";
#else
constexpr const char* cuda_version = TUTTI_PERF_CUDA_VERSION;
#endif

std::string compiler_in_words() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return {};
#endif
}

/// What follows `key`, white space and `separator` in a line of the file; empty if no line has it.
std::string value_in(const char* file, std::string_view key, char separator) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator, key.size());
    if (at == std::string::npos) continue;
    const std::size_t first = line.find_first_not_of(" \t\"", at + 1);
    const std::size_t last = line.find_last_not_of(" \t\"");
    if (first != std::string::npos && last >= first) return line.substr(first, last - first + 1);
  }
  return {};
}

std::string cpu_in_words() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const unsigned count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                             ? static_cast<unsigned>(CPU_COUNT(&allowed))
                             : std::thread::hardware_concurrency();
  std::string model = value_in("/proc/cpuinfo", "model name", ':');
  if (model.empty()) model = "unknown model";
  return fmt::format("{}, {} {}", model, count, count == 1 ? "core" : "cores");
}

std::string system_in_words() {
  utsname kernel{};
  const std::string release = uname(&kernel) == 0 ? fmt::format("kernel {}", kernel.release) : "";
  const std::string name = value_in("/etc/os-release", "PRETTY_NAME", '=');
  return name.empty() || release.empty() ? name + release : name + ", " + release;
}

/// Empty if the library has loaded none.
std::string loaded_nccl() {
  const char* const chosen = std::getenv("TUTTI_NCCL_LIBRARY");
  const char* const name = chosen != nullptr && *chosen != '\0' ? chosen : "libnccl.so.2";
  void* const library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return {};
  Dl_info found{};
  const void* const function = dlsym(library, "ncclGetVersion");
  const bool is_known = function != nullptr && dladdr(function, &found) != 0 && found.dli_fname != nullptr;
  std::string path = is_known ? found.dli_fname : name;
  dlclose(library);
  return path;
}

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point time, const char* format) {
  const std::tm parts = fmt::gmtime(std::chrono::system_clock::to_time_t(time));
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", format)), parts);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

std::string driver_version_in(const std::string& text) {
  static const std::regex version(R"(NVRM version:.*\s(\d+\.\d+(\.\d+)?)\s)");
  std::smatch found;
  return std::regex_search(text, found, version) ? found[1].str() : std::string();
}

Provenance find_provenance(BackendKind backend) {
  Provenance found{.date = utc_text(std::chrono::system_clock::now(), "%Y-%m-%dT%H:%MZ"),
                   .commit = source_commit,
                   .compiler = compiler_in_words(),
                   .host = host_name(),
                   .cpu = cpu_in_words(),
                   .system = system_in_words(),
                   .driver = {},
                   .cuda = {},
                   .nccl_library = {}};
  if (backend == BackendKind::cuda) {
    std::ifstream driver("/proc/driver/nvidia/version");
    found.driver = driver_version_in({std::istreambuf_iterator<char>(driver), {}});
    found.cuda = cuda_version;
    found.nccl_library = loaded_nccl();
  }
  return found;
}

}  // namespace tutti::perf
