// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"
#include "backend/host/kernels/kernels.hpp"
#include "base/enumerators.hpp"
#include "device/blocking_call.hpp"
#include "device/foreign_memory.hpp"
#include "device/runtime.hpp"
#include "storage/pluggable_allocator.hpp"
#include "storage/storage.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/overlap.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti {
namespace {

/// Checks all preconditions before anything is enqueued.
void require_copyable(const Tensor& target, const Tensor& source) {
  require_defined(target, "Tensor::copy_", "the tensor");
  require_defined(source, "Tensor::copy_", "source");
  if (!std::ranges::equal(target.sizes(), source.sizes())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Tensor::copy_: source has sizes {}, expected {}", to_string(source.sizes()),
                            to_string(target.sizes())));
  }
  if (!target.layout()->is_non_overlapping()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("Tensor::copy_: the tensor has sizes {} and strides {}, under which several indices "
                    "share an element, expected one element for each",
                    to_string(target.sizes()), to_string(target.strides())));
  }
  for (const Device device : {target.device(), source.device()}) {
    if (!device.is_host()) Runtime::get().require_device(device, "Tensor::copy_");
  }
}

void require_no_overlap(const TensorView& target, const TensorView& source) {
  if (!shares_memory(target, source)) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format(
          "Tensor::copy_: source ({} with sizes {} and strides {} at {}) overlaps the tensor ({} with "
          "sizes {} and strides {} at {}), expected the same elements or none",
          name_of(source.dtype()), to_string(source.sizes()), to_string(source.strides()), source.data(),
          name_of(target.dtype()), to_string(target.sizes()), to_string(target.strides()), target.data()));
}

std::byte* bytes_of(const TensorView& view) {
  return static_cast<std::byte*>(view.data());
}

backend::Convert conversion(const TensorView& target, const TensorView& source) {
  backend::Convert task{.target = bytes_of(target),
                        .source = bytes_of(source),
                        .target_dtype = target.dtype(),
                        .source_dtype = source.dtype(),
                        .rank = target.dim()};
  std::ranges::copy(target.sizes(), task.sizes.begin());
  std::ranges::copy(target.strides(), task.target_strides.begin());
  std::ranges::copy(source.strides(), task.source_strides.begin());
  return task;
}

/// Returns whether the elements are the same bytes in the same order.
bool can_copy_bytes(const Layout& target, const Layout& source) {
  return target.is_dense() && target == source;
}

backend::Copy2D byte_copy(const TensorView& target, const TensorView& source) {
  return {.target = bytes_of(target), .source = bytes_of(source), .row_bytes = target.nbytes()};
}

void wait_for(backend::StreamRef stream) {
  Runtime::get().part<Streams>().synchronize(stream);
}

/// Copies between two tensors on the host (at once) or on one device (in stream order), rearranging and
/// converting.
void copy_within(const TensorView& target, const TensorView& source) {
  const bool bytes = can_copy_bytes(*target.layout(), *source.layout());
  if (target.device().is_host()) {
    if (bytes) {
      std::copy_n(bytes_of(source), target.nbytes(), bytes_of(target));
    } else {
      backend::host::convert_elements(conversion(target, source));
    }
    return;
  }
  Runtime& runtime = Runtime::get();
  const backend::StreamRef stream = current_stream_ref(runtime, target.device().index());
  if (bytes) {
    runtime.backend().copy(stream, byte_copy(target, source));
  } else {
    runtime.backend().convert(stream, conversion(target, source));
  }
}

/// A piece of pinned memory through which data passes between pageable memory and a device.
class PinnedPiece {
 public:
  static constexpr std::size_t largest = std::size_t{1} << 20;

  PinnedPiece(std::size_t bytes, backend::StreamRef stream)
      : memory_(empty({static_cast<std::int64_t>(bytes)},
                      {.dtype = DType::uint8, .host_memory = HostMemory::pinned})),
        stream_(stream),
        queue_(StreamAccess::make(stream)) {}

  [[nodiscard]] std::byte* data() const { return bytes_of(memory_); }
  void move(std::byte* target, const std::byte* source, std::size_t bytes) {
    memory_.record_stream(queue_);
    Runtime::get().backend().copy(stream_, {.target = target, .source = source, .row_bytes = bytes});
  }
  /// Records the moves queued so far; `wait` returns when these have finished.
  void mark() { moved_.record(queue_); }
  void wait() const { moved_.synchronize(); }

 private:
  Tensor memory_;
  Event moved_;
  backend::StreamRef stream_;
  Stream queue_;
};

/// Returns pieces for a copy of so many bytes: none if there is no pinned memory left.
std::vector<PinnedPiece> pinned_pieces(std::size_t bytes, backend::StreamRef stream) {
  std::vector<PinnedPiece> pieces;
  try {
    const bool is_one = bytes <= PinnedPiece::largest;
    for (int i = 0; i < (is_one ? 1 : 2); ++i)
      pieces.emplace_back(std::min(bytes, PinnedPiece::largest), stream);
  } catch (const OutOfMemoryError&) {
    pieces.clear();
  }
  return pieces;
}

