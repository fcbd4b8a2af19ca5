// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/nccl_library.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "settings/environment.hpp"
#include "transport/nccl/library_paths.hpp"
#include "transport/nccl/opened_library.hpp"
#include "tutti/device.hpp"

#include <atomic>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

using transport::nccl::library_paths;
using transport::nccl::mark_of_tutti;
using transport::nccl::open_library;
using transport::nccl::OpenedLibrary;
using transport::nccl::unused_result;

/// The first version with configurations, blocking and not, and with `ncclCommSplit`.
constexpr int oldest_version = NCCL_VERSION(2, 18, 1);

std::atomic<bool> is_library_open{false};

/// Returns the loaded file that an address is in.
Dl_info file_of(const void* address) {
  Dl_info info{};
  static_cast<void>(dladdr(address, &info));
  return info;
}

const Dl_info& own_file() {
  static const Dl_info own = file_of(&is_library_open);
  return own;
}

/// Returns the only file that may be opened, if a variable names one.
std::optional<std::string> named_file() {
  const Settings& settings = Settings::get();
  return settings.nccl_path ? settings.nccl_path : Environment::get().nccl_library;
}

}  // namespace

const NcclLibrary& NcclLibrary::get() {
  // Never destroyed: threads may make calls while the process exits.
  static const NcclLibrary& library = *new NcclLibrary();
  if (library.problem_.empty()) return library;
  throw Refusal{ncclInvalidUsage, library.problem_};
}

bool NcclLibrary::is_open() noexcept {
  return is_library_open.load(std::memory_order_relaxed);
}

NcclLibrary::NcclLibrary() {
  std::vector<std::string> paths;
  if (const std::optional<std::string> named = named_file()) {
    paths.push_back(*named);
  } else if (backend_kind() == BackendKind::host) {
    problem_ = "virtual devices have no NCCL but the file that TUTTI_NCCL_FALLBACK names";
    return;
  } else {
    paths = library_paths();
    problem_ =
        "there is no libnccl.so.2 in lib of NCCL_HOME, in Python's nvidia/nccl/lib and among the system's "
        "libraries";
  }
  for (const std::string& path : paths) {
    problem_ = open(path);
    if (!problem_.empty()) continue;
    is_library_open.store(true, std::memory_order_relaxed);
    return;
  }
}

std::string NcclLibrary::open(const std::string& path) {
  std::error_code ignored;
  if (own_file().dli_fname != nullptr && std::filesystem::equivalent(path, own_file().dli_fname, ignored))
    return fmt::format("{} is tutti's own library, expected NCCL's", path);
  const OpenedLibrary library = open_library(path);
  if (!library.problem.empty()) return library.problem;
  handle_ = library.handle;
  const auto get_version = reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(handle_, "ncclGetVersion"));
  const auto text = reinterpret_cast<decltype(&ncclGetErrorString)>(dlsym(handle_, "ncclGetErrorString"));
  if (get_version == nullptr || text == nullptr) return fmt::format("{} has not NCCL's functions", path);
  const bool is_tutti =
      file_of(reinterpret_cast<const void*>(get_version)).dli_fbase == own_file().dli_fbase ||
      text(static_cast<ncclResult_t>(unused_result)) == mark_of_tutti;
  if (is_tutti) return fmt::format("{} is tutti's own library, expected NCCL's", path);
  if (get_version(&version_) != ncclSuccess || version_ < oldest_version)
    return fmt::format("{} is version {}, expected {} or newer", path, version_text(version_),
                       version_text(oldest_version));
  path_ = path;
  return {};
}

void* NcclLibrary::find(const char* function) const {
  if (void* const found = dlsym(handle_, function); found != nullptr) return found;
  throw Refusal{ncclInvalidUsage,
                fmt::format("{}: NCCL carries the communicator, and its version {} ({}) has no such function",
                            function, version_text(version_), path_)};
}

std::string version_text(int version) {
  const int unit = version < 10000 ? 1000 : 10000;  // before 2.9, versions had one digit less
  return fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
}

}  // namespace tutti::nccl_api
