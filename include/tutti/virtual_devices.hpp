// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Virtual devices simulate GPUs on the CPU (the host backend), to develop, test and teach multi-device
/// programs without GPUs.
///
/// Streams are asynchronous (one worker thread each), events order them, device memory faults when touched
/// from the host, peer access is refused if the topology has none, and memory is bounded.
///
/// Queued work takes host memory, about a kilobyte per operation. A thread that queues on a stream with 1024
/// unfinished operations waits until it has fewer, as on a GPU. If none of them ends within 100 ms, as many
/// again are admitted, because the stream may be waiting for that very thread. Work that runs on a stream and
/// queues other work does not wait.
///
/// Each process that uses virtual devices has a machine of its own. Devices with the same number in different
/// processes stand for one device. Processes can open each other's memory, as with GPUs, if the opener's
/// topology has a link.
namespace tutti::virtual_devices {

/// The kind of connection between two virtual devices. `none`: no peer access, copies are staged through the
/// host.
enum class VirtualLink : std::uint8_t { none, pcie, nvlink };

/// Describes the machine to simulate.
struct VirtualMachine {
  int device_count = 8;                             ///< 0 to 1024
  std::size_t memory_bytes = std::size_t{1} << 30;  ///< per device; a bound, committed only as used
  /// links[i][j]: the connection from device i to device j. Empty: every pair has `nvlink`.
  std::vector<std::vector<VirtualLink>> links;
  std::string name = "island";  ///< a label; nothing depends on it

  /// Makes a machine from one of the presets "island" (all pairs NVLink), "two-islands" (the first and second
  /// half, no peer access between them), "pcie" (no peer access at all), "pcie-p2p" (all pairs PCIe peer
  /// access), or the path of a JSON file: {"name": str, "devices": n, "memory": bytes or "512M", "links":
  /// [["self", "nvlink", "pcie", "none", …], …]}. Throws Error(invalid_argument) naming the file and the
  /// field that is wrong.
  [[nodiscard]] TUTTI_EXPORT static VirtualMachine from_topology(std::string_view preset_or_path,
                                                                 int device_count = 8);
  /// Makes the machine that the environment describes: `TUTTI_VIRTUAL_DEVICES` (count, default 8),
  /// `TUTTI_VIRTUAL_TOPOLOGY` (preset or path, default island), `TUTTI_VIRTUAL_MEMORY` (bytes per device,
  /// suffixes K, M, G). Throws Error(invalid_argument) naming a variable that has an invalid value.
  [[nodiscard]] TUTTI_EXPORT static VirtualMachine from_environment();
};

/// Replaces this process's devices, of whatever backend, by those of `machine`, which starts as if freshly
/// booted. All tensors, streams in use and other objects of the library must be gone: throws
/// Error(invalid_argument) while device or pinned memory is still allocated, for more than 1024 devices, and
/// for a machine that contradicts itself, such as one with links for another number of devices. Random number
/// generators start anew, even if it throws. Call it while no other thread uses the library.
TUTTI_EXPORT void start(const VirtualMachine& machine);

/// Backend operations that can be made to fail.
enum class Operation : std::uint8_t {
  allocate_device,
  allocate_pinned,
  copy,    ///< `Copy2D` transfers
  kernel,  ///< fan-out, ordered sum, convert, fill, random fill, a communicator's rounds
  enable_peer,
  create_stream,
  create_event,
  signal,  ///< queueing a signal, or a wait for some
  share,   ///< making a block of device memory known to other processes
  open,    ///< opening another process's block
};

/// Kinds of failure.
enum class FaultKind : std::uint8_t {
  fail,  ///< allocations report exhaustion; enqueuing calls, peer enable, sharing and opening throw
  fail_asynchronously,  ///< copies and kernels only: accepted, then fail when they run
  corrupt,  ///< copies and kernels only: bytes that cross the link between `device` and `peer` are damaged
  delay,    ///< copies and kernels only: take `delay_microseconds` longer
};

struct Fault {
  Operation operation = Operation::kernel;
  FaultKind kind = FaultKind::fail;
  std::optional<Device> device = {};  ///< the device that the operation is issued on; empty: any
  std::optional<Device> peer = {};    ///< for `enable_peer`, `open`, `corrupt`, the other device; empty: any
  std::uint64_t skip = 0;             ///< let this many matching operations pass first
  std::uint64_t count = 1;            ///< then affect this many
  std::uint64_t delay_microseconds = 0;
};

/// Adds a fault to the running virtual machine. Thread-safe. Throws Error(unsupported) on GPUs, and
/// Error(invalid_argument) for a device that does not exist and for a kind that the operation does not
/// support.
TUTTI_EXPORT void inject(const Fault& fault);
/// Removes all faults, including those that are partly used up. Thread-safe. Throws Error(unsupported) on
/// GPUs, as do the functions below.
TUTTI_EXPORT void clear_faults();
/// Returns the number of operations accepted so far, of all kinds, so that a test can check that nothing was
/// enqueued.
[[nodiscard]] TUTTI_EXPORT std::uint64_t operations_enqueued();

/// Interleaves and delays streams adversarially: `seed` determines which runnable stream goes next, and when.
/// While this is on, one operation runs at a time, and the same program with the same seed runs in the same
/// order. Calls that queue work or query it wait once, for 20 ms at most, for the operation that is running.
/// Queued work also runs while a communicator's call waits for other ranks, and after a quarter of a second
/// without a call. `std::nullopt` turns it off. `TUTTI_VIRTUAL_SEED` does the same from the start. Waits
/// until all streams are idle.
TUTTI_EXPORT void set_interleaving_seed(std::optional<std::uint64_t> seed);
/// Returns the seed in use, or nothing if streams are not interleaved on purpose.
[[nodiscard]] TUTTI_EXPORT std::optional<std::uint64_t> interleaving_seed();

/// An array that a virtual kernel accesses.
struct Access {
  enum class Use : std::uint8_t {
    read,
    write,
    read_write,
    unchecked  ///< either; kernels order it themselves, which the stream sanitizer does not check
  };
  const void* address = nullptr;  ///< device memory as tensors give it, or pinned memory
  std::size_t bytes = 0;
  Use use = Use::read_write;  ///< for the stream sanitizer; nothing else uses it
};

/// Queues a virtual kernel: `kernel` is called on the stream's worker with, for each entry of `accesses` in
/// order, an address it may really read and write. Memory of other devices needs peer access. An exception
/// from the kernel surfaces at the next synchronising call, as does an access that the stream's device may
/// not make. The kernel starts in the default floating-point environment, and may leave it changed. Throws
/// Error(unsupported) on GPUs.
TUTTI_EXPORT void launch(const Stream& stream, std::string_view name, std::span<const Access> accesses,
                         std::function<void(std::span<void* const>)> kernel);

}  // namespace tutti::virtual_devices
