// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/current_device.hpp"

#include "backend/cuda/driver_function.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <optional>

namespace tutti::backend::cuda {
namespace {

/// The driver's functions about contexts. The runtime has no words for a thread that has none yet.
class Contexts {
 public:
  [[nodiscard]] static Contexts& get() {
    static Contexts contexts;
    return contexts;
  }
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  [[nodiscard]] bool are_known() const noexcept {
    return current_ != nullptr && set_current_ != nullptr && device_ != nullptr && retain_ != nullptr;
  }
  /// nullptr if there is none.
  [[nodiscard]] void* current() const noexcept {
    void* context = nullptr;
    return are_known() && current_(&context) == success ? context : nullptr;
  }
  [[nodiscard]] cudaError_t set_current(void* context) const noexcept {
    return static_cast<cudaError_t>(set_current_(context));  // the same numbers
  }
  /// The one the runtime uses, which stays until the process ends. Throws.
  [[nodiscard]] void* primary(int device) {
    std::atomic<void*>& known = primaries_[static_cast<std::size_t>(device)];
    if (void* const context = known.load(std::memory_order_acquire)) return context;
    int handle = 0;
    check(static_cast<cudaError_t>(device_(&handle, device)), "cuDeviceGet", device);
    void* context = nullptr;
    check(static_cast<cudaError_t>(retain_(&context, handle)), "cuDevicePrimaryCtxRetain", device);
    known.store(context, std::memory_order_release);  // twice the same where threads race
    return context;
  }
  /// The same; nullptr if it has not been asked for, or has been reset.
  [[nodiscard]] void* known_primary(int device) const noexcept {
    if (!has_room_for(device)) return nullptr;
    void* const context = primaries_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
    return context != nullptr && is_active(device) ? context : nullptr;
  }
  [[nodiscard]] bool is_active(int device) const noexcept {
    unsigned flags = 0;
    int active = 0;
    return state_ != nullptr && state_(device, &flags, &active) == success && active != 0;
  }
  [[nodiscard]] bool has_room_for(int device) const noexcept {
    return static_cast<std::size_t>(device) < primaries_.size();
  }
  /// Returns true if `context` is the one the runtime uses on `device`, and keeps it then. Makes none to find
  /// out.
  [[nodiscard]] bool is_primary(const void* context, int device) {
    return are_known() && has_room_for(device) && is_active(device) && primary(device) == context;
  }
  /// Returns the device of the current context; nothing if the driver does not say.
  [[nodiscard]] std::optional<int> device_of_current() const noexcept {
    int handle = 0;
    if (current_device_ == nullptr || current_device_(&handle) != success) return std::nullopt;
    return handle;  // the driver numbers its handles as it numbers devices
  }
  [[nodiscard]] bool know_streams() const noexcept { return are_known() && of_stream_ != nullptr; }
  /// nullptr if the driver knows no such stream.
  [[nodiscard]] void* of_stream(cudaStream_t stream) const noexcept {
    void* context = nullptr;
    return of_stream_(stream, &context) == success ? context : nullptr;
  }

 private:
  static constexpr int success = 0;
  static constexpr std::size_t most_devices = 256;

  Contexts() {
    load(current_, "cuCtxGetCurrent");
    load(set_current_, "cuCtxSetCurrent");
    load(device_, "cuDeviceGet");
    load(retain_, "cuDevicePrimaryCtxRetain");
    load(state_, "cuDevicePrimaryCtxGetState");
    load(current_device_, "cuCtxGetDevice");
    load(of_stream_, "cuStreamGetCtx");
  }
  template <class Function>
  static void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(driver_function(name));
  }

  int (*current_)(void**) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*device_)(int*, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*state_)(int, unsigned*, int*) = nullptr;
  int (*current_device_)(int*) = nullptr;
  int (*of_stream_)(cudaStream_t, void**) = nullptr;
  std::array<std::atomic<void*>, most_devices> primaries_{};
};

}  // namespace

thread_local constinit ThreadDevice thread_device;

NativePlace ThreadDevice::ask() {
  Contexts& contexts = Contexts::get();
  NativePlace place;
  place.context = contexts.current();
  if (place.context != nullptr) {
    const auto seen = std::ranges::find(seen_, place.context, &NativePlace::context);
    if (seen != seen_.end()) return *seen;
  }
  check(cudaGetDevice(&place.device), "cudaGetDevice");
  if (place.context != nullptr) {
    if (contexts.is_primary(place.context, place.device)) see(place);
  } else if (void* const primary = contexts.known_primary(place.device);
             primary != nullptr && contexts.set_current(primary) == cudaSuccess) {
    place.context = primary;
    see(place);
  }
  return place;
}

NativePlace ask_place() {
  return thread_device.ask();
}

bool has_context() noexcept {
  const Contexts& contexts = Contexts::get();
  return !contexts.are_known() || contexts.current() != nullptr;
}

void enter_context(int device) {
  Contexts& contexts = Contexts::get();
  if (contexts.are_known() && contexts.has_room_for(device)) {
    check(contexts.set_current(contexts.primary(device)), "cuCtxSetCurrent", device);
  } else {
    check(cudaSetDevice(device), "cudaSetDevice", device);
  }
}

void restore_place(const NativePlace& previous) noexcept {
  const Contexts& contexts = Contexts::get();
  if (contexts.are_known()) {
    // Fails at process exit, when nothing is left to restore, and if the program has destroyed its context.
    const cudaError_t status = contexts.set_current(previous.context);
    if (status == cudaSuccess && previous.context != nullptr) return;
  }
  int device = -1;
  if (forget(cudaGetDevice(&device)) == cudaSuccess && device != previous.device)
    forget(cudaSetDevice(previous.device));
}

std::optional<int> device_of_stream(cudaStream_t stream, int device) {
  Contexts& contexts = Contexts::get();
  if (!contexts.know_streams() || !contexts.has_room_for(device)) return device;  // it is believed
  const NativePlace callers = ask_place();
  enter_context(device);  // the driver answers threads that have some context
  std::optional<int> owner;
  if (void* const context = contexts.of_stream(stream)) {
    owner = device;
    if (contexts.set_current(context) == cudaSuccess) owner = contexts.device_of_current();
  }
  restore_place(callers);
  return owner;
}

}  // namespace tutti::backend::cuda
