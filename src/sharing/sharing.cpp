// SPDX-License-Identifier: Apache-2.0
#include "sharing/sharing.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "backend/sealed_words.hpp"
#include "device/blocking_call.hpp"
#include "device/open_captures.hpp"
#include "device/runtime.hpp"
#include "os/unshared_descriptor.hpp"
#include "sharing/deferred_closes.hpp"
#include "sharing/shared_tensor_words.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sys/file.h>

namespace tutti {
namespace {

/// In memory of both processes.
struct SharedTensorControl {
  std::atomic<std::uint32_t> is_withdrawn{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

SharedTensorControl& control_in(const SharedMemory& memory) {
  return *reinterpret_cast<SharedTensorControl*>(memory.data());
}

std::array<char, longest_bus_id> bus_id_of(backend::Backend& backend, int device) {
  std::array<char, longest_bus_id> result{};
  const std::string& bus_id = backend.properties(device).pci_bus_id;
  std::copy_n(bus_id.begin(), std::min(bus_id.size(), longest_bus_id - 1), result.begin());
  return result;
}

/// Returns the device's whole allocation that contains `tensor`, or the tensor's own bytes if they are in
/// pieces.
DeviceAllocation allocation_of(Runtime& runtime, const Tensor& tensor) {
  const int device = tensor.device().index();
  const std::size_t bytes = tensor.layout()->span_bytes();
  const CachingAllocator::Extent segment = runtime.part<Allocators>().of(device).segment_of(tensor.data());
  if (segment.address != nullptr && segment.origin == backend::MemoryOrigin::block)
    return {segment.address, segment.bytes, device};
  const std::optional<DeviceAllocation> found = allocation_around(runtime.backend(), tensor.data(), bytes);
  if (!found || found->device != device) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("SharedTensor: tensor has its data at {}, expected an address in an allocation of "
                    "its device",
                    tensor.data()));
  }
  return *found;
}

[[noreturn]] void refuse_handle(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("open_shared_tensor: handle {}, expected one from SharedTensor::handle", reason));
}

/// Memory of another process, open. Nothing in a child forked off: it is its parent's.
class OpenedAllocation {
 public:
  OpenedAllocation(Runtime& runtime, int device, UnsharedDescriptor lock,
                   const backend::MemoryHandle& allocation)
      : backend_(runtime.backend()),
        closes_(runtime.part<QuietCloses>().shared_from_this()),
        device_(device),
        lock_(std::make_shared<UnsharedDescriptor>(std::move(lock))),
        address_(static_cast<std::byte*>(backend_.open_device_memory(device, allocation))) {}
  OpenedAllocation(const OpenedAllocation&) = delete;
  OpenedAllocation& operator=(const OpenedAllocation&) = delete;
  ~OpenedAllocation() {
    if (!fork_mark_.is_in_child()) closes_->add(close_later());
  }

  [[nodiscard]] std::byte* address() const noexcept { return address_; }

 private:
  /// The lock goes after the memory has been closed.
  [[nodiscard]] std::function<void()> close_later() {
    return [&backend = backend_, device = device_, address = address_, lock = lock_] {
      backend.close_device_memory(device, address);
    };
  }

  backend::Backend& backend_;
  const std::shared_ptr<QuietCloses> closes_;  ///< which may be older than the memory's last user
  const int device_;
  const ForkMark fork_mark_;
  const std::shared_ptr<UnsharedDescriptor> lock_;
  std::byte* const address_;
};

/// Closed late: when the streams that used it are done.
class OpenedStorage final : public Storage {
 public:
  OpenedStorage(Runtime& runtime, std::shared_ptr<OpenedAllocation> allocation, void* data, std::size_t bytes,
                int device, MemoryAccess access, backend::StreamRef home)
      : Storage(data, bytes, Device(device), MemoryOrigin::foreign, access),
        opened_(runtime.part<SharedBefore>()),
        late_releases_(runtime.part<LateReleases>()) {
    LateReleases::One& one = last_.emplace_back();
    one.resource = std::move(allocation);
    one.streams.push_back(home);
    opened_.count_opened();
  }
  ~OpenedStorage() override {
    opened_.count_closed();
    if (!fork_mark_.is_in_child()) late_releases_.add_marked(std::move(last_));
  }

