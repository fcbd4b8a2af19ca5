// SPDX-License-Identifier: Apache-2.0
#include "tutti/memory.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "collectives/nccl_api/forwarding.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "tutti/device.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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

/// Memory of `ncclMemAlloc`.
struct Allocation {
  int device = 0;
  bool is_of_nccl = false;
};

using Range = std::pair<void*, std::size_t>;

struct Books {
  std::mutex mutex;
  std::map<Range, std::weak_ptr<MemoryRegistration>> registrations;
  std::set<void*> handles;                  ///< those that programs have; others are NCCL's
  std::map<void*, Allocation> allocations;  ///< by addresses
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
  auto made = std::make_unique<Registered>(
      Registered{.address = address, .registration = registration_of({address, bytes})});
  const std::lock_guard lock(books().mutex);
  books().handles.insert(made.get());
  return made.release();
}

/// Returns whether the handle is tutti's. A handle that NCCL has made comes with a communicator of NCCL's;
/// the communicator of others may be gone. Throws a `Refusal` if it is neither.
bool is_own_handle(const char* function, ncclComm_t comm, void* handle) {
  {
    const std::lock_guard lock(books().mutex);
    if (books().handles.contains(handle)) return true;
  }
  if (is_of_nccl(comm)) return false;
  throw Refusal{ncclInvalidArgument, fmt::format("{}: the handle is none, or has been given back", function)};
}

/// Returns whether programs get NCCL's memory: its windows need it.
bool wants_memory_of_nccl() {
  return NcclLibrary::is_open() || Settings::get().fallback == Fallback::always;
}

void* memory_of_nccl(std::size_t bytes) {
  void* memory = nullptr;
  require_success_of_nccl("ncclMemAlloc", call_nccl<&ncclMemAlloc>("ncclMemAlloc", &memory, bytes), nullptr);
  return memory;
}

void* own_memory(std::size_t bytes) {
  void* const memory = caching_allocator_alloc(bytes);
  current_stream().synchronize();  // what had the memory before may still use it there
  return memory;
}

void end_registration(void* handle) {
  const std::unique_ptr<Registered> owner(static_cast<Registered*>(handle));
  const std::shared_ptr<MemoryRegistration> last = std::move(owner->registration);
  const std::lock_guard lock(books().mutex);
  books().handles.erase(handle);
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
    const bool is_of_nccl = face::wants_memory_of_nccl();
    *ptr = is_of_nccl ? face::memory_of_nccl(size) : face::own_memory(size);
    const std::lock_guard lock(face::books().mutex);
    face::books().allocations[*ptr] = {.device = tutti::current_device(), .is_of_nccl = is_of_nccl};
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  if (ptr == nullptr) return ncclSuccess;
  return face::guarded("ncclMemFree", [&] {
    face::Allocation allocation;
    {
      const std::lock_guard lock(face::books().mutex);
      const auto found = face::books().allocations.find(ptr);
      if (found == face::books().allocations.end())
        throw face::Refusal{ncclInvalidArgument,
                            "ncclMemFree: ptr is no memory of ncclMemAlloc, or has been freed"};
      allocation = found->second;
      face::books().allocations.erase(found);
    }
    if (allocation.is_of_nccl)
      return face::require_success_of_nccl("ncclMemFree", face::call_nccl<&ncclMemFree>("ncclMemFree", ptr),
                                           nullptr);
    tutti::synchronize(allocation.device);  // the program's streams may still use the memory
    tutti::caching_allocator_delete(ptr);
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* buff, size_t size, void** handle) {
  const auto work = [&] {
    face::require("ncclCommRegister", handle, "handle");
    *handle = face::register_range("ncclCommRegister", comm, buff, size);
  };
  return face::called_now<&ncclCommRegister>("ncclCommRegister", work, comm, buff, size, handle);
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  if (handle == nullptr) return ncclSuccess;
  return face::guarded("ncclCommDeregister", [&] {
    if (face::is_own_handle("ncclCommDeregister", comm, handle)) return face::end_registration(handle);
    face::forward_now<&ncclCommDeregister>("ncclCommDeregister", comm, comm, handle);
  });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                    int winFlags) {
  const auto work = [&] {
    face::require("ncclCommWindowRegister", win, "win");
    *win = reinterpret_cast<ncclWindow_t>(face::register_range("ncclCommWindowRegister", comm, buff, size));
  };
  return face::called<&ncclCommWindowRegister>("ncclCommWindowRegister", work, comm, buff, size, win,
                                               winFlags);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  if (win == nullptr) return ncclSuccess;
  return face::guarded("ncclCommWindowDeregister", [&] {
    if (face::is_own_handle("ncclCommWindowDeregister", comm, win)) return face::end_registration(win);
    face::forward_now<&ncclCommWindowDeregister>("ncclCommWindowDeregister", comm, comm, win);
  });
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  return face::guarded("ncclWinGetUserPtr", [&] {
    face::require("ncclWinGetUserPtr", win, "win");
    face::require("ncclWinGetUserPtr", outUserPtr, "outUserPtr");
    if (!face::is_own_handle("ncclWinGetUserPtr", comm, win))
      return face::forward_now<&ncclWinGetUserPtr>("ncclWinGetUserPtr", comm, comm, win, outUserPtr);
    *outUserPtr = reinterpret_cast<face::Registered*>(win)->address;
  });
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
