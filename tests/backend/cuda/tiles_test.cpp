// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/fan_out_tile.cuh"
#include "backend/cuda/kernels/ordered_reduction_tile.cuh"
#include "backend/cuda/kernels/team_table.hpp"
#include "support/values/reference_sum.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

// The kernels' tile functions compile for the CPU too: here their lanes run one after another, in buffers
// that end where the data ends, so that address sanitizers see what a GPU would let pass.
namespace tutti::backend::cuda {
namespace {

/// An array at a chosen distance from a 16-byte boundary, and what it should hold in the end.
class Array {
 public:
  Array(std::size_t bytes, std::size_t misalignment, std::mt19937_64& random)
      : storage_(std::make_unique<std::byte[]>(bytes + misalignment)),
        begin_(storage_.get() + misalignment),
        expected_(bytes) {
    std::ranges::generate(expected_, [&] { return static_cast<std::byte>(random()); });
    std::ranges::copy(expected_, begin_);
  }
  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::vector<std::byte>& expected() { return expected_; }
  [[nodiscard]] bool is_as_expected() const { return std::equal(expected_.begin(), expected_.end(), begin_); }

 private:
  std::unique_ptr<std::byte[]> storage_;
  std::byte* begin_;
  std::vector<std::byte> expected_;
};

class CudaTiles : public testing::Test {
 protected:
  std::uint64_t draw(std::uint64_t least, std::uint64_t greatest) {
    return std::uniform_int_distribution<std::uint64_t>(least, greatest)(random_);
  }
  bool toss() { return draw(0, 1) == 0; }
  /// How far away the pointers in a table are from the memory; nowhere, or by pages.
  std::uint64_t draw_shift() { return toss() ? 0 : draw(1, 9) * 4096; }

  Array& make_array(std::size_t bytes, std::size_t misalignment) {
    arrays_.push_back(std::make_unique<Array>(bytes, misalignment, random_));
    pointers_.push_back(arrays_.back()->begin());
    return *arrays_.back();
  }
  [[nodiscard]] std::uint32_t next_pointer() const { return static_cast<std::uint32_t>(pointers_.size()); }

  /// Calls `run(entry, pointers, tile, lane)` for all tiles of the table in random order and all lanes.
  template <class Entry, class Run>
  void run_tiles(const std::byte* table, const TableShape& shape, const Run& run) {
    const auto view = view_of<Entry>(table, shape);
    std::vector<std::uint32_t> tiles(shape.tile_count);
    for (std::uint32_t tile = 0; tile < shape.tile_count; ++tile) tiles[tile] = tile;
    std::ranges::shuffle(tiles, random_);
    for (const std::uint32_t tile : tiles) {
      const Entry& entry = find_entry(view.entries, shape, tile);
      for (std::uint32_t lane = 0; lane < warp_lanes; ++lane) run(entry, view.pointers, tile, lane);
    }
  }
  void expect_all_arrays() {
    for (std::size_t i = 0; i < arrays_.size(); ++i)
      ASSERT_TRUE(arrays_[i]->is_as_expected()) << "array " << i;
  }

  void clear() {
    arrays_.clear();
    pointers_.clear();
  }

  FanOutSegment draw_rectangle();
  FanOutSegment draw_fan_out();

