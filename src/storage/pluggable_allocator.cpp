// SPDX-License-Identifier: Apache-2.0
#include "storage/pluggable_allocator.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "base/fork_mark.hpp"
#include "base/format_bytes.hpp"
#include "base/rounding.hpp"
#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "device/open_captures.hpp"
#include "device/runtime.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <exception>
#include <optional>
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
  Runtime::get().part<PluggedAllocator>().use(allocator.functions_);
}

void* device_malloc(std::size_t bytes, Device device) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().allocate_device(index_of(runtime, device, "device_malloc"), bytes);
}

void* device_malloc_in_pieces(std::size_t bytes, std::size_t piece_bytes, Device device) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "device_malloc_in_pieces");
  return runtime.part<PluggedAllocator>().map_range(index, bytes, piece_bytes);
}

void device_free(void* address, Device device) {
  if (address == nullptr) return;
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "device_free");
  BlockingCall::warn(
      "device_free");  // only warns: allocators of programs call it where nothing may be thrown
  if (!runtime.part<PluggedAllocator>().unmap_range(index, address))
    runtime.backend().free_device(index, address);
}

/// Freed once its own stream has been made to wait for all others that used it.
class PluggedAllocator::Freed {
 public:
  Freed(PluggedAllocator& allocator, void* address, std::size_t bytes, int device, backend::StreamRef stream)
      : allocator_(allocator), address_(address), bytes_(bytes), device_(device), stream_(stream) {}
  Freed(const Freed&) = delete;
  Freed& operator=(const Freed&) = delete;
  ~Freed() {
    if (fork_mark_.is_in_child()) return;
    for (const backend::StreamRef user : users_) order_after(user);
    allocator_.call_free(address_, bytes_, device_, stream_);
  }

  void add_user(backend::StreamRef user) {
    if (user != stream_ && std::ranges::find(users_, user) == users_.end()) users_.push_back(user);
  }
  [[nodiscard]] backend::StreamRef stream() const noexcept { return stream_; }
  [[nodiscard]] std::vector<backend::StreamRef>& users() noexcept { return users_; }
  [[nodiscard]] bool is_in_child() const noexcept { return fork_mark_.is_in_child(); }

 private:
  void order_after(backend::StreamRef user) noexcept {
    try {
      allocator_.runtime_.part<Streams>().order(user, stream_);
    } catch (const std::exception&) {
      // One of the devices is in trouble, which calls that wait for it report: nothing there uses the memory.
    }
  }

  PluggedAllocator& allocator_;
  void* const address_;
  const std::size_t bytes_;
  const int device_;
  const backend::StreamRef stream_;
  const ForkMark fork_mark_;
  std::vector<backend::StreamRef> users_;
};

/// Memory of the functions.
class PluggedAllocator::PluggedStorage final : public Storage {
 public:
  /// Takes over what `memory` says.
  PluggedStorage(PluggedAllocator& allocator, OneFreed&& memory, void* data, std::size_t bytes, int device)
      : Storage(data, bytes, Device(device)), allocator_(allocator), memory_(std::move(memory)) {}
  ~PluggedStorage() override { allocator_.let_go(std::move(memory_)); }

  void record_stream(const Stream& stream) override {
    const backend::StreamRef user = StreamAccess::ref(stream);
    if (graph_keeps(*this, user)) return;
    const std::lock_guard lock(mutex_);
    memory_.front().add_user(user);
  }

 private:
  PluggedAllocator& allocator_;
  std::mutex mutex_;
  OneFreed memory_;  ///< one, made beforehand, as to let go of it takes no memory
};

PluggedAllocator::PluggedAllocator(Runtime& runtime)
    : runtime_(runtime),
      allocators_(runtime.part<Allocators>()),
      late_releases_(runtime.part<LateReleases>()),
      captures_(runtime.part<GraphCaptures>()) {
  allocators_.add_keeper(*this);
}

PluggedAllocator::~PluggedAllocator() {
  allocators_.remove_keeper(*this);
}

void PluggedAllocator::let_go(OneFreed&& freed) noexcept {
  if (!freed.front().is_in_child() && (is_kept(freed) || is_delayed(freed))) return;
  freed.clear();
}

bool PluggedAllocator::is_kept(OneFreed& freed) noexcept {
  const backend::StreamRef stream = freed.front().stream();
  try {
    if (const GraphPool keeper = OpenCapture::pool_of_calling_thread(); keeper != GraphPool::none) {
      const std::lock_guard lock(mutex_);
      const auto kept = kept_.find(keeper);
      if (kept == kept_.end()) return false;
      kept->second.splice(kept->second.end(), freed);
      return true;
    }
    if (!runtime_.backend().is_capturing(stream)) return false;
    auto kept = std::make_shared<OneFreed>();
    captures_.retain(stream, kept);
    kept->splice(kept->end(), freed);
    return true;
  } catch (const std::exception&) {
    return false;  // the capture has become invalid: nothing of it will run
  }
}

