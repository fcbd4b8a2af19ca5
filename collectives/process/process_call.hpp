// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/request.hpp"
#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "stream/thread_streams.hpp"
#include "transport/launch/launch.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"
#include "transport/select/plan_cache.hpp"
#include "tutti/collectives.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// A validated collective: its operands, and the numbers its plan depends on.
///
/// Operands form rows of `columns` buffers each; a row lives on one lane, or on the host.
class Call {
 public:
  /// `name`: of the function that is called; it lives as long as the program.
  Call(Runtime& runtime, Collective collective, std::string_view name, const CollectiveOptions& options,
       std::size_t columns = 1);
  Call(Runtime& runtime, CollectiveForm form, const CollectiveOptions& options, std::size_t columns = 1)
      : Call(runtime, form.collective, name_of(form), options, columns) {}
  /// A coalesced call on lists of no tensors: one row, on the current device, and nothing to do. Throws
  /// Error(invalid_argument) if there is no device.
  [[nodiscard]] static Call of_nothing(Runtime& runtime, Collective collective, std::string_view name,
                                       const CollectiveOptions& options);

  [[nodiscard]] Runtime& runtime() const noexcept { return *runtime_; }
  [[nodiscard]] std::size_t columns() const noexcept { return request_.columns; }

  /// Starts a row on `device`, on its current stream, or on `stream`.
  void add_row(Device device);
  void add_row(backend::StreamRef stream);
  /// A row of results of `bytes` bytes, to be used on `own`, which are not there yet. They are allocated when
  /// all rows have been started, after `join_capture`, for the stream that `first_use` returns, and added
  /// after `return_to`.
  void add_result_row(backend::StreamRef own, std::uint64_t bytes);
  void add_result_row(Device device, std::uint64_t bytes) {
    add_result_row(current_stream_ref(*runtime_, device.index()), bytes);
  }
  /// Makes room for `rows` rows.
  void reserve(std::size_t rows) {
    rows_.reserve(rows);
    operands_.lanes.reserve(rows);
    operands_.addresses.reserve(rows * columns());
    operands_.storages.reserve(rows * columns());
  }
  /// Adds the next buffer of the row started last.
  void add(const Tensor& tensor) { add(static_cast<std::byte*>(tensor.data()), tensor.storage().get()); }
  void add(std::byte* address, Storage* storage) {
    operands_.addresses[next_] = address;
    operands_.storages[next_] = storage;
    if (storage != last_storage_) note_storage(storage);
    ++next_;
  }
  /// The next buffer is an output that stays as it is.
  void leave_alone() { request_.copied().left_alone.push_back(next_); }
  /// Adds all buffers of the row.
  void add_all(std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors) add(tensor);
  }
  /// The root is the row started last.
  void mark_root() { root_ = rows_.back().lane; }
  /// The stream to allocate the results of a row for, which is numbered from 0. Small results that the root
  /// writes are allocated for its stream: their device's stream then need not be waited for, which for eight
  /// devices costs more than the transfer. Large ones, and those that come by rounds, are allocated for their
  /// own stream, where memory is reused soonest. So this makes the plan of a launch.
  [[nodiscard]] backend::StreamRef first_use(std::size_t row);
  /// Goes back to a row of results: its buffers are added next.
  void return_to(std::size_t row);
  void set_staging_bytes(std::uint64_t bytes) { staging_bytes_ = bytes; }
  [[nodiscard]] Request& request() noexcept { return request_; }
  /// Sets the operation that combines the inputs.
  void set_operation(const ReduceOp& operation) {
    request_.reduced().kind = operation.kind();
    operands_.operation = operation;
  }

  /// The stream of the row started `row`-th, which is not on the host.
  [[nodiscard]] backend::StreamRef stream_of(std::size_t row) const {
    return operands_.lanes[rows_[row].lane];
  }
  [[nodiscard]] transport::Operands& operands() noexcept { return operands_; }

  /// The stream of a lane that is being captured, if one is; asked once, when all lanes are there.
  [[nodiscard]] const std::optional<backend::StreamRef>& capture();
  /// Makes all lanes part of the capture, if one is being captured. To be called before results are
  /// allocated, when all lanes are there: their memory is the graph's then, as work that the graph is not
  /// ordered with may still be using what is cached for the others.
  void join_capture();
  /// The plan, from the cache if it was made before; outside captures, unless `capture` has been asked.
  [[nodiscard]] std::shared_ptr<const transport::Plan> plan(transport::LaunchMode mode) const;
  /// Plans and enqueues; remembers the plan for `last_plan`.
  void launch();

 private:
  struct Row {
    transport::LaneId lane = 0;
    transport::LaneId ready = 0;  ///< whose stream the row's memory was allocated for
  };

  void start_row(transport::LaneId lane);
  /// The plan of a launch, found once.
  [[nodiscard]] const std::shared_ptr<const transport::Plan>& launch_plan();
  /// Notes the next buffer's storage if it must be told of the row's stream.
  void note_storage(Storage* storage) {
    last_storage_ = storage;
    if (storage != nullptr && row_stream_ && !is_recorded_on(*storage, *row_stream_)) {
      if (operands_.unrecorded.empty()) operands_.unrecorded.reserve(rows_.capacity());
      operands_.unrecorded.push_back(static_cast<transport::BufferId>(next_));
    }
  }
  [[nodiscard]] transport::PlanKey key(transport::LaunchMode mode) const;
  [[nodiscard]] transport::Problem problem(transport::LaunchMode mode) const;

  Runtime* runtime_;
  CollectiveOptions options_;
  Request request_;
  std::uint64_t staging_bytes_ = default_buffer_size;
  transport::LaneId root_ = transport::host_lane;
  std::vector<Row> rows_;
  std::optional<backend::StreamRef> row_stream_;  ///< of the row started last; none on the host
  const Storage* last_storage_ = nullptr;         ///< of that row
  std::size_t next_ = 0;                          ///< buffer
  transport::Operands operands_;
  bool has_asked_for_capture_ = false;
  std::optional<backend::StreamRef> capture_;
  std::unique_ptr<transport::JoinedLanes> joined_;      ///< nullptr outside captures
  std::shared_ptr<const transport::Plan> launch_plan_;  ///< nullptr until it is needed
};

}  // namespace tutti::collectives
