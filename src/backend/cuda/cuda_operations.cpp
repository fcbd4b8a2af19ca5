// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/handles.hpp"
#include "tutti/error.hpp"

#include <cstring>

namespace tutti::backend::cuda {

LaunchSite CudaBackend::site(StreamRef stream, const char* work, std::uint32_t most_multiprocessors) {
  prepare(stream.device);
  DeviceState& state = at(stream.device);
  state.last_work.store(work, std::memory_order_relaxed);
  const int all = state.properties.multiprocessor_count;
  const bool is_bounded = most_multiprocessors < static_cast<std::uint32_t>(all);
  return {native(stream), is_bounded ? static_cast<int>(most_multiprocessors) : all, is_bounded};
}

void CudaBackend::copy(StreamRef stream, const Copy2D& copy) {
  if (copy.rows == 0 || copy.row_bytes == 0) return;
  // A graph's copy belongs to the current device, which must have access to the memory.
  const CurrentDevice current(stream.device);
  const cudaStream_t queue = site(stream, "a copy").stream;
  if (copy.rows == 1) {
    check(cudaMemcpyAsync(copy.target, copy.source, copy.row_bytes, cudaMemcpyDefault, queue),
          "cudaMemcpyAsync", stream.device);
    return end_launch(stream);
  }
  const std::size_t largest = at(stream.device).largest_pitch;
  if (copy.target_pitch <= largest && copy.source_pitch <= largest) {
    check(cudaMemcpy2DAsync(copy.target, copy.target_pitch, copy.source, copy.source_pitch, copy.row_bytes,
                            copy.rows, cudaMemcpyDefault, queue),
          "cudaMemcpy2DAsync", stream.device);
    return end_launch(stream);
  }
  for (std::size_t row = 0; row < copy.rows; ++row) {  // rows of gigabytes: one call each is nothing
    check(cudaMemcpyAsync(copy.target + row * copy.target_pitch, copy.source + row * copy.source_pitch,
                          copy.row_bytes, cudaMemcpyDefault, queue),
          "cudaMemcpyAsync", stream.device);
  }
  end_launch(stream);
}

void CudaBackend::end_launch(StreamRef stream) {
  if (!launches_block() || is_capturing(stream)) return;
  const StreamDevice current(stream);
  const RelaxedCapture relaxed;  // another stream may be captured by this thread
  check_work(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize", stream.device);
}

template <class Launch>
void CudaBackend::launch_table(StreamRef stream, const char* work, const TableBlob& table,
                               std::size_t parameter_limit, const Launch& launch) {
  if (table.bytes <= parameter_limit) {
    check(launch({table.blob.data(), table.bytes, nullptr}), work, stream.device);
    return end_launch(stream);
  }
  const std::shared_ptr<TableStore>& store = at(stream.device).tables;
  std::unique_ptr<TableStore::Slot> slot = store->acquire(table.bytes);
  std::memcpy(slot->pinned, table.blob.data(), table.bytes);
  const std::byte* place = slot->pinned;  // where kernels can read it too, but not as fast
  if (slot->device != nullptr) {
    check(cudaMemcpyAsync(slot->device, slot->pinned, table.bytes, cudaMemcpyHostToDevice, native(stream)),
          "cudaMemcpyAsync", stream.device);
    place = slot->device;
  }
  check(launch({table.blob.data(), table.bytes, place}), work, stream.device);
  if (is_capturing(stream)) {
    // The graph copies the table anew at every launch.
    const std::shared_ptr<TableStore::Slot> kept(slot.release(), [store](TableStore::Slot* raw) {
      store->release(std::unique_ptr<TableStore::Slot>(raw));
    });
    retain_until_graph_destroyed(stream, kept);
  } else {
    store->release_after(std::move(slot), native(stream));
  }
  end_launch(stream);
}

void CudaBackend::fan_out(StreamRef stream, const FanOut& task) {
  thread_local SegmentTable table;
  const CurrentDevice current(stream.device);
  const LaunchSite where = site(stream, "a fan-out", task.most_multiprocessors);
  build_table(task, where.multiprocessors, table);
  if (table.shape.tile_count == 0) return;
  launch_table(stream, "fan-out kernel", table, parameter_table_limit_,
               [&](const TableArgument& argument) { return launch_fan_out(where, argument, table.shape); });
}

void CudaBackend::ordered_reduction(StreamRef stream, const OrderedReduction& task) {
  thread_local SegmentTable table;
  const CurrentDevice current(stream.device);
  const LaunchSite where = site(stream, "an ordered sum", task.most_multiprocessors);
  build_table(task, where.multiprocessors, table);
  if (table.shape.tile_count == 0) return;
  if (task.reducing.kind != ReduceKind::sum) {
    return launch_table(stream, "ordered reduction kernel", table, medium_parameter_table,
                        [&](const TableArgument& argument) {
                          return launch_ordered_reduction(where, task, argument, table.shape);
                        });
  }
  launch_table(
      stream, "ordered sum kernel", table, parameter_table_limit_,
      [&](const TableArgument& argument) { return launch_ordered_sum(where, task, argument, table.shape); });
}

void CudaBackend::team_round(StreamRef stream, const TeamRound& task) {
  thread_local TeamTable table;
  const CurrentDevice current(stream.device);
  LaunchSite where = site(stream, "a team round");
  build_table(task, where.multiprocessors, table);
  // In graphs, only where what comes before, a table's copy included, is known to be a team's kernel on the
  // same device. If both fit beside one another, that one learns now that it lets this one in early. (Nobody
  // else's kernel comes in so. Outside of graphs the host sets the pace of small ones.)
  const bool is_captured = is_capturing(stream);
  const bool may_depend_in_graph = is_captured && graphs_may_launch_dependently_;
  const bool fits_twice = may_depend_in_graph &&
                          grid_for(table.shape, where.multiprocessors, task.most_multiprocessors).fits_twice;
  const auto may_depend = [&] {
    if (!at(stream.device).may_launch_dependently) return false;
    if (!may_depend_in_graph) return !is_captured;
    const std::optional<CapturedRound> before = captured_round_before(stream);
    if (before && before->may_let_next_in && fits_twice)
      check(let_next_in(before->place.node), "cudaGraphKernelNodeSetParams", stream.device);
    return before.has_value();
  };
  const bool adds = !task.reductions.segments.empty();
  const bool reduces = adds && task.reductions.reducing.kind != ReduceKind::sum;
  if (task.is_low_latency) {
    auto* const launch = reduces ? launch_low_latency_reductions
                         : adds  ? launch_low_latency_sums
                                 : launch_low_latency_copies;
    launch_table(stream, "low-latency round kernel", table, medium_parameter_table,
                 [&](const TableArgument& argument) {
                   where.is_dependent = may_depend();
                   return launch(where, task, argument, table.shape);
                 });
  } else {
    auto* const launch = reduces      ? launch_team_reductions
                         : adds       ? launch_team_sums
                         : task.swaps ? launch_team_swaps
                                      : launch_team_copies;
    launch_table(stream, "team round kernel", table,
                 reduces ? medium_parameter_table : parameter_table_limit_,
                 [&](const TableArgument& argument) {
                   where.is_dependent = may_depend();
                   return launch(where, task, argument, table.shape);
                 });
  }
  if (may_depend_in_graph) remember_captured_round(stream, task.is_low_latency && fits_twice);
}

void CudaBackend::team_links(StreamRef stream, const TeamLinks& task) {
  thread_local LinkTable table;
  const CurrentDevice current(stream.device);
  const LaunchSite where = site(stream, "messages between members");
  build_table(task, table);
  launch_table(stream, "link kernel", table, medium_parameter_table,
               [&](const TableArgument& argument) { return launch_links(where, task, argument, table); });
}

void CudaBackend::wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                                 SharedFlag& outcome) {
  const CurrentDevice current(stream.device);
  const std::chrono::nanoseconds nanoseconds = longest;
  check(launch_wait(site(stream, "a wait"), reinterpret_cast<std::uint32_t*>(&flag.value),
                    static_cast<std::uint64_t>(nanoseconds.count()),
                    reinterpret_cast<std::uint32_t*>(&outcome.value)),
        "wait kernel", stream.device);
  end_launch(stream);
}

void CudaBackend::convert(StreamRef stream, const Convert& task) {
  const CurrentDevice current(stream.device);
  check(launch_convert(site(stream, "a conversion"), task), "conversion kernel", stream.device);
  end_launch(stream);
}

void CudaBackend::fill(StreamRef stream, const Fill& task) {
  const CurrentDevice current(stream.device);
  check(launch_fill(site(stream, "a fill"), task), "fill kernel", stream.device);
  end_launch(stream);
}

void CudaBackend::random_fill(StreamRef stream, const RandomFill& task) {
  const CurrentDevice current(stream.device);
  check(launch_random_fill(site(stream, "a random fill"), task), "random fill kernel", stream.device);
  end_launch(stream);
}

void CudaBackend::square_sums(StreamRef stream, const NormPieces& task, double* sums) {
  const CurrentDevice current(stream.device);
  check(launch_square_sums(site(stream, "sums of squares"), task, sums), "norm kernel", stream.device);
  end_launch(stream);
}

void CudaBackend::norm_of_sums(StreamRef stream, const NormOfSums& task) {
  const CurrentDevice current(stream.device);
  check(launch_norm_of_sums(site(stream, "a norm"), task), "norm kernel", stream.device);
  end_launch(stream);
}

void CudaBackend::scale(StreamRef stream, const NormPieces& task, const double* factor) {
  const CurrentDevice current(stream.device);
  check(launch_scale(site(stream, "a scaling"), task, factor), "scale kernel", stream.device);
  end_launch(stream);
}

}  // namespace tutti::backend::cuda