  std::mt19937_64 random_{20};
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<std::byte*> pointers_;
};

FanOutSegment CudaTiles::draw_rectangle() {
  constexpr std::uint64_t longest_rows[] = {40, 300, 2000, 9000, 70000};
  const std::uint64_t unit = std::uint64_t{1} << draw(0, 4);
  const auto rounded = [&](std::uint64_t bytes) { return (bytes + unit - 1) / unit * unit; };
  FanOutSegment segment;
  segment.rows = toss() ? 1 : static_cast<std::uint32_t>(draw(0, 40));
  segment.row_bytes = rounded(draw(0, longest_rows[draw(0, 4)]));
  segment.source_pitch = segment.row_bytes + (toss() ? 0 : rounded(draw(0, 50)));
  segment.target_pitch = segment.row_bytes + (toss() ? 0 : rounded(draw(0, 50)));
  return segment;
}

FanOutSegment CudaTiles::draw_fan_out() {
  FanOutSegment segment = draw_rectangle();
  const auto extent = [&](std::uint64_t pitch) {
    return segment.rows == 0 ? 0 : (segment.rows - 1) * pitch + segment.row_bytes;
  };
  const std::size_t misalignment = toss() ? 0 : draw(0, transaction_bytes - 1);
  const bool aligned_alike = toss();
  segment.source = next_pointer();
  const std::byte* source = make_array(extent(segment.source_pitch), misalignment).begin();
  segment.first_target = next_pointer();
  segment.target_count = static_cast<std::uint32_t>(draw(0, 9));
  for (std::uint32_t target = 0; target < segment.target_count; ++target) {
    Array& array = make_array(extent(segment.target_pitch),
                              aligned_alike ? misalignment : draw(0, transaction_bytes - 1));
    for (std::uint32_t row = 0; row < segment.rows; ++row) {
      std::copy_n(source + row * segment.source_pitch, segment.row_bytes,
                  array.expected().data() + row * segment.target_pitch);
    }
  }
  return segment;
}

TEST_F(CudaTiles, FanOutWritesExactlyTheSegmentsWhateverTheirShapeAndAlignment) {
  std::set<FanOutPath> seen;
  SegmentTable table;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    clear();
    std::vector<FanOutSegment> segments(draw(1, 6));
    std::ranges::generate(segments, [&] { return draw_fan_out(); });
    const FanOutShifts shifts{draw_shift(), draw_shift()};
    std::vector<std::byte*> unshifted = pointers_;
    for (const FanOutSegment& segment : segments) {
      unshifted[segment.source] -= shifts.source;
      for (std::uint32_t i = 0; i < segment.target_count; ++i) {
        unshifted[segment.first_target + i] -= shifts.target;
      }
    }
    table.bytes = 0;
    table.shape = append_table(
        FanOut{segments, unshifted},
        {.warps = toss() ? 32U : 132 * 32U, .far_side = toss() ? FarSide::source : FarSide::targets}, table);
    const auto view = view_of<FanOutEntry>(table.blob.data(), table.shape);
    for (std::uint32_t i = 0; i < table.shape.segment_count; ++i) seen.insert(view.entries[i].path);
    run_tiles<FanOutEntry>(table.blob.data(), table.shape,
                           [&](const auto& entry, auto* pointers, auto tile, auto lane) {
                             copy_tile(entry, pointers, tile, lane, shifts);
                           });
    expect_all_arrays();
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen.size(), 8U) << "a path was never taken";
}

/// The type whose kernel adds T, as `summed_as` has it.
template <class T>
struct Component {
  using type = T;
};
template <class Real>
struct Component<std::complex<Real>> {
  using type = Real;
};
template <>
struct Component<std::int8_t> {
  using type = std::uint8_t;
};

/// The type whose kernel reduces T, as `with_sign` has it.
template <class T>
struct Reduced {
  using type = T;
};
template <>
struct Reduced<std::uint16_t> {
  using type = std::int16_t;
};
template <>
struct Reduced<std::uint32_t> {
  using type = std::int32_t;
};
template <>
struct Reduced<std::uint64_t> {
  using type = std::int64_t;
};

/// All inputs of a segment reduced by the tests' own model.
test::HostArray reduced(const OrderedReduction& task, const ReduceOp& operation,
                        std::span<std::byte* const> inputs, std::uint64_t count) {
  std::vector<test::HostArray> arrays;
  for (const std::byte* const input : inputs.first(task.input_count)) {
    arrays.push_back({task.dtype, {static_cast<std::int64_t>(count)}, {}});
    arrays.back().bytes.assign(input, input + count * size_of(task.dtype));
  }
  return test::reference_reduction(arrays, operation);
}

/// By the kernel for sums, or for any operation.
template <class T>
void run_sum_tile(const OrderedReduction& task, const SumEntry& entry, std::byte* const* pointers,
                  std::uint32_t tile, std::uint32_t tile_bytes, std::uint32_t lane) {
  const SumOperands operands{pointers + entry.first_input, pointers + entry.first_output, task.input_count,
                             task.output_count};
  if (task.reducing.kind == ReduceKind::sum) {
    sum_tile(Summing<typename Component<typename Reduced<T>::type>::type>(), entry, operands, tile,
             tile_bytes, lane);
  } else {
    sum_tile(Reducer<typename Reduced<T>::type>{reduce_arguments(task), pointers}, entry, operands, tile,
             tile_bytes, lane);
  }
}

TEST_F(CudaTiles, UnsignedIntegersHaveTheKernelsOfSignedOnes) {
  for (const DType dtype : all_dtypes) {
    const DType expected = visit_dtype(dtype, []<class T>() { return dtype_of<typename Reduced<T>::type>; });
    EXPECT_EQ(with_sign(dtype), expected) << name_of(dtype);
  }
}

TEST_F(CudaTiles, OrderedSumsGoInAscendingOrderWhateverTheAlignmentAndTheOperation) {
  std::set<ReductionPath> seen;
  std::set<ReduceKind> done;
  SegmentTable table;
  for (int round = 0; round < 60 * static_cast<int>(all_dtypes.size()); ++round) {
    clear();
    OrderedReduction task;
    task.dtype = all_dtypes[static_cast<std::size_t>(round) % all_dtypes.size()];
    task.input_count = static_cast<std::uint32_t>(draw(1, 20));
    task.output_count = static_cast<std::uint32_t>(draw(1, 3));
    const std::vector<ReduceOp> operations = test::operations_of(task.dtype, task.input_count);
    const ReduceOp operation = toss() ? ReduceOp::sum : operations[draw(0, operations.size() - 1)];
    task.reducing = {operation.kind(), operation.factors()};
    done.insert(operation.kind());
    SCOPED_TRACE(testing::Message() << round << ", " << name_of(operation.kind()) << " of "
                                    << name_of(task.dtype));
    std::vector<OrderedReductionSegment> segments(draw(1, 4));
    visit_dtype(task.dtype, [&]<class T>() {
      using Storage = typename SumOf<T>::Storage;
      for (OrderedReductionSegment& segment : segments) {
        segment.count = toss() ? draw(0, 3) : draw(0, 6000);
        // Aligned alike; to the element; not; inputs alike, and outputs to the element.
        const std::uint64_t kind = draw(0, 3);
        const std::size_t common = draw(0, 16 / sizeof(Storage) - 1) * sizeof(Storage);
        const auto make = [&](bool is_input) -> Array& {
          const std::size_t element = draw(0, 16 / sizeof(Storage) - 1) * sizeof(Storage);
          const bool is_like_others = kind == 0 || (kind == 3 && is_input);
          return make_array(segment.count * sizeof(T), is_like_others ? common
                                                       : kind == 2    ? draw(0, 15)
                                                                      : element);
        };
        segment.first_input = next_pointer();
        for (std::uint32_t input = 0; input < task.input_count; ++input) make(true);
        const test::HostArray expected =
            reduced(task, operation, std::span(pointers_).subspan(segment.first_input), segment.count);
        // The first output is one of the inputs.
        std::vector<Array*> outputs{arrays_[arrays_.size() - draw(1, task.input_count)].get()};
        segment.first_output = next_pointer();
        pointers_.push_back(outputs.front()->begin());
        for (std::uint32_t output = 1; output < task.output_count; ++output) outputs.push_back(&make(false));
        for (Array* output : outputs) output->expected() = expected.bytes;
      }
      task.segments = segments;
      task.pointers = pointers_;
      build_table(task, toss() ? 1 : 132, table);
      const auto view = view_of<SumEntry>(table.blob.data(), table.shape);
      for (std::uint32_t i = 0; i < table.shape.segment_count; ++i) seen.insert(view.entries[i].path);
      run_tiles<SumEntry>(table.blob.data(), table.shape,
                          [&](const auto& entry, auto* pointers, auto tile, auto lane) {
                            run_sum_tile<T>(task, entry, pointers, tile, table.shape.tile_bytes, lane);
                          });
      expect_all_arrays();
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(seen.size(), 4U) << "a path was never taken";
  EXPECT_EQ(done.size(), all_reduce_kinds.size()) << "an operation was never done";
}

/// Where the bytes that a tile has written begin, and where they end.
std::pair<const std::byte*, const std::byte*> written_range(const std::byte* begin, std::size_t bytes) {
  const auto is_written = [](std::byte byte) { return byte != std::byte{0}; };
  const std::byte* const end = begin + bytes;
  const std::byte* const first = std::find_if(begin, end, is_written);
  const std::byte* last = end;
  while (last != first && !is_written(last[-1])) --last;
  return {first, last};
}

bool is_transaction(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % transaction_bytes == 0;
}

TEST_F(CudaTiles, AllButTheFirstBeginWithATransactionOfTheFarSide) {
  constexpr std::size_t bytes = 100'000;
  for (const FarSide far_side : {FarSide::source, FarSide::targets}) {
    for (const std::size_t source_at : {0U, 4U, 84U, 127U}) {
      for (const std::size_t target_at : {0U, 20U, 84U, 1U}) {
        SCOPED_TRACE(testing::Message()
                     << static_cast<int>(far_side) << ", " << source_at << ", " << target_at);
        const std::vector<std::byte> source(bytes + 127, std::byte{1});
        std::vector<std::byte> target(bytes + 127);
        std::vector<std::byte*> pointers{const_cast<std::byte*>(source.data()) + source_at,
                                         target.data() + target_at};
        const std::vector<FanOutSegment> segments{{bytes, bytes, bytes, 1, 0, 1, 1}};
        SegmentTable table;
        table.shape = append_table(FanOut{segments, pointers}, {.warps = 1000, .far_side = far_side}, table);
        const auto view = view_of<FanOutEntry>(table.blob.data(), table.shape);
        ASSERT_GT(table.shape.tile_count, 100U);
        const std::byte* next = pointers[1];
        for (std::uint32_t tile = 0; tile < table.shape.tile_count; ++tile) {
          std::ranges::fill(target, std::byte{0});
          for (std::uint32_t lane = 0; lane < warp_lanes; ++lane)
            copy_tile(view.entries[0], view.pointers, tile, lane);
          const auto [first, last] = written_range(pointers[1], bytes);
          if (first == last) continue;
          ASSERT_EQ(first, next) << tile;
          next = last;
          const std::byte* const far =
              view.entries[0].far_side == FarSide::targets ? first : pointers[0] + (first - pointers[1]);
          EXPECT_TRUE(tile == 0 || is_transaction(far)) << tile;
        }
        EXPECT_EQ(next, pointers[1] + bytes);
      }
    }
  }
}

TEST_F(CudaTiles, AllButTheFirstAddWholeTransactionsOfTheFirstInput) {
  constexpr std::size_t count = 25'000;
  for (const std::size_t input_at : {0U, 1U, 21U, 31U}) {
    for (const std::size_t output_at : {0U, 1U, 5U}) {
      SCOPED_TRACE(testing::Message() << input_at << ", " << output_at);
      std::vector<float> input(count + 32, 1.0F);
      std::vector<float> output(count + 32);
      std::byte* const begin = reinterpret_cast<std::byte*>(output.data() + output_at);
      std::vector<std::byte*> pointers{reinterpret_cast<std::byte*>(input.data() + input_at), begin};
      const std::vector<OrderedReductionSegment> segments{
          {.count = count, .first_input = 0, .first_output = 1}};
      OrderedReduction task;
      task.dtype = DType::float32;
      task.input_count = 1;
      task.output_count = 1;
      task.segments = segments;
      task.pointers = pointers;
      SegmentTable table;
      build_table(task, 132, table);
      const auto view = view_of<SumEntry>(table.blob.data(), table.shape);
      ASSERT_GT(table.shape.tile_count, 100U);
      const std::byte* next = begin;
      for (std::uint32_t tile = 0; tile < table.shape.tile_count; ++tile) {
        std::ranges::fill(output, 0.0F);
        for (std::uint32_t lane = 0; lane < warp_lanes; ++lane)
          run_sum_tile<float>(task, view.entries[0], view.pointers, tile, table.shape.tile_bytes, lane);
        const auto bytes_of = [&](const std::byte* at) { return reinterpret_cast<const float*>(at); };
        const float* const end = bytes_of(begin) + count;
        const float* const first = std::find(bytes_of(begin), end, 1.0F);
        const float* const last = std::find(first, end, 0.0F);
        if (first == end) continue;
        ASSERT_EQ(first, bytes_of(next)) << tile;
        next = reinterpret_cast<const std::byte*>(last);
        EXPECT_TRUE(tile == 0 ||
                    is_transaction(pointers[0] + (reinterpret_cast<const std::byte*>(first) - begin)))
            << tile;
      }
      EXPECT_EQ(next, begin + count * sizeof(float));
    }
  }
}

TEST_F(CudaTiles, SwapTwoBlocks) {
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    clear();
    const std::uint64_t bytes = draw(1, 400) * 256;
    const bool is_in_place = toss();
    const std::size_t misalignment = is_in_place ? 0 : std::array{0U, 4U, 1U}[draw(0, 2)];
    Array& given = make_array(bytes, misalignment);
    Array& exposed = make_array(bytes, 0);
    Array& taken = is_in_place ? given : make_array(bytes, misalignment);
    taken.expected() = exposed.expected();
    exposed.expected().assign(given.begin(), given.begin() + bytes);
    const std::vector<FanOutSegment> segments{{.row_bytes = bytes,
                                               .source = 0,
                                               .first_target = 1,
                                               .target_count = 1,
                                               .swap = Swap::of_both_in_place}};
    SegmentTable table;
    table.shape = append_table(FanOut{segments, pointers_}, {.warps = toss() ? 10U : 1000U}, table);
    run_tiles<FanOutEntry>(table.blob.data(), table.shape,
                           [&](const auto& entry, auto*, auto tile, auto lane) {
                             EXPECT_EQ(entry.swap, Swap::of_both_in_place);
                             swap_tile(entry, given.begin(), exposed.begin(), taken.begin(), tile, lane);
                           });
    expect_all_arrays();
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaTiles, ATeamsTableHoldsEverythingTheKernelIsTold) {
  TeamTable table;
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    clear();
    std::vector<std::byte*> windows(draw(1, 9));
    std::vector<std::uint32_t> readers(draw(0, 8));
    std::vector<std::uint32_t> sources(draw(0, 8));
    for (std::byte*& window : windows) window = make_array(1, 0).begin();
    std::ranges::generate(readers, [&] { return static_cast<std::uint32_t>(draw(0, 8)); });
    std::ranges::generate(sources, [&] { return static_cast<std::uint32_t>(draw(0, 8)); });
    std::vector<FanOutSegment> puts(draw(0, 5));
    std::ranges::generate(puts, [&] { return draw_fan_out(); });
    const std::vector<std::byte*> put_pointers = pointers_;
    std::vector<FanOutSegment> copies(draw(0, 5));
    std::ranges::generate(copies, [&] { return draw_fan_out(); });
    TeamRound task;
    task.windows = windows;
    task.readers = readers;
    task.sources = sources;
    task.puts = {puts, put_pointers};
    task.copies = {copies, pointers_};
    build_table(task, toss() ? 1 : 132, table);

    const std::byte* const blob = table.blob.data();
    EXPECT_TRUE(
        std::ranges::equal(windows, std::span(reinterpret_cast<std::byte* const*>(blob), windows.size())));
    const auto* const numbers = reinterpret_cast<const std::uint32_t*>(blob + table.shape.readers_offset);
    ASSERT_EQ(table.shape.reader_count, readers.size());
    ASSERT_EQ(table.shape.source_count, sources.size());
    EXPECT_TRUE(std::equal(readers.begin(), readers.end(), numbers));
    EXPECT_TRUE(std::equal(sources.begin(), sources.end(), numbers + readers.size()));
    const auto run_copy = [](const auto& entry, auto* pointers, auto tile, auto lane) {
      copy_tile(entry, pointers, tile, lane);
    };
    run_tiles<FanOutEntry>(blob + table.shape.puts_offset, table.shape.puts, run_copy);
    run_tiles<FanOutEntry>(blob + table.shape.gets_offset, table.shape.gets, run_copy);
    expect_all_arrays();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tutti::backend::cuda
