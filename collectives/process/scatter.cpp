// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/cut.hpp"
#include "collectives/call/together.hpp"
#include "collectives/process/prepare.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace tutti::collectives {
namespace {

void check_chunk_sizes(const Arguments& arguments, ListOf<std::int64_t> sizes, std::size_t expected_count,
                       std::int64_t expected_sum, int dim) {
  if (sizes.size() != expected_count) {
    arguments.fail("chunk_sizes has {} entries, expected one per device, {}", sizes.size(), expected_count);
  }
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) arguments.fail("chunk_sizes[{}] is {}, expected zero or more", i, sizes[i]);
    // Saturating: sizes that overflow are wrong by more than enough.
    sum = sizes[i] > std::numeric_limits<std::int64_t>::max() - sum ? std::numeric_limits<std::int64_t>::max()
                                                                    : sum + sizes[i];
  }
  if (sum != expected_sum) {
    arguments.fail("chunk_sizes add up to {}, expected {}, the size of dimension {}", sum, expected_sum, dim);
  }
}

/// A call with the source in place; chunks follow in order.
class ScatterCall {
 public:
  ScatterCall(const Arguments& arguments, const Tensor& source, int dim, std::size_t chunks,
              const CollectiveOptions& options)
      : call_(arguments.runtime(), Collective::scatter, options),
        whole_(*source.layout()),
        along_(static_cast<std::size_t>(dim)),
        cut_(cut_along(whole_, dim)) {
    call_.request().cut() = {.rows = cut_.rows, .row_bytes = bytes_of(whole_.sizes()[along_])};
    call_.request().cut().parts.reserve(chunks);
    call_.reserve(1 + chunks);
    call_.add_row(source.device());
    call_.mark_root();
    call_.add(source);
  }

  /// The layout of the next chunk: the source's with another size, mostly that of the chunk before.
  [[nodiscard]] const LayoutPtr& chunk_layout(std::int64_t size) {
    if (!chunk_layout_ || chunk_layout_->sizes()[along_] != size) {
      std::array<std::int64_t, max_dimensions> sizes{};
      std::ranges::copy(whole_.sizes(), sizes.begin());
      sizes[along_] = size;
      chunk_layout_ = resized_in_order(whole_, std::span(sizes).first(whole_.sizes().size()));
    }
    return chunk_layout_;
  }
  void add_chunk(const Tensor& chunk, std::int64_t size, backend::StreamRef stream) {
    call_.add_row(stream);
    call_.add(chunk);
    add_part(size);
  }
  /// A chunk that is made once all have been announced, on the stream's device.
  void announce_chunk(backend::StreamRef stream, std::int64_t size) {
    call_.add_result_row(stream, cut_.rows * bytes_of(size));
    add_part(size);
  }
  /// Makes the chunk of this number, counted from 0.
  [[nodiscard]] Tensor make_chunk(std::size_t number, std::int64_t size) {
    const std::size_t row = 1 + number;  // behind the source's
    Tensor chunk = allocate_for(call_.runtime(), chunk_layout(size),
                                {Device(call_.stream_of(row).device), call_.first_use(row)});
    call_.return_to(row);
    call_.add(chunk);
    return chunk;
  }
  /// A chunk that stays where it is.
  void skip_chunk(std::int64_t size) { offset_ += bytes_of(size); }
  [[nodiscard]] Call& call() { return call_; }

 private:
  [[nodiscard]] std::uint64_t bytes_of(std::int64_t size) const {
    return static_cast<std::uint64_t>(size) * cut_.slab_bytes;
  }
  void add_part(std::int64_t size) {
    call_.request().cut().parts.push_back({offset_, bytes_of(size)});
    offset_ += bytes_of(size);
  }

  Call call_;
  const Layout& whole_;
  std::size_t along_;
  Cut cut_;
  LayoutPtr chunk_layout_;
  std::uint64_t offset_ = 0;
};

/// The given stream of output `i`, else the current one of its device.
Stream stream_for(StreamList streams, std::size_t i, Device device) {
  return streams.empty() ? current_stream(device.index()) : streams[i];
}

/// Lets `stream` use what the current stream of its device has computed.
void hand_on(Runtime& runtime, const Tensor& tensor, const Stream& stream) {
  const backend::StreamRef home = current_stream_ref(runtime, tensor.device().index());
  const backend::StreamRef user = StreamAccess::ref(stream);
  if (user == home) return;
  runtime.part<Streams>().order(home, user);
  tensor.record_stream(stream);
  // As with every stream of a call: what a capture reached is joined to it again.
  if (runtime.backend().is_capturing(home)) runtime.part<Streams>().order(user, home);
}

}  // namespace