  void record_stream(const Stream& stream) override {
    const backend::StreamRef user = StreamAccess::ref(stream);
    if (graph_keeps(*this, user)) return;
    const std::lock_guard lock(mutex_);
    std::vector<backend::StreamRef>& users = last_.front().streams;
    if (std::ranges::find(users, user) == users.end()) users.push_back(user);
  }

 private:
  SharedBefore& opened_;
  LateReleases& late_releases_;
  const ForkMark fork_mark_;
  std::mutex mutex_;
  LateReleases::ReleaseList last_;
};

const Tensor& shareable(const Tensor& tensor) {
  require_defined(tensor, "SharedTensor", "tensor");
  if (tensor.device().is_host()) {
    throw Error(ErrorCode::invalid_argument, "SharedTensor: tensor is on the host, expected it on a device");
  }
  if (tensor.numel() == 0)
    throw Error(ErrorCode::invalid_argument, "SharedTensor: tensor has no elements, expected some");
  if (dynamic_cast<const OpenedStorage*>(tensor.storage().get()) != nullptr) {
    throw Error(ErrorCode::unsupported,
                "SharedTensor: tensor is another process's, expected this process's own: pass on the handle "
                "that it was opened by");
  }
  return tensor;
}

SharedTensorWords words_of(std::span<const std::byte> handle) {
  if (handle.size() != sizeof(SharedTensorWords))
    refuse_handle(fmt::format("has {} bytes, expected {}", handle.size(), sizeof(SharedTensorWords)));
  const auto words = unsealed<SharedTensorWords>(handle);
  if (!words) refuse_handle("has a checksum that does not match: it is no handle, or was changed");
  if (words->device < 0) refuse_handle(fmt::format("names device {}", words->device));
  if (words->control.bytes != sizeof(SharedTensorControl)) {
    refuse_handle(fmt::format("names {} bytes of shared state, expected {}", words->control.bytes,
                              sizeof(SharedTensorControl)));
  }
  return *words;
}

LayoutPtr layout_of(const SharedTensorWords& words) {
  if (words.dtype >= all_dtypes.size()) refuse_handle(fmt::format("names element type {}", words.dtype));
  if (words.rank > max_dimensions) refuse_handle(fmt::format("names {} dimensions", words.rank));
  const auto rank = static_cast<std::size_t>(words.rank);
  LayoutPtr layout;
  try {
    layout = make_layout(all_dtypes[words.dtype], std::span(words.sizes).first(rank),
                         std::span(words.strides).first(rank));
  } catch (const Error& error) {
    refuse_handle(fmt::format("names an impossible tensor ({})", error.what()));
  }
  const std::size_t element = size_of(layout->dtype());
  if (words.offset % element != 0) {
    refuse_handle(fmt::format("names offset {}, which is no multiple of the {} bytes of {}", words.offset,
                              element, name_of(layout->dtype())));
  }
  return layout;
}

/// Returns how many bytes of another process's memory are open from `address` on. A driver that does not tell
/// leaves what the handle says; of pieces, which lie side by side, it tells one by one.
std::uint64_t open_bytes(backend::Backend& backend, const backend::PointerInfo& info, std::byte* address,
                         const SharedTensorWords& words) {
  if (info.base == nullptr || info.bytes == 0) return words.bytes;
  const std::optional<DeviceAllocation> open =
      allocation_around(backend, address, std::min<std::uint64_t>(words.bytes, PTRDIFF_MAX));
  if (!open || open->origin == backend::MemoryOrigin::pool) return words.bytes;
  return static_cast<std::uint64_t>(open->address + open->bytes - address);
}

/// Compares what the handle says with the memory that is open now.
void require_inside(Runtime& runtime, const SharedTensorWords& words, const Layout& layout, int device,
                    const std::byte* address) {
  const backend::PointerInfo info = runtime.backend().pointer_info(address);
  if (info.kind != backend::MemoryKind::device || info.device != device) {
    refuse_handle(
        fmt::format("names device {}, and its memory belongs to {}", device,
                    info.kind == backend::MemoryKind::device ? to_string(Device(info.device)) : "the host"));
  }
  const std::size_t needed = layout.span_bytes();
  const std::uint64_t open = open_bytes(runtime.backend(), info, const_cast<std::byte*>(address), words);
  if (needed > open || words.offset > open - needed) {
    refuse_handle(
        fmt::format("names {} bytes from offset {}, and its memory has {}", needed, words.offset, open));
  }
}

/// The device of this process that the words mean.
int device_here(Runtime& runtime, const SharedTensorWords& words) {
  backend::Backend& backend = runtime.backend();
  const bool has_gpus = backend.kind() == BackendKind::cuda;
  if (has_gpus != (words.is_on_gpus != 0)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("open_shared_tensor: handle is of memory of {}, and this process has {}",
                            has_gpus ? "a virtual device" : "a GPU", has_gpus ? "GPUs" : "virtual devices"));
  }
  if (!has_gpus && words.device < runtime.device_count()) return static_cast<int>(words.device);
  for (int device = 0; has_gpus && device < runtime.device_count(); ++device) {
    if (bus_id_of(backend, device) == words.bus_id) return device;
  }
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("open_shared_tensor: handle is of memory of device {} of its process, which is not "
                          "among the {} devices of this one",
                          words.device, runtime.device_count()));
}

