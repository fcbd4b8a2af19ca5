// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/random_call.hpp"

#include "support/values/reference_sum.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::test {

/// Draws the parts of a call in a fixed order.
class CallMaker {
 public:
  explicit CallMaker(std::uint64_t seed) : random_(seed), seed_(seed) {
    for (std::int64_t count = random_.between(1, 2 * device_count()); count > 0; --count) {
      devices_.emplace_back(static_cast<int>(random_.between(0, device_count() - 1)));
    }
    root_ = Device(static_cast<int>(random_.between(0, device_count() - 1)));
    dtype_ = random_.pick(all_dtypes);
    for (std::int64_t rank = random_.between(1, 4); rank > 0; --rank) sizes_.push_back(random_.between(0, 9));
    // Now and then a long dimension, for chunked and split paths.
    if (random_.one_in(6)) sizes_[0] = scaled(random_.between(1, 20'000));
    options_.transport = random_.pick(transports_under_test());
    options_.determinism = Determinism::bitwise;
  }

  RandomCall make() {
    switch (random_.between(0, 5)) {
      case 0:
        broadcast_once();
        break;
      case 1:
        broadcast_many();
        break;
      case 2:
        reduce_once();
        break;
      case 3:
        reduce_many();
        break;
      case 4:
        scatter_once();
        break;
      default:
        gather_once();
        break;
    }
    call_.description_ +=
        fmt::format(" of {} {} by {}, devices [", name_of(dtype_), sizes_, name_of(options_.transport));
    for (const Device device : devices_) call_.description_ += fmt::format(" {}", device.index());
    call_.description_ += fmt::format(" ], root {}, seed {}", root_.index(), seed_);
    spoil_inputs();
    return std::move(call_);
  }

 private:
  Placement placement(const Sizes& sizes) {
    const Placement placements[] = {
        Placement::contiguous, Placement::contiguous,
        Placement::misaligned, Placement::gapped,
        Placement::transposed, sizes.size() == 4 ? Placement::channels_last : Placement::contiguous};
    return placements[random_.between(0, 5)];
  }
  Tensor input(const HostArray& values, Device device) {
    const bool is_pinned = random_.one_in(2) && device.is_host();
    const HostMemory memory = is_pinned ? HostMemory::pinned : HostMemory::pageable;
    inputs_.push_back(TestTensor(values, device, placement(values.sizes), memory).tensor());
    return inputs_.back();
  }
  Tensor output(const HostArray& expected, Device device) {
    const TestTensor made =
        TestTensor::poisoned(expected.dtype, expected.sizes, device, placement(expected.sizes));
    expect(made.tensor(), expected);
    return made.tensor();
  }
  void expect(const Tensor& tensor, const HostArray& expected) {
    const int home = tensor.device().is_host() ? 0 : tensor.device().index();
    call_.outputs_.push_back({tensor, current_stream(home), expected});
  }
  /// Inputs on devices may be overwritten as soon as the call returns: their streams keep the order.
  void spoil_inputs() {
    for (const Tensor& tensor : inputs_) {
      const bool is_output = std::ranges::any_of(
          call_.outputs_, [&](const auto& each) { return each.tensor.storage() == tensor.storage(); });
      if (!is_output && !tensor.device().is_host() && random_.one_in(2)) tensor.fill_(1);
    }
  }
  template <class Call>
  void launch(std::string name, Call&& call) {
    call_.description_ = std::move(name);
    carry(options_.transport, std::forward<Call>(call), options_);
  }
  Device source_device() { return random_.one_in(4) ? Device::host() : root_; }

  void broadcast_once() {
    const HostArray values = random_bits(dtype_, sizes_, random_.next());
    const Tensor source = input(values, source_device());
    if (random_.one_in(2)) {
      launch("broadcast", [&](const CollectiveOptions& options) {
        for (const Tensor& result : broadcast(source, devices_, options)) expect(result, values);
      });
      return;
    }
    std::vector<Tensor> out;
    for (const Device device : devices_) out.push_back(output(values, device));
    launch("broadcast into", [&](const CollectiveOptions& options) { broadcast(source, out, options); });
  }

  void broadcast_many() {
    const Device home = source_device();
    std::vector<HostArray> values;
    std::vector<Tensor> tensors;
    for (std::int64_t count = random_.between(1, 30); count > 0; --count) {
      values.push_back(random_bits(random_.pick(all_dtypes), small_sizes(), random_.next()));
      tensors.push_back(input(values.back(), home));
    }
    const auto buffer_size = static_cast<std::size_t>(random_.between(0, 1 << 16));
    if (random_.one_in(2)) {
      launch("broadcast_coalesced", [&](const CollectiveOptions& options) {
        for (const auto& row : broadcast_coalesced(tensors, devices_, buffer_size, options)) {
          for (std::size_t t = 0; t < row.size(); ++t) expect(row[t], values[t]);
        }
      });
      return;
    }
    std::vector<std::vector<Tensor>> out;
    for (const Device device : devices_) {
      out.emplace_back();
      for (const HostArray& each : values) out.back().push_back(output(each, device));
    }
    if (!home.is_host() && random_.one_in(2)) {
      devices_.push_back(home);
      out.push_back(some_in_place(tensors, values, home));
    }
    launch("broadcast_coalesced into", [&](const CollectiveOptions& options) {
      broadcast_coalesced(tensors, out, buffer_size, options);
    });
  }
  /// Outputs on `device` that hold `expected`; some of them are `tensors` themselves.
  std::vector<Tensor> some_in_place(const std::vector<Tensor>& tensors,
                                    const std::vector<HostArray>& expected, Device device) {
    const bool all = random_.one_in(2);
    std::vector<Tensor> out;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (all || random_.one_in(2)) {
        expect(tensors[t], expected[t]);
        out.push_back(tensors[t]);
      } else {
        out.push_back(output(expected[t], device));
      }
    }
    return out;
  }
  /// For coalesced calls.
  Sizes small_sizes() { return {random_.between(0, 20), random_.between(0, 12)}; }

  /// None: the function that adds.
  std::optional<ReduceOp> operation(const std::vector<ReduceOp>& all) {
    if (random_.one_in(3)) return std::nullopt;
    return random_.pick(all);
  }
  static std::string reduction_name(const std::optional<ReduceOp>& op) {
    return op ? fmt::format("{} reduce", name_of(op->kind())) : "reduce_add";
  }

  void reduce_once() {
    std::vector<HostArray> values;
    std::vector<Tensor> inputs;
    for (const Device device : devices_) {
      values.push_back(random_numbers(dtype_, sizes_, random_.next()));
      inputs.push_back(input(values.back(), device));
    }
    const std::optional<ReduceOp> op = operation(operations_of(dtype_, inputs.size()));
    const HostArray expected = reference_reduction(values, op.value_or(ReduceOp::sum));
    if (random_.one_in(3)) {
      launch(reduction_name(op), [&](const CollectiveOptions& options) {
        expect(op ? reduce(inputs, *op, root_, options) : reduce_add(inputs, root_, options), expected);
      });
      return;
    }
    Tensor out = inputs.back();
    if (random_.one_in(2)) {
      out = output(expected, root_);
    } else {
      expect(out, expected);  // in place
    }
    launch(reduction_name(op) + " into", [&](const CollectiveOptions& options) {
      op ? reduce(inputs, out, *op, options) : reduce_add(inputs, out, options);
    });
  }

  void reduce_many() {
    std::vector<std::pair<DType, Sizes>> shapes;
    for (std::int64_t count = random_.between(1, 20); count > 0; --count) {
      shapes.emplace_back(random_.pick(all_dtypes), small_sizes());
    }
    std::vector<std::vector<HostArray>> columns(shapes.size());
    std::vector<std::vector<Tensor>> rows;
    for (const Device device : devices_) {
      rows.emplace_back();
      for (std::size_t t = 0; t < shapes.size(); ++t) {
        columns[t].push_back(random_numbers(shapes[t].first, shapes[t].second, random_.next()));
        rows.back().push_back(input(columns[t].back(), device));
      }
    }
    std::vector<DType> dtypes;
    for (const auto& [dtype, sizes] : shapes) dtypes.push_back(dtype);
    const std::optional<ReduceOp> op = operation(operations_of(dtypes, rows.size()));
    std::vector<HostArray> expected;
    for (const std::vector<HostArray>& column : columns)
      expected.push_back(reference_reduction(column, op.value_or(ReduceOp::sum)));
    const auto buffer_size = static_cast<std::size_t>(random_.between(0, 1 << 16));
    if (random_.one_in(3)) {
      launch(reduction_name(op) + "_coalesced", [&](const CollectiveOptions& options) {
        const std::vector<Tensor> results = op ? reduce_coalesced(rows, *op, root_, buffer_size, options)
                                               : reduce_add_coalesced(rows, root_, buffer_size, options);
        for (std::size_t t = 0; t < results.size(); ++t) expect(results[t], expected[t]);
      });
      return;
    }
    std::vector<Tensor> out;
    if (random_.one_in(2)) {
      for (const HostArray& each : expected) out.push_back(output(each, root_));
    } else {
      const auto row = static_cast<std::size_t>(random_.between(0, std::ssize(rows) - 1));
      out = some_in_place(rows[row], expected, devices_[row]);
    }
    launch(reduction_name(op) + "_coalesced into", [&](const CollectiveOptions& options) {
      op ? reduce_coalesced(rows, out, *op, buffer_size, options)
         : reduce_add_coalesced(rows, out, buffer_size, options);
    });
  }

  void scatter_once() {
    const HostArray values = random_bits(dtype_, sizes_, random_.next());
    const auto rank = static_cast<std::int64_t>(sizes_.size());
    const auto dim = static_cast<int>(random_.between(-rank, rank - 1));
    const std::int64_t length = sizes_[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)];
    Sizes chunks = equal_chunks(length, devices_.size());
    const bool is_custom = random_.one_in(2);
    if (is_custom) std::ranges::reverse(chunks);
    const std::vector<HostArray> parts = split(values, dim, chunks);
    const Tensor source = input(values, source_device());
    if (random_.one_in(2)) {
      launch("scatter", [&](const CollectiveOptions& options) {
        const std::vector<Tensor> results =
            scatter(source, devices_, is_custom ? chunks : Sizes{}, dim, {}, options);
        for (std::size_t i = 0; i < results.size(); ++i) expect(results[i], parts[i]);
      });
      return;
    }
    std::vector<Tensor> out;
    for (std::size_t i = 0; i < parts.size(); ++i) out.push_back(output(parts[i], devices_[i]));
    launch("scatter into", [&](const CollectiveOptions& options) { scatter(source, out, dim, {}, options); });
  }