/// Copies to or from pageable memory: while one piece is being transferred, the host copies another. Returns
/// when the bytes have arrived.
///
/// CUDA's own copy would do the same, but while it blocks a thread for a stream, no other thread can launch
/// on that device: if kernels of several devices wait for each other, the next of them would never be
/// launched.
void copy_through(std::vector<PinnedPiece>& pieces, const backend::Copy2D& task, bool is_upload,
                  backend::StreamRef stream) {
  const std::size_t bytes = task.row_bytes;
  const std::size_t step = std::min(bytes, PinnedPiece::largest);
  const auto bytes_from = [&](std::size_t offset) { return std::min(step, bytes - offset); };
  const auto piece_of = [&](std::size_t offset) -> PinnedPiece& { return pieces[offset / step % 2]; };

  if (is_upload) {
    for (std::size_t offset = 0; offset < bytes; offset += step) {
      PinnedPiece& piece = piece_of(offset);
      piece.wait();
      std::copy_n(task.source + offset, bytes_from(offset), piece.data());
      piece.move(task.target + offset, piece.data(), bytes_from(offset));
      if (offset + 2 * step < bytes) piece.mark();
    }
    return wait_for(stream);
  }
  const auto send = [&](std::size_t offset) {
    PinnedPiece& piece = piece_of(offset);
    piece.move(piece.data(), task.source + offset, bytes_from(offset));
    if (offset + step < bytes) piece.mark();
  };
  send(0);
  for (std::size_t offset = 0; offset < bytes; offset += step) {
    if (offset + step < bytes) {
      send(offset + step);
      piece_of(offset).wait();
    } else {
      wait_for(stream);
    }
    std::copy_n(piece_of(offset).data(), bytes_from(offset), task.target + offset);
  }
}

/// Throws if the copy would break a capture: a copy between devices is queued on the source's stream, which
/// waits for the target's, and one of these may be part of a capture.
void require_one_capture(const Tensor& target, const Tensor& source) {
  if (target.device().is_host() || source.device().is_host()) return;
  Runtime& runtime = Runtime::get();
  const std::array streams{current_stream_ref(runtime, source.device().index()),
                           current_stream_ref(runtime, target.device().index())};
  const bool is_from_capture = runtime.backend().is_capturing(streams[0]);
  const bool is_to_capture = runtime.backend().is_capturing(streams[1]);
  if (!is_from_capture && !is_to_capture) return;
  require_no_default_stream(runtime, streams, "Tensor::copy_");
  if (is_to_capture) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("Tensor::copy_: the current stream of {} is being captured, and that of {} is not, "
                          "expected both in one capture: let the second wait for the first before",
                          to_string(source.device()), to_string(target.device())));
}

/// Moves bytes between the host and a device, or between two devices; both layouts are the same and dense.
void copy_across(const Tensor& target, const Tensor& source, Blocking blocking) {
  Runtime& runtime = Runtime::get();
  const backend::Copy2D task = byte_copy(target, source);
  if (!source.device().is_host() && !target.device().is_host()) {
    const backend::StreamRef source_stream = current_stream_ref(runtime, source.device().index());
    const backend::StreamRef target_stream = current_stream_ref(runtime, target.device().index());
    runtime.part<Streams>().order(target_stream, source_stream);
    runtime.backend().copy(source_stream, task);
    try {
      runtime.part<Streams>().order(source_stream, target_stream);
    } catch (...) {
      // The copy is under way, but the target's stream is not ordered after it.
      target.record_stream(StreamAccess::make(source_stream));
      throw;
    }
    return;
  }
  const bool is_upload = source.device().is_host();
  const Tensor& on_host = is_upload ? source : target;
  const backend::StreamRef stream =
      current_stream_ref(runtime, (is_upload ? target : source).device().index());
  std::optional<BlockingCall> blocks;
  if (!on_host.is_pinned() || blocking == Blocking::yes) blocks.emplace("Tensor::copy_");
  if (!on_host.is_pinned() && !runtime.backend().is_capturing(stream)) {
    if (auto pieces = pinned_pieces(task.row_bytes, stream); !pieces.empty())
      return copy_through(pieces, task, is_upload, stream);
  }
  runtime.backend().copy(stream, task);
  if (on_host.is_pinned() && blocking == Blocking::no) {
    on_host.record_stream(StreamAccess::make(stream));
  } else {
    wait_for(stream);
  }
}

/// Returns the layout in which a source travels to another place: its own, if the receiving device can
/// rearrange it; else the wanted one, or the dense layout nearest to it.
LayoutPtr travelling_layout(const Tensor& target, const Tensor& source) {
  const bool rearranged_on_arrival = !target.device().is_host();
  if (source.layout()->is_dense() && (rearranged_on_arrival || *source.layout() == *target.layout())) {
    return source.layout();
  }
  return dense_layout(target.layout());
}

/// Returns true if the device `peer` may use the tensor's memory, as far as it may use other memory there.
bool is_open_to(Device peer, const Tensor& tensor) {
  if (is_open_to_all(tensor.storage().get()) || peer.is_host() || tensor.device().is_host()) return true;
  const std::array peers{peer.index()};
  auto& foreign = Runtime::get().part<ForeignMemory>();
  if (foreign.is_open_to(peers, {bytes_of(tensor), tensor.layout()->span_bytes()})) return true;
  foreign.tell_of_stand_ins("Tensor::copy_", tensor.device().index(), tensor.data());
  return false;
}

