// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/kernels.hpp"
#include "backend/host/machine.hpp"
#include "backend/host/queues/table_work.hpp"

#include <cstdint>
#include <cstring>
#include <utility>

#include <fmt/format.h>

/// Operations of the virtual machine. Each copies its description when it is enqueued; when it runs, it first
/// finds all addresses, so that a refused access leaves everything untouched, and then moves the bytes.
namespace tutti::backend::host {

using virtual_devices::Operation;

namespace {

[[noreturn]] void refuse(std::string_view operation, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", operation, reason));
}

}  // namespace

void Machine::copy(StreamRef stream, const Copy2D& copy) {
  const Extent source_extent{copy.row_bytes, copy.rows, copy.source_pitch};
  const Extent target_extent{copy.row_bytes, copy.rows, copy.target_pitch};
  if (copy.rows > 1 && (copy.source_pitch < copy.row_bytes || copy.target_pitch < copy.row_bytes)) {
    refuse("copy", fmt::format("a pitch, {} or {}, is less than the {} bytes of a row", copy.source_pitch,
                               copy.target_pitch, copy.row_bytes));
  }
  // The caller may reuse pageable memory at once: what it holds now is what arrives. But a graph reads what
  // it holds at each launch.
  const bool is_recorded = worker_of(stream).is_captured();
  std::optional<std::vector<std::byte>> captured;
  if (!is_recorded && !source_extent.empty() && is_pageable(copy.source)) {
    captured.emplace(source_extent.row_bytes * source_extent.rows);
    copy_rows(captured->data(), copy.row_bytes, copy.source, copy.source_pitch, copy.row_bytes, copy.rows);
  }
  auto run = [copy, source_extent, target_extent, captured = std::move(captured)](Translation& translation) {
    const std::byte* source = captured ? captured->data() : translation.read(copy.source, source_extent);
    const std::size_t source_pitch = captured ? copy.row_bytes : copy.source_pitch;
    std::byte* target = translation.write(copy.target, target_extent);
    copy_rows(target, copy.target_pitch, source, source_pitch, copy.row_bytes, copy.rows);
  };
  const bool to_pageable = !is_recorded && !target_extent.empty() && is_pageable(copy.target);
  const std::uint64_t position = enqueue(stream, Operation::copy, "copy", std::move(run));
  if (to_pageable) wait_until(worker_of(stream).progress(), position, host_spin);
  end_launch(stream);
}

void Machine::fan_out(StreamRef stream, const FanOut& task) {
  enqueue_kernel(stream, "fan_out", FanOutWork(task));
}

void Machine::ordered_reduction(StreamRef stream, const OrderedReduction& task) {
  enqueue_kernel(stream, "ordered_reduction", OrderedReductionWork(task));
}

void Machine::convert(StreamRef stream, const Convert& task) {
  if (task.rank < 0 || task.rank > max_dimensions) {
    refuse("convert", fmt::format("rank {} is not in 0 to {}", task.rank, max_dimensions));
  }
  enqueue_kernel(stream, "convert", [task](Translation& translation) {
    Convert located = task;
    located.source =
        translation.read(task.source, strided_bytes(task, task.source_strides, task.source_dtype));
    located.target =
        translation.write(task.target, strided_bytes(task, task.target_strides, task.target_dtype));
    convert_elements(located);
  });
}

void Machine::fill(StreamRef stream, const Fill& task) {
  const std::size_t size = task.element_bytes;
  if (size != 1 && size != 2 && size != 4 && size != 8 && size != 16) {
    refuse("fill", fmt::format("elements of {} bytes; expected 1, 2, 4, 8 or 16", size));
  }
  enqueue_kernel(stream, "fill", [task](Translation& translation) {
    fill_elements(task, translation.write(task.target, task.count * task.element_bytes));
  });
}

void Machine::random_fill(StreamRef stream, const RandomFill& task) {
  const DType dtype = task.dtype;
  switch (task.distribution) {
    case Distribution::uniform:
    case Distribution::normal:
      if (dtype != DType::float16 && dtype != DType::bfloat16 && dtype != DType::float32 &&
          dtype != DType::float64) {
        refuse("random_fill",
               fmt::format("dtype {}; expected float16, bfloat16, float32 or float64", name_of(dtype)));
      }
      break;
    case Distribution::integers:
    case Distribution::bernoulli:
      if (size_of(dtype) > sizeof(std::uint64_t))
        refuse("random_fill", fmt::format("dtype {}; expected 8 bytes at most", name_of(dtype)));
  }
  if (task.offset % 4 != 0)
    refuse("random_fill", fmt::format("offset {} is not a multiple of 4", task.offset));
  enqueue_kernel(stream, "random_fill", [task](Translation& translation) {
    RandomFill located = task;
    if (task.state != nullptr) {
      const std::byte* const state =
          translation.read(reinterpret_cast<const std::byte*>(task.state), 2 * sizeof(std::uint64_t));
      std::uint64_t words[2];
      std::memcpy(words, state, sizeof(words));
      located.seed = words[0];
      located.offset += words[1];
    }
    random_fill_elements(located, translation.write(task.target, task.count * size_of(task.dtype)));
  });
}

void Machine::launch(StreamRef stream, std::string_view name,
                     std::span<const virtual_devices::Access> accesses,
                     std::function<void(std::span<void* const>)> kernel) {
  StreamWorker& worker = worker_of(stream);
  auto run = [this, device = worker.device(), accesses = std::vector(accesses.begin(), accesses.end()),
              kernel = std::move(kernel)] {
    Translation translation(translated_by(), Mover::kernel, device);
    std::vector<void*> usable;
    usable.reserve(accesses.size());
    for (const virtual_devices::Access& access : accesses) {
      auto* address = static_cast<std::byte*>(const_cast<void*>(access.address));
      usable.push_back(translation.write(address, access.bytes));
    }
    kernel(usable);
  };
  submit(worker, make_task(fmt::format("kernel '{}'", name), counted(stream, std::move(run))));
  end_kernel(stream);
}

}  // namespace tutti::backend::host