  void gather_once() {
    const auto rank = static_cast<std::int64_t>(sizes_.size());
    const auto dim = static_cast<int>(random_.between(-rank, rank - 1));
    std::vector<HostArray> parts;
    std::vector<Tensor> tensors;
    for (const Device device : devices_) {
      Sizes sizes = sizes_;
      sizes[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)] = random_.between(0, 5);
      parts.push_back(random_bits(dtype_, sizes, random_.next()));
      tensors.push_back(input(parts.back(), device));
    }
    const HostArray whole = concatenate(parts, dim);
    const Device target = source_device();
    if (random_.one_in(2)) {
      launch("gather",
             [&](const CollectiveOptions& options) { expect(gather(tensors, dim, target, options), whole); });
      return;
    }
    const Tensor out = output(whole, target);
    launch("gather into", [&](const CollectiveOptions& options) { gather(tensors, out, dim, options); });
  }

  Random random_;
  std::uint64_t seed_;
  std::vector<Device> devices_;
  Device root_;
  DType dtype_ = DType::float32;
  Sizes sizes_;
  CollectiveOptions options_;
  std::vector<Tensor> inputs_;
  RandomCall call_;
};

RandomCall RandomCall::start(std::uint64_t seed) {
  return CallMaker(seed).make();
}

testing::AssertionResult RandomCall::check() const {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const StreamGuard guard(outputs_[i].stream);
    if (const std::string difference = first_difference(outputs_[i].expected, read(outputs_[i].tensor));
        !difference.empty()) {
      return testing::AssertionFailure() << description_ << ": output " << i << ": " << difference;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace tutti::test