Call prepare_scatter(const Arguments& arguments, Packing& packing, const Tensor& tensor, TensorList out,
                     int dim, StreamList streams, const CollectiveOptions& options) {
  arguments.usable(tensor, "tensor");
  const int along = arguments.dimension(dim, tensor.dim());
  arguments.not_empty(out.size(), "out");
  const auto size_of_chunk = [along](const Tensor& chunk) {
    return chunk.sizes()[static_cast<std::size_t>(along)];
  };
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name{"out", i};
    arguments.usable(out[i], name);
    arguments.on_some_device(out[i], name);
    arguments.same_dtype(out[i], name, tensor.dtype(), "tensor");
    arguments.same_sizes_but_one(out[i], name, tensor, "tensor", along);
    arguments.writable(out[i], name);
    if (__builtin_add_overflow(sum, size_of_chunk(out[i]), &sum)) {
      arguments.fail(
          "the sizes of out along dimension {} add up to more than 2^63 - 1, expected {} as tensor", along,
          tensor.size(along));
    }
  }
  if (sum != tensor.size(along)) {
    arguments.fail("the sizes of out along dimension {} add up to {}, expected {} as tensor", along, sum,
                   tensor.size(along));
  }
  if (!streams.empty()) {
    std::vector<Device> devices;
    for (const Tensor& chunk : out) devices.push_back(chunk.device());
    arguments.streams(streams, devices, "output");
  }
  const std::array inputs{Named::one("tensor", tensor)};
  const std::array outputs{Named{"out", out}};
  require_disjoint(arguments, inputs, outputs, InPlace::forbidden);

  const Tensor source = packing.input(tensor, *dense_layout(tensor.layout()), "tensor");
  ScatterCall call(arguments, source, along, out.size(), options);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Stream stream = stream_for(streams, i, out[i].device());
    const std::int64_t size = size_of_chunk(out[i]);
    call.add_chunk(packing.output(out[i], *call.chunk_layout(size), Name("out", i), stream), size,
                   StreamAccess::ref(stream));
  }
  return std::move(call.call());
}

}  // namespace tutti::collectives

namespace tutti {

void scatter(const Tensor& tensor, TensorList out, int dim, StreamList streams,
             const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "scatter", options);
  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = TensorList(std::span(&tensor, 1)),
                                .outputs = streams.empty() ? out : TensorList(),
                                .streams = streams});
  collectives::prepare_scatter(arguments, packing, tensor, out, dim, streams, options).launch();
  packing.unpack();
}

std::vector<Tensor> scatter(const Tensor& tensor, DeviceList given, ListOf<std::int64_t> chunk_sizes, int dim,
                            StreamList streams, const CollectiveOptions& options) {
  const collectives::Arguments arguments(Runtime::get(), "scatter", options);
  std::vector<Device> memory;
  const DeviceList devices = arguments.resolved(given, memory);
  arguments.usable(tensor, "tensor");
  arguments.existing_devices(devices, "devices");
  const int along = arguments.dimension(dim, tensor.dim());
  arguments.streams(streams, devices, "output");
  std::vector<std::int64_t> sizes(chunk_sizes.begin(), chunk_sizes.end());
  if (sizes.empty()) {
    sizes = collectives::equal_chunks(tensor.size(along), devices.size());
  } else {
    collectives::check_chunk_sizes(arguments, chunk_sizes, devices.size(), tensor.size(along), along);
  }

  collectives::Packing packing(arguments, collectives::PackingPolicy::copy,
                               {.inputs = TensorList(std::span(&tensor, 1)),
                                .devices = streams.empty() ? devices : DeviceList(),
                                .streams = streams});
  const Tensor source = packing.input(tensor, *dense_layout(tensor.layout()), "tensor");
  collectives::ScatterCall call(arguments, source, along, devices.size(), options);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] == tensor.device()) {
      call.skip_chunk(sizes[i]);
    } else {
      call.announce_chunk(StreamAccess::ref(collectives::stream_for(streams, i, devices[i])), sizes[i]);
    }
  }
  call.call().join_capture();
  std::vector<Tensor> results;
  results.reserve(devices.size());
  std::size_t made = 0;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i] == tensor.device()) {
      results.push_back(tensor.narrow(along, start, sizes[i]));
    } else {
      results.push_back(call.make_chunk(made++, sizes[i]));
    }
    start += sizes[i];
  }
  call.call().launch();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (devices[i] == tensor.device()) collectives::hand_on(arguments.runtime(), results[i], streams[i]);
  }
  return results;
}

}  // namespace tutti
