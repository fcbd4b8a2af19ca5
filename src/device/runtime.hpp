// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "device/runtime_part.hpp"
#include "tutti/device.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <typeindex>
#include <vector>

namespace tutti {

namespace backend {
class VirtualMachineControl;
}

/// A part of the runtime that has a fixed place.
template <class T>
concept FixedPart = std::derived_from<T, RuntimePart> && requires { T::slot; };

/// The process-wide state behind all modules: one backend, its devices, and the parts that layers above keep
/// with it.
///
/// Created by the first call that needs it, never destroyed at process exit (work may still be in flight, and
/// static objects may still hold tensors); `replace` swaps it for a freshly booted virtual machine.
class Runtime {
 public:
  /// Returns the runtime; creates it on first use. Thread-safe; one atomic load once created.
  [[nodiscard]] static Runtime& get();
  /// Returns nullptr before first use.
  [[nodiscard]] static Runtime* get_if_initialized() noexcept;
  /// Returns how many devices the runtime has or, before first use, will have. Creates it only if that cannot
  /// be told otherwise. 0 where `get` would throw Error(unsupported).
  [[nodiscard]] static int count_devices();
  /// Implements `virtual_devices::start`. Destroys the parts without a fixed place even if it then finds
  /// memory in use and throws; they are made again when they are needed.
  static void replace(const virtual_devices::VirtualMachine& machine);

  explicit Runtime(std::unique_ptr<backend::Backend> backend, backend::VirtualMachineControl* control);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  [[nodiscard]] backend::Backend& backend() noexcept { return *backend_; }
  /// Returns the control of virtual devices, nullptr on GPUs.
  [[nodiscard]] backend::VirtualMachineControl* virtual_machine() noexcept { return control_; }
  [[nodiscard]] int device_count() const noexcept { return device_count_; }
  /// Returns a number that differs for every runtime of the process, by which thread-local state of an
  /// earlier one is recognised.
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }

  /// Throws Error(invalid_argument) "<function>: device is 9, expected 0 to 7" unless `device` exists. The
  /// host is no device.
  void require_device(Device device, std::string_view function) const;

  /// Returns the one object of type T that belongs to this runtime, made by `T(Runtime&)` on first use.
  /// Thread-safe. A part with a fixed place costs one load and outlives those without, which cost a search
  /// and are destroyed newest first. All are destroyed before the backend.
  template <class T>
  [[nodiscard]] T& part() {
    static_assert(FixedPart<T> || !std::derived_from<T, RuntimePart>, "a RuntimePart names its slot");
    if constexpr (FixedPart<T>) {
      RuntimePart* const part = fixed_[static_cast<std::size_t>(T::slot)].load(std::memory_order_acquire);
      return static_cast<T&>(part != nullptr ? *part : add_fixed(T::slot, make_fixed<T>));
    } else {
      return *static_cast<T*>(find_or_add(typeid(T), make_loose<T>));
    }
  }

 private:
  struct LoosePart {
    std::type_index type;
    std::shared_ptr<void> object;
  };

  template <class T>
  static RuntimePart* make_fixed(Runtime& runtime) {
    return new T(runtime);
  }
  template <class T>
  static std::shared_ptr<void> make_loose(Runtime& runtime) {
    return std::make_shared<T>(runtime);
  }
  [[nodiscard]] RuntimePart& add_fixed(PartSlot slot, RuntimePart* (*make)(Runtime&));
  [[nodiscard]] void* find_or_add(std::type_index type, std::shared_ptr<void> (*make)(Runtime&));
  void settle(Settling how);
  /// Destroys the parts without a fixed place, newest first.
  void destroy_loose_parts();
  /// Waits for the devices, and asks all fixed parts. Throws Error(invalid_argument) if one is in use, or a
  /// stream is being captured.
  void require_unused();
  void require_uncaptured();

  std::unique_ptr<backend::Backend> backend_;
  backend::VirtualMachineControl* control_;
  int device_count_;
  std::uint64_t generation_;
  std::array<std::atomic<RuntimePart*>, part_slot_count> fixed_{};
  std::recursive_mutex parts_mutex_;  ///< making one part may need another
  std::vector<LoosePart> loose_;
};

}  // namespace tutti