/// Allocates memory for a copy to or from the other end. That is pinned on the host. On a device it is used
/// on the current stream, or ordered with it, so that it may be freed at once.
Tensor temporary(const LayoutPtr& layout, Device device, Device other_end) {
  if (device.is_host()) return allocate_tensor(layout, device, HostMemory::pinned, "Tensor::copy_");
  Runtime& runtime = Runtime::get();
  if (other_end.is_host() || !runtime.part<PluggedAllocator>().is_used())
    return allocate_tensor(layout, device, HostMemory::pageable, "Tensor::copy_");
  // The other device may have no access to what the program's allocator gives.
  const backend::StreamRef stream = current_stream_ref(runtime, device.index());
  detail::IntrusivePtr<Storage> storage = DeviceStorage::allocate_from(
      runtime.part<GraphCaptures>().pool_of(stream), runtime, device.index(), layout->nbytes(), stream);
  void* const memory = storage->data();
  return {std::move(storage), TensorView(memory, layout, device)};
}

/// Returns `tensor` if it has that layout and is open to the device at the other end, else temporary memory
/// in the same place that is.
Tensor in_layout(const Tensor& tensor, const LayoutPtr& layout, Device other_end) {
  if (can_copy_bytes(*layout, *tensor.layout()) && is_open_to(other_end, tensor)) return tensor;
  return temporary(layout, tensor.device(), other_end);
}

}  // namespace

const Tensor& Tensor::copy_(const Tensor& source, Blocking blocking) const {
  require_copyable(*this, source);
  require_writable(*this, "Tensor::copy_", "the tensor");
  require_enumerator(blocking, Blocking::no, "Tensor::copy_", "blocking");
  if (numel() == 0 || is_same_memory(view_, source)) return *this;
  if (device() == source.device()) {
    require_no_overlap(view_, source);
    copy_within(view_, source);
    return *this;
  }
  require_one_capture(*this, source);
  const LayoutPtr travelling = travelling_layout(*this, source);
  const Tensor departing = in_layout(source, travelling, device());
  const Tensor arriving = in_layout(*this, travelling, source.device());
  const bool rearranged_on_arrival = arriving.data() != data();
  if (departing.data() != source.data()) copy_within(departing, source);
  // The host can rearrange the data only after its arrival.
  copy_across(arriving, departing, rearranged_on_arrival && device().is_host() ? Blocking::yes : blocking);
  if (rearranged_on_arrival) copy_within(view_, arriving);
  for (const Device place : {source.device(), device()}) {
    if (departing.data() != source.data()) keep_if_captured(departing, place);
    if (rearranged_on_arrival) keep_if_captured(arriving, place);
  }
  return *this;
}

Tensor Tensor::to(Device place, Blocking blocking) const {
  require_defined(view_, "Tensor::to", "the tensor");
  require_enumerator(blocking, Blocking::no, "Tensor::to", "blocking");
  const Device device = place.is_current() ? Device(current_device()) : place;
  if (device == this->device()) return *this;
  const HostMemory host_memory =
      device.is_host() && blocking == Blocking::no ? HostMemory::pinned : HostMemory::pageable;
  Tensor result = allocate_tensor(dense_layout(layout()), device, host_memory, "Tensor::to");
  result.copy_(*this, blocking);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  require_defined(view_, "Tensor::to", "the tensor");
  if (dtype == this->dtype()) return *this;
  const LayoutPtr dense = dense_layout(layout());
  Tensor result = allocate_tensor(make_layout(dtype, dense->sizes(), dense->strides()), device(),
                                  HostMemory::pageable, "Tensor::to");
  result.copy_(*this);
  return result;
}

Tensor Tensor::contiguous(MemoryFormat format) const {
  require_defined(view_, "Tensor::contiguous", "the tensor");
  require_enumerator(format, MemoryFormat::channels_last, "Tensor::contiguous", "format");
  if (format == MemoryFormat::channels_last ? is_channels_last() : is_contiguous()) return *this;
  Tensor result = allocate_tensor(make_layout(dtype(), sizes(), format), device(), HostMemory::pageable,
                                  "Tensor::contiguous");
  result.copy_(*this);
  return result;
}

Tensor Tensor::pin_memory() const {
  require_defined(view_, "Tensor::pin_memory", "the tensor");
  if (!device().is_host()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Tensor::pin_memory: the tensor is on {}, expected host", to_string(device())));
  }
  if (is_pinned()) return *this;
  Tensor result =
      allocate_tensor(dense_layout(layout()), Device::host(), HostMemory::pinned, "Tensor::pin_memory");
  result.copy_(*this);
  return result;
}

std::vector<std::byte> Tensor::to_bytes() const {
  require_defined(view_, "Tensor::to_bytes", "the tensor");
  std::vector<std::byte> result(nbytes());
  copy_to_host(result.data());
  return result;
}

}  // namespace tutti
