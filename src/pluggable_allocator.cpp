// SPDX-License-Identifier: Apache-2.0
#include "pluggable_allocator.hpp"

#include "fork_mark.hpp"
#include "format_bytes.hpp"
#include "runtime.hpp"
#include "thread_current.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/types.h>

namespace tutti {
namespace {

std::string loader_error() {
  const char* const error = dlerror();
  return error == nullptr ? "the loader gives no reason" : error;
}

/// The function called `name`, which `argument` of the constructor names.
template <class Function>
Function* function_in(void* library, const std::string& shared_object, const std::string& name,
                      const char* argument) {
  dlerror();
  void* const symbol = dlsym(library, name.c_str());
  if (symbol != nullptr) return reinterpret_cast<Function*>(symbol);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("CUDAPluggableAllocator: {} is \"{}\", expected a function of {}: {}", argument,
                          name, shared_object, loader_error()));
}

std::shared_ptr<const PluggedFunctions> functions_in(const std::string& shared_object,
                                                     const std::string& alloc_name,
                                                     const std::string& free_name) {
  // Never unloaded: tensors may outlive everything else.
  void* const library = dlopen(shared_object.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("CUDAPluggableAllocator: shared_object is \"{}\", expected a shared object that "
                            "can be loaded: {}",
                            shared_object, loader_error()));
  }
  auto* const alloc =
      function_in<void*(ssize_t, int, void*)>(library, shared_object, alloc_name, "alloc_name");
  auto* const free =
      function_in<void(void*, ssize_t, int, void*)>(library, shared_object, free_name, "free_name");
  return std::make_shared<const PluggedFunctions>(
      [alloc](std::size_t bytes, int device, void* stream) {
        return alloc(static_cast<ssize_t>(bytes), device, stream);
      },
      [free](void* address, std::size_t bytes, int device, void* stream) {
        free(address, static_cast<ssize_t>(bytes), device, stream);
      });
}

}  // namespace

PluggedFunctions::PluggedFunctions(CUDAPluggableAllocator::Alloc given_alloc,
                                   CUDAPluggableAllocator::Free given_free)
    : alloc(std::move(given_alloc)), free(std::move(given_free)) {
  if (alloc && free) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("CUDAPluggableAllocator: {} is empty, expected a function", alloc ? "free" : "alloc"));
}

CUDAPluggableAllocator::CUDAPluggableAllocator(const std::string& shared_object,
                                               const std::string& alloc_name, const std::string& free_name)
    : functions_(functions_in(shared_object, alloc_name, free_name)) {}

CUDAPluggableAllocator::CUDAPluggableAllocator(Alloc alloc, Free free)
    : functions_(std::make_shared<const PluggedFunctions>(std::move(alloc), std::move(free))) {}

void change_current_allocator(const CUDAPluggableAllocator& allocator) {
  Runtime::get().plugged().use(allocator.functions_);
}

void* device_malloc(std::size_t bytes, Device device) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().allocate_device(index_of(runtime, device, "device_malloc"), bytes);
}

void device_free(void* address, Device device) {
  if (address == nullptr) return;
  Runtime& runtime = Runtime::get();
  runtime.backend().free_device(index_of(runtime, device, "device_free"), address);
}

/// Memory of the functions. Freed once its own stream has been made to wait for all others that used it.
class PluggedAllocator::PluggedStorage final : public Storage {
 public:
  PluggedStorage(PluggedAllocator& allocator, void* data, std::size_t bytes, int device,
                 backend::StreamRef stream)
      : Storage(data, bytes, Device(device)), allocator_(allocator), stream_(stream) {}

  ~PluggedStorage() override {
    if (fork_mark_.is_in_child()) return;
    for (const backend::StreamRef user : users_) order_after(user);
    allocator_.call_free(data(), bytes(), device().index(), stream_);
  }