bool PluggedAllocator::is_delayed(OneFreed& freed) noexcept {
  std::vector<backend::StreamRef>& users = freed.front().users();
  try {
    const auto is_captured = [this](backend::StreamRef user) {
      return runtime_.backend().is_capturing(user);
    };
    if (std::ranges::none_of(users, is_captured)) return false;
    LateReleases::ReleaseList releases(1);
    auto kept = std::make_shared<OneFreed>();
    releases.front().resource = kept;
    releases.front().streams = std::exchange(users, {});
    kept->splice(kept->end(), freed);
    late_releases_.add_marked(std::move(releases));
    return true;
  } catch (const std::exception&) {
    return false;  // a device in trouble, which does nothing more with the memory, or no memory to wait
  }
}

void PluggedAllocator::add_graph_pool(GraphPool keeper) {
  const std::lock_guard lock(mutex_);
  kept_.try_emplace(keeper);
}

void PluggedAllocator::close_graph_pool(GraphPool keeper) noexcept {
  OneFreed freed;  // given back without the lock
  const std::lock_guard lock(mutex_);
  const auto kept = kept_.find(keeper);
  if (kept == kept_.end()) return;
  freed.swap(kept->second);
  kept_.erase(kept);
}

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
  void* address = nullptr;
  OneFreed memory = taken(device, bytes, stream, address);
  return detail::IntrusivePtr<Storage>::adopt(
      new PluggedStorage(*this, std::move(memory), address, bytes, device));
}

void* PluggedAllocator::allocate_raw(int device, std::size_t bytes, backend::StreamRef stream) {
  void* address = nullptr;
  // An address of its own, also for no bytes: what functions make of these differs.
  OneFreed memory = taken(device, std::max<std::size_t>(bytes, 1), stream, address);
  const std::lock_guard lock(mutex_);
  raw_.insert_or_assign(address, std::move(memory));
  return address;
}

PluggedAllocator::OneFreed PluggedAllocator::taken(int device, std::size_t bytes, backend::StreamRef stream,
                                                   void*& address) {
  address = call_alloc(device, bytes, stream);
  OneFreed memory;
  try {
    memory.emplace_back(*this, address, bytes, device, stream);
  } catch (...) {
    call_free(address, bytes, device, stream);
    throw;
  }
  return memory;
}

bool PluggedAllocator::free_raw(void* address) {
  OneFreed memory;
  {
    const std::lock_guard lock(mutex_);
    const auto found = raw_.find(address);
    if (found == raw_.end()) return false;
    memory = std::move(found->second);
    raw_.erase(found);
  }
  let_go(std::move(memory));
  return true;
}

void* PluggedAllocator::map_range(int device, std::size_t bytes, std::size_t piece_bytes) {
  backend::Backend& backend = runtime_.backend();
  const std::size_t unit = backend.page_bytes(device);
  if (unit == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("device_malloc_in_pieces: device is {}, expected one whose driver maps memory by "
                            "pieces (cuMemCreate)",
                            device));
  }
  if (std::max(bytes, piece_bytes) > backend.memory_info(device).total) return nullptr;
  const std::size_t piece = round_up(std::max<std::size_t>(piece_bytes, 1), unit);
  const std::size_t whole = round_up(std::max<std::size_t>(bytes, 1), piece);
  auto* const begin = static_cast<std::byte*>(backend.reserve_addresses(device, whole));
  if (begin == nullptr) return nullptr;
  std::size_t mapped = 0;
  const auto free = [&] {
    if (mapped > 0) backend.unmap_pages(device, begin, mapped);
    backend.release_addresses(device, begin, whole);
  };
  try {
    while (mapped < whole && backend.map_pages(device, begin + mapped, piece)) mapped += piece;
    const std::lock_guard lock(mutex_);
    if (mapped == whole) ranges_.emplace(begin, whole);
  } catch (...) {
    free();
    throw;
  }
  if (mapped == whole) return begin;
  free();
  return nullptr;
}

bool PluggedAllocator::unmap_range(int device, void* address) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto range = ranges_.find(address);
    if (range == ranges_.end()) return false;
    bytes = range->second;
    ranges_.erase(range);
  }
  runtime_.backend().unmap_pages(device, address, bytes);
  runtime_.backend().release_addresses(device, address, bytes);
  return true;
}

void* PluggedAllocator::call_alloc(int device, std::size_t bytes, backend::StreamRef stream) {
  if (runtime_.backend().is_capturing(stream)) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("a pluggable allocator cannot allocate during a capture: {} were requested on a stream "
                    "of device {} that is being captured",
                    format_bytes(bytes), stream.device));
  }
  if (bytes == 0) return nullptr;
  const DeviceGuard current{Device(device)};
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
      fmt::format("out of memory on device {}: the pluggable allocator could not allocate the requested {}; "
                  "free {} of {}",
                  device, format_bytes(bytes), format_bytes(memory.free), format_bytes(memory.total)),
      figures);
}

void PluggedAllocator::call_free(void* address, std::size_t bytes, int device,
                                 backend::StreamRef stream) noexcept {
  if (bytes == 0) return;
  std::optional<DeviceGuard> current;
  try {
    current.emplace(Device(device));
  } catch (const std::exception&) {
    // Without memory for the thread's state, or with the device in trouble: the function is told the device.
  }
  functions_->free(address, bytes, device, stream.handle);
  bytes_in_use_ -= bytes;
}

void PluggedAllocator::require_unused() {
  if (const std::size_t bytes = bytes_in_use(); bytes != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("virtual_devices::start: {} bytes of the pluggable allocator are still allocated, "
                    "expected none: destroy all tensors first",
                    bytes));
  }
}

}  // namespace tutti