[[noreturn]] void refuse_unshared(const SharedTensorWords& words, const std::string& reason, int error = 0) {
  throw Error(ErrorCode::peer_unavailable,
              fmt::format("open_shared_tensor: handle is of a tensor of process {}, which does not share it "
                          "with this one, or no longer: {}",
                          words.control.process, reason),
              error);
}

UnsharedDescriptor lock_file_of(const SharedTensorWords& words) {
  Descriptor file;
  try {
    file = SharedMemory::open_file(words.control);
  } catch (const Error& error) {
    refuse_unshared(words, error.what(), error.native_code());
  }
  UnsharedDescriptor lock(file);
  if (!lock.is_open()) refuse_unshared(words, std::strerror(errno), errno);
  return lock;
}

/// Takes the lock that tells the other process that its memory is open. It is this process's alone, as
/// children of it may live longer.
UnsharedDescriptor lock_of(const SharedTensorWords& words) {
  if (SharedMemory::is_own(words.control)) {
    throw Error(
        ErrorCode::peer_unavailable,
        "open_shared_tensor: handle is of this process's own memory, expected another process's: copy "
        "the tensor");
  }
  UnsharedDescriptor lock = lock_file_of(words);
  const SharedMemory control(words.control);
  const bool is_locked = flock(lock.number(), LOCK_SH | LOCK_NB) == 0;
  if (!is_locked || control_in(control).is_withdrawn.load(std::memory_order_acquire) != 0)
    refuse_unshared(words, "it has been withdrawn");
  return lock;
}

}  // namespace

SharedTensorState::SharedTensorState(Runtime& runtime, const Tensor& tensor)
    : tensor_(shareable(tensor)), control_(sizeof(SharedTensorControl)) {
  const int device = tensor.device().index();
  const DeviceAllocation allocation = allocation_of(runtime, tensor);
  SharedTensorWords words;
  words.is_on_gpus = runtime.backend().kind() == BackendKind::cuda ? 1 : 0;
  words.is_read_only = tensor.is_read_only() ? 1 : 0;
  words.device = device;
  words.bus_id = bus_id_of(runtime.backend(), device);
  words.allocation = share(runtime, allocation);
  words.offset = static_cast<std::uint64_t>(static_cast<std::byte*>(tensor.data()) - allocation.address);
  words.bytes = allocation.bytes;
  words.dtype =
      static_cast<std::uint64_t>(std::ranges::find(all_dtypes, tensor.dtype()) - all_dtypes.begin());
  words.rank = tensor.sizes().size();
  std::ranges::copy(tensor.sizes(), words.sizes.begin());
  std::ranges::copy(tensor.strides(), words.strides.begin());
  words.control = control_.share(Audience::same_user);
  lock_ = SharedMemory::open_file(words.control);
  handle_.resize(sizeof words);
  seal(words, handle_);
  runtime.part<Streams>().synchronize(current_stream_ref(runtime, device));
}

backend::MemoryHandle SharedTensorState::share(Runtime& runtime, const DeviceAllocation& allocation) {
  backend::Backend& backend = runtime.backend();
  if (allocation.origin == backend::MemoryOrigin::block)
    return backend.share_device_memory(allocation.device, allocation.address, Audience::same_user);
  pieces_ =
      backend.share_pieces(allocation.device, allocation.address, allocation.bytes, Audience::same_user);
  return pieces_->handle();
}