  void record_stream(const Stream& stream) override {
    const backend::StreamRef user = StreamAccess::ref(stream);
    if (graph_keeps(*this, user) || user == stream_) return;
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(users_, user) == users_.end()) users_.push_back(user);
  }

 private:
  void order_after(backend::StreamRef user) noexcept {
    try {
      allocator_.runtime_.order(user, stream_);
    } catch (const std::exception&) {
      // One of the devices is in trouble, which calls that wait for it report: nothing there uses the memory.
    }
  }

  PluggedAllocator& allocator_;
  const backend::StreamRef stream_;
  const ForkMark fork_mark_;
  std::mutex mutex_;
  std::vector<backend::StreamRef> users_;
};

bool PluggedAllocator::decide_for_native() noexcept {
  const std::lock_guard lock(mutex_);
  if (choice_.load(std::memory_order_relaxed) == Choice::open)
    choice_.store(Choice::native, std::memory_order_release);
  return choice_.load(std::memory_order_relaxed) == Choice::native;
}

void PluggedAllocator::use(std::shared_ptr<const PluggedFunctions> functions) {
  const std::lock_guard lock(mutex_);
  if (const Choice choice = choice_.load(std::memory_order_relaxed); choice != Choice::open) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("change_current_allocator: {}, expected a call before the first device memory "
                            "is allocated",
                            choice == Choice::native ? "the caching allocator is in use already"
                                                     : "another allocator has been plugged in already"));
  }
  functions_ = std::move(functions);
  choice_.store(Choice::plugged, std::memory_order_release);
}

detail::IntrusivePtr<Storage> PluggedAllocator::allocate(int device, std::size_t bytes,
                                                         backend::StreamRef stream) {
  void* const address = call_alloc(device, bytes, stream);
  try {
    return detail::IntrusivePtr<Storage>::adopt(new PluggedStorage(*this, address, bytes, device, stream));
  } catch (...) {
    call_free(address, bytes, device, stream);
    throw;
  }
}

void* PluggedAllocator::allocate_raw(int device, std::size_t bytes, backend::StreamRef stream) {
  void* const address = call_alloc(device, bytes, stream);
  try {
    const std::lock_guard lock(mutex_);
    raw_.insert_or_assign(address, Raw{bytes, stream, device});
  } catch (...) {
    call_free(address, bytes, device, stream);
    throw;
  }
  return address;
}

bool PluggedAllocator::free_raw(void* address) {
  Raw raw{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = raw_.find(address);
    if (found == raw_.end()) return false;
    raw = found->second;
    raw_.erase(found);
  }
  call_free(address, raw.bytes, raw.device, raw.stream);
  return true;
}

void* PluggedAllocator::call_alloc(int device, std::size_t bytes, backend::StreamRef stream) {
  if (runtime_.backend().is_capturing(stream)) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("a pluggable allocator has no memory for graphs: a tensor of {} was to be made on "
                    "a stream of device {} that is being captured",
                    format_bytes(bytes), stream.device));
  }
  if (bytes == 0) return nullptr;  // what functions make of it differs
  if (void* const address = functions_->alloc(bytes, device, stream.handle)) {
    bytes_in_use_ += bytes;
    return address;
  }
  OutOfMemoryError::Figures figures;
  figures.requested = bytes;
  const MemoryInfo memory = runtime_.backend().memory_info(device);
  figures.free = memory.free;
  figures.total = memory.total;
  throw OutOfMemoryError(
      fmt::format("out of memory on device {}: requested {}, which the pluggable allocator "
                  "has not got; free {} of {}",
                  device, format_bytes(bytes), format_bytes(memory.free), format_bytes(memory.total)),
      figures);
}

void PluggedAllocator::call_free(void* address, std::size_t bytes, int device,
                                 backend::StreamRef stream) noexcept {
  if (bytes == 0) return;
  functions_->free(address, bytes, device, stream.handle);
  bytes_in_use_ -= bytes;
}

}  // namespace tutti
