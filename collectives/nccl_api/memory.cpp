// SPDX-License-Identifier: Apache-2.0
#include "tutti/memory.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "tutti/device.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

/// Memory of programs.
namespace tutti::nccl_api {
namespace {

/// Memory that a program has registered for a communicator; `registration` is shared by all that name the
/// same range, and empty where the memory needs none or cannot have one: then calls copy what they must.
struct Registered {
  void* address = nullptr;
  std::shared_ptr<MemoryRegistration> registration{};
};

using Range = std::pair<void*, std::size_t>;

struct Books {
  std::mutex mutex;
  std::map<Range, std::weak_ptr<MemoryRegistration>> registrations;
  std::map<void*, int> allocations;  ///< devices, by addresses of `ncclMemAlloc`
};

/// Never destroyed: programs may free memory while they exit.
Books& books() {
  static Books& only = *new Books();
  return only;
}

std::shared_ptr<MemoryRegistration> registration_of(const Range& range) {
  const std::lock_guard lock(books().mutex);
  std::weak_ptr<MemoryRegistration>& known = books().registrations[range];
  if (std::shared_ptr<MemoryRegistration> shared = known.lock()) return shared;
  try {
    auto made = std::make_shared<MemoryRegistration>(register_memory(range.first, range.second));
    known = made;
    return made;
  } catch (const Error&) {
    // The library's own memory, memory that is registered already, or such as other processes cannot open.
    books().registrations.erase(range);
    return nullptr;
  }
}

void* register_range(const char* function, ncclComm_t comm, void* address, std::size_t bytes) {
  require_communicator(function, comm);
  require(function, address, "buff");
  if (bytes == 0)
    throw Refusal{ncclInvalidArgument, fmt::format("{}: size is 0, expected 1 or more", function)};
  return new Registered{.address = address, .registration = registration_of({address, bytes})};
}

void end_registration(void* handle) {
  const std::unique_ptr<Registered> owner(static_cast<Registered*>(handle));
  const std::shared_ptr<MemoryRegistration> last = std::move(owner->registration);
  const std::lock_guard lock(books().mutex);
  std::erase_if(books().registrations, [](const auto& entry) { return entry.second.expired(); });
}

}  // namespace
}  // namespace tutti::nccl_api

namespace face = tutti::nccl_api;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's
extern "C" {

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return face::guarded("ncclMemAlloc", [&] {
    face::require("ncclMemAlloc", ptr, "ptr");
    face::note_use();
    *ptr = tutti::caching_allocator_alloc(size);
    tutti::current_stream().synchronize();  // what had the memory before may still use it there
    const std::lock_guard lock(face::books().mutex);
    face::books().allocations.emplace(*ptr, tutti::current_device());
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  if (ptr == nullptr) return ncclSuccess;
  return face::guarded("ncclMemFree", [&] {
    int device = 0;
    {
      const std::lock_guard lock(face::books().mutex);
      const auto found = face::books().allocations.find(ptr);
      if (found == face::books().allocations.end())
        throw face::Refusal{ncclInvalidArgument,
                            "ncclMemFree: ptr is no memory of ncclMemAlloc, or has been freed"};
      device = found->second;
      face::books().allocations.erase(found);
    }
    tutti::synchronize(device);  // the program's streams may still use the memory
    tutti::caching_allocator_delete(ptr);
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, size_t size, void** handle) {
  return face::guarded("ncclCommRegister", [&] {
    face::require("ncclCommRegister", handle, "handle");
    *handle = face::register_range("ncclCommRegister", comm, buff, size);
  });
}

ncclResult_t ncclCommDeregister(ncclComm_t, void* handle) {
  if (handle == nullptr) return ncclSuccess;
  return face::guarded("ncclCommDeregister", [&] { face::end_registration(handle); });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int) {
  return face::guarded("ncclCommWindowRegister", [&] {
    face::require("ncclCommWindowRegister", win, "win");
    *win = reinterpret_cast<ncclWindow_t>(face::register_range("ncclCommWindowRegister", comm, buff, size));
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t win) {
  if (win == nullptr) return ncclSuccess;
  return face::guarded("ncclCommWindowDeregister", [&] { face::end_registration(win); });
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t win, void** outUserPtr) {
  return face::guarded("ncclWinGetUserPtr", [&] {
    face::require("ncclWinGetUserPtr", win, "win");
    face::require("ncclWinGetUserPtr", outUserPtr, "outUserPtr");
    *outUserPtr = reinterpret_cast<face::Registered*>(win)->address;
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