void SharedTensorState::withdraw() noexcept {
  control_in(control_).is_withdrawn.store(1, std::memory_order_release);
  control_.seal();
}

bool SharedTensorState::is_open_elsewhere() const noexcept {
  return flock(lock_.number(), LOCK_EX | LOCK_NB) != 0;
}

SharedTensor::SharedTensor(const Tensor& tensor) {
  const BlockingCall blocks("SharedTensor");
  Runtime& runtime = Runtime::get();
  runtime.part<Allocators>().reclaim();
  state_ = std::make_unique<SharedTensorState>(runtime, tensor);
}

SharedTensor::SharedTensor(SharedTensor&& other) noexcept = default;

SharedTensor& SharedTensor::operator=(SharedTensor&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

SharedTensor::~SharedTensor() {
  if (state_ == nullptr || state_->is_in_child()) return;
  state_->withdraw();
  if (!state_->is_open_elsewhere()) return;
  try {
    Runtime::get().part<SharedBefore>().add(std::move(state_));
  } catch (const std::exception&) {
    // No memory for the entry: what others have open must stay, so it stays for good.
    static_cast<void>(state_.release());
  }
}

std::span<const std::byte> SharedTensor::handle() const noexcept {
  return state_ == nullptr ? std::span<const std::byte>() : state_->handle();
}

void SharedBefore::add(std::unique_ptr<SharedTensorState> state) {
  const std::lock_guard lock(mutex_);
  states_.reserve(states_.size() + 1);
  states_.push_back(std::move(state));
}

SharedBefore::SharedBefore(Runtime& runtime) {
  runtime.part<Allocators>().reclaimers()->add(as_reclaimer_);
}

SharedBefore::~SharedBefore() {
  reclaim();
  for (std::unique_ptr<SharedTensorState>& state : states_) static_cast<void>(state.release());
}

std::size_t SharedBefore::count() {
  const std::lock_guard lock(mutex_);
  return states_.size();
}

bool SharedBefore::reclaim() {
  const OpenCapture of_no_graph(GraphPool::none);        // they are no part of what this thread captures
  std::vector<std::unique_ptr<SharedTensorState>> gone;  // tensors are destroyed without the lock
  const std::lock_guard lock(mutex_);
  const auto closed =
      std::ranges::partition(states_, [](const auto& state) { return state->is_open_elsewhere(); });
  gone.assign(std::move_iterator(closed.begin()), std::move_iterator(closed.end()));
  states_.erase(closed.begin(), closed.end());
  return !gone.empty();
}

void SharedBefore::require_unused() {
  reclaim();
  if (const std::size_t open = count(); open != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("virtual_devices::start: {} tensors that were shared are still open in other "
                            "processes, expected none: close them there first",
                            open));
  }
  if (const int opened = opened_.load(); opened != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("virtual_devices::start: {} tensors of other processes are still open, expected "
                            "none: destroy all tensors first",
                            opened));
  }
}

Tensor open_shared_tensor(std::span<const std::byte> handle) {
  const SharedTensorWords words = words_of(handle);
  Runtime& runtime = Runtime::get();
  runtime.part<Allocators>().reclaim();
  const int device = device_here(runtime, words);
  LayoutPtr layout = layout_of(words);
  const std::size_t bytes = layout->span_bytes();

  auto allocation = std::make_shared<OpenedAllocation>(runtime, device, lock_of(words), words.allocation);
  require_inside(runtime, words, *layout, device, allocation->address());
  void* const data = allocation->address() + words.offset;
  auto storage = detail::IntrusivePtr<Storage>::adopt(
      new OpenedStorage(runtime, std::move(allocation), data, bytes, device,
                        words.is_read_only != 0 ? MemoryAccess::read_only : MemoryAccess::read_write,
                        current_stream_ref(runtime, device)));
  return {std::move(storage), TensorView(data, std::move(layout), Device(device))};
}

void ipc_collect() {
  if (Runtime* const runtime = Runtime::get_if_initialized()) runtime->part<Allocators>().reclaim();
}

}  // namespace tutti
