// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/request.hpp"
#include "device/foreign_memory.hpp"
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

/// A validated collective: its operands, and the numbers that its plan depends on.
///
/// Operands form rows of `columns` buffers each; a row lives on one lane, or on the host.
class Call {
 public:
  /// Makes a call without operands. `name` is the function that is called; it lives as long as the program.
  Call(Runtime& runtime, Collective collective, std::string_view name, const CollectiveOptions& options,
       std::size_t columns = 1);
  Call(Runtime& runtime, CollectiveForm form, const CollectiveOptions& options, std::size_t columns = 1)
      : Call(runtime, form.collective, name_of(form), options, columns) {}
  /// Makes a coalesced call on lists of no tensors: one row, on the current device, and nothing to do. Throws
  /// Error(invalid_argument) if there is no device.
  [[nodiscard]] static Call of_nothing(Runtime& runtime, Collective collective, std::string_view name,
                                       const CollectiveOptions& options);

  [[nodiscard]] Runtime& runtime() const noexcept { return *runtime_; }
  [[nodiscard]] std::size_t columns() const noexcept { return request_.columns; }

  /// Starts a row on `device`, on its current stream, or on `stream`.
  void add_row(Device device);
  void add_row(backend::StreamRef stream);
  /// Starts a row of results of `bytes` bytes, for use on `own`, that do not exist yet. They are allocated
  /// when all rows have been started, after `join_capture`, for the stream that `first_use` returns, and
  /// added after `return_to`.
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
  /// Marks the next buffer as an output that stays as it is.
  void leave_alone() { request_.copied().left_alone.push_back(next_); }
  /// Adds all buffers of the row.
  void add_all(std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors) add(tensor);
  }
  /// Makes the row started last the root's.
  void mark_root() { root_ = rows_.back().lane; }
  /// Returns the stream to allocate the results of a row for. Small results that the root writes are
  /// allocated for its stream: then their device's stream need not be waited for, which for eight devices
  /// costs more than the transfer. Large ones, and results of rounds, are allocated for their own stream,
  /// where memory is reused soonest. For this it makes the plan of a launch.
  [[nodiscard]] backend::StreamRef first_use(std::size_t row);
  /// Returns to a row of results, whose buffers are added next.
  void return_to(std::size_t row);
  void set_staging_bytes(std::uint64_t bytes) { staging_bytes_ = bytes; }
  [[nodiscard]] Request& request() noexcept { return request_; }
  /// Sets the operation that combines the inputs.
  void set_operation(const ReduceOp& operation) {
    request_.reduced().kind = operation.kind();
    operands_.operation = operation;
  }

  /// Returns the stream of the row started `row`-th, which is not on the host.
  [[nodiscard]] backend::StreamRef stream_of(std::size_t row) const {
    return operands_.lanes[rows_[row].lane];
  }
  [[nodiscard]] transport::Operands& operands() noexcept { return operands_; }

  /// Returns the stream of a lane that is being captured, if one is. The streams are queried once; all lanes
  /// must have been added.
  [[nodiscard]] const std::optional<backend::StreamRef>& capture();
  /// Makes all lanes part of the capture, if one of them is being captured. Call it before results are
  /// allocated, when all lanes have been added: the results become memory of the graph. Memory cached for
  /// other lanes may still be used by work that the graph is not ordered with.
  void join_capture();
  /// Returns the plan, from the cache if it was made before. Counts as outside captures unless `capture` has
  /// been called.
  [[nodiscard]] std::shared_ptr<const transport::Plan> plan(transport::LaunchMode mode) const;
  /// Plans and enqueues; remembers the plan for `last_plan`.
  void launch();
  /// Returns true if an operand is in memory of a device that is not tutti's own.
  [[nodiscard]] bool has_foreign_memory() const noexcept { return has_foreign_memory_; }

 private:
  struct Row {
    transport::LaneId lane = 0;
    transport::LaneId ready = 0;  ///< whose stream the row's memory was allocated for
  };

  void start_row(transport::LaneId lane);
  /// Returns the plan of a launch, which is looked up once.
  [[nodiscard]] const std::shared_ptr<const transport::Plan>& launch_plan();
  /// Notes the next buffer's storage if it must be told of the row's stream, or may be closed to peers.
  void note_storage(Storage* storage) {
    last_storage_ = storage;
    if (!row_stream_) return;
    has_foreign_memory_ |= !is_open_to_all(storage);
    if (storage != nullptr && !is_recorded_on(*storage, *row_stream_)) {
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
  std::optional<const Storage*> last_storage_;    ///< of that row, nullptr if nothing owns the memory
  std::size_t next_ = 0;                          ///< buffer
  transport::Operands operands_;
  bool has_foreign_memory_ = false;
  bool has_asked_for_capture_ = false;
  std::optional<backend::StreamRef> capture_;
  std::unique_ptr<transport::JoinedLanes> joined_;      ///< nullptr outside captures
  std::shared_ptr<const transport::Plan> launch_plan_;  ///< nullptr until it is needed
};

}  // namespace tutti::collectives
