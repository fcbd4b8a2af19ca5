// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace tutti::backend {

/// The part of virtual devices that has no counterpart on GPUs (see `tutti/virtual_devices.hpp` for the
/// contracts).
class VirtualMachineControl {
 public:
  virtual ~VirtualMachineControl() = default;
  virtual void inject(const virtual_devices::Fault& fault) = 0;
  virtual void clear_faults() = 0;
  [[nodiscard]] virtual std::uint64_t operations_enqueued() const = 0;
  virtual void set_interleaving_seed(std::optional<std::uint64_t> seed) = 0;
  [[nodiscard]] virtual std::optional<std::uint64_t> interleaving_seed() const = 0;
  /// Sets whether calls that queue a kernel return only when it has ended, as they do on GPUs under some
  /// tools.
  virtual void set_blocking_launches(bool block) = 0;
  /// Takes the access of other devices than its own to the block or range at an address away, until it is
  /// adopted (`MemoryCalls::adopt_pieces`): as memory is that a program maps for one device alone, or a block
  /// of a pool of the driver.
  virtual void close_to_peers(const void* address) = 0;
  /// Makes memory of the program managed memory, of which every device and the host are owners, until
  /// `remove_managed` takes this call back. Returns false if it overlaps with other memory of the machine,
  /// but for exactly the same managed memory.
  [[nodiscard]] virtual bool add_managed(std::byte* address, std::size_t bytes) = 0;
  virtual void remove_managed(const std::byte* address) = 0;
  virtual void launch(StreamRef stream, std::string_view name,
                      std::span<const virtual_devices::Access> accesses,
                      std::function<void(std::span<void* const>)> kernel) = 0;
};

}  // namespace tutti::backend
