// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/fill_and_check.hpp"

#include "perf/processes/interrupt.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tutti::perf {
namespace {

constexpr std::size_t piece_bytes = std::size_t{4} << 20U;

/// Elements `first` to `first + count - 1` of one buffer.
struct Piece {
  const Buffer* buffer;
  std::int64_t first;
  std::int64_t count;
};

std::vector<Piece> pieces_of(std::span<const Buffer> buffers) {
  std::vector<Piece> pieces;
  for (const Buffer& buffer : buffers) {
    const std::int64_t elements = buffer.tensor.numel();
    const auto step = static_cast<std::int64_t>(piece_bytes / size_of(buffer.tensor.dtype()));
    for (std::int64_t first = 0; first < elements; first += step) {
      pieces.push_back({&buffer, first, std::min(step, elements - first)});
    }
  }
  return pieces;
}

/// Calls `work` for every piece, on as many threads as are worth it; rethrows the first failure.
void for_each_piece(const std::vector<Piece>& pieces, const std::function<void(const Piece&)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto take_pieces = [&] {
    try {
      for (std::size_t index = next++; index < pieces.size(); index = next++) {
        check_interrupt();
        work(pieces[index]);
      }
    } catch (...) {
      next = pieces.size();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces) {
    bytes += piece.count * static_cast<std::int64_t>(size_of(piece.buffer->tensor.dtype()));
  }
  const std::size_t worthwhile = static_cast<std::size_t>(bytes) / piece_bytes + 1;
  const std::size_t threads = std::min<std::size_t>({worthwhile, std::thread::hardware_concurrency(), 16});
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t extra = 1; extra < threads; ++extra) helpers.emplace_back(take_pieces);
  } catch (const std::system_error&) {
    // A limit on threads: those that are there do it all.
  }
  take_pieces();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

/// Strided tensors, which are parts of others, are compared as contiguous copies.
std::vector<Buffer> contiguous(std::span<const Buffer> buffers) {
  std::vector<Buffer> result(buffers.begin(), buffers.end());
  for (Buffer& buffer : result) {
    if (buffer.tensor.is_contiguous()) continue;
    buffer.tensor = buffer.tensor.contiguous();
    synchronize(buffer.tensor.device().index());  // other threads read it on streams of their own
  }
  return result;
}

/// The piece's elements as a tensor that shares the buffer's memory.
Tensor window(const Piece& piece) {
  const Tensor& tensor = piece.buffer->tensor;
  return tensor.view({tensor.numel()}).narrow(0, piece.first, piece.count);
}

void wait_for(const Tensor& tensor) {
  if (!tensor.device().is_host()) synchronize(tensor.device().index());
}

Tensor staging_for(const Tensor& device_tensor) {
  return empty(device_tensor.sizes(), {.dtype = device_tensor.dtype(), .host_memory = HostMemory::pinned});
}

using Generator = void(const Content&, std::int64_t, std::int64_t, void*);

void write(std::span<const Buffer> buffers, Generator* generator) {
  for_each_piece(pieces_of(buffers), [generator](const Piece& piece) {
    const Tensor target = window(piece);
    const DeviceGuard guard(target.device());  // pinned memory belongs to the current device's context
    const Tensor staging = staging_for(target);
    generator(piece.buffer->content, piece.first, piece.count, staging.data());
    target.copy_(staging);
    wait_for(target);
  });
}

BeforeCheck before_check = nullptr;

}  // namespace

void fill(std::span<const Buffer> buffers) {
  write(buffers, &generate);
}

void poison(std::span<const Buffer> buffers) {
  std::vector<Buffer> whole(buffers.begin(), buffers.end());
  std::erase_if(whole, [](const Buffer& buffer) { return !buffer.tensor.is_contiguous(); });
  write(whole, &generate_poison);
}

void set_before_check(BeforeCheck call) noexcept {
  before_check = call;
}

std::uint64_t count_wrong(std::span<const Buffer> buffers) {
  if (before_check != nullptr) before_check(buffers);
  std::atomic<std::uint64_t> wrong = 0;
  const std::vector<Buffer> dense = contiguous(buffers);
  for_each_piece(pieces_of(dense), [&wrong](const Piece& piece) {
    const Tensor source = window(piece);
    const DeviceGuard guard(source.device());
    const Tensor staging = staging_for(source);
    staging.copy_(source);
    wrong += count_wrong(piece.buffer->content, piece.first, piece.count, staging.data());
  });
  return wrong;
}

}  // namespace tutti::perf
