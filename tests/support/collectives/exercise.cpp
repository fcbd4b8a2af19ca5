// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/exercise.hpp"

#include "support/values/random.hpp"
#include "support/values/reference_sum.hpp"

#include <optional>
#include <stdexcept>

namespace tutti::test {

namespace {

using TensorRows = std::vector<std::vector<Tensor>>;

/// The shapes of the tensors of one device in coalesced calls.
std::vector<Sizes> coalesced_sizes(std::int64_t rows) {
  return {{rows, 3}, {0, 5}, {7}, {rows}};
}

TensorRows in_rows_of(Tensors flat, std::size_t length) {
  TensorRows rows;
  for (; !flat.empty(); flat = flat.subspan(length)) {
    rows.emplace_back(flat.begin(), flat.begin() + static_cast<std::ptrdiff_t>(length));
  }
  return rows;
}

std::vector<Tensor> flattened(const TensorRows& rows) {
  std::vector<Tensor> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

std::vector<Device> without_root(const std::vector<Device>& devices) {
  return {devices.begin() + 1, devices.end()};
}

void exercise_broadcast(Exercise& exercise, const std::vector<Device>& devices, std::int64_t rows) {
  const std::vector<Device> targets = without_root(devices);
  exercise.inputs = {{{rows, 3}, devices.front()}};
  for (const Device device : targets) exercise.outputs.push_back({{rows, 3}, device});
  exercise.write = [](Tensors in, Tensors out, const CollectiveOptions& options) {
    broadcast(in[0], out, options);
  };
  exercise.make = [targets](Tensors in, const CollectiveOptions& options) {
    return broadcast(in[0], targets, options);
  };
  exercise.bind = [](Tensors in, Tensors out, const CollectiveOptions& options) {
    return persistent_broadcast(in[0], out, options);
  };
  exercise.expect = [count = targets.size()](std::span<const HostArray> in) {
    return std::vector<HostArray>(count, in[0]);
  };
}

void exercise_broadcast_coalesced(Exercise& exercise, const std::vector<Device>& devices, std::int64_t rows) {
  const std::vector<Device> targets = without_root(devices);
  const std::vector<Sizes> sizes = coalesced_sizes(rows);
  for (const Sizes& each : sizes) exercise.inputs.push_back({each, devices.front()});
  for (const Device device : targets) {
    for (const Sizes& each : sizes) exercise.outputs.push_back({each, device});
  }
  const std::size_t length = sizes.size();
  exercise.write = [length](Tensors in, Tensors out, const CollectiveOptions& options) {
    broadcast_coalesced(in, in_rows_of(out, length), default_buffer_size, options);
  };
  exercise.make = [targets](Tensors in, const CollectiveOptions& options) {
    return flattened(broadcast_coalesced(in, targets, default_buffer_size, options));
  };
  exercise.bind = [length](Tensors in, Tensors out, const CollectiveOptions& options) {
    return persistent_broadcast_coalesced(in, in_rows_of(out, length), default_buffer_size, options);
  };
  exercise.expect = [count = targets.size()](std::span<const HostArray> in) {
    std::vector<HostArray> expected;
    for (std::size_t copy = 0; copy < count; ++copy) expected.insert(expected.end(), in.begin(), in.end());
    return expected;
  };
}

/// Without an operation: by the function that adds.
void exercise_reduce(Exercise& exercise, const std::vector<Device>& devices, std::int64_t rows,
                     const std::optional<ReduceOp>& op) {
  const Device root = devices.front();
  for (const Device device : devices) exercise.inputs.push_back({{rows, 3}, device});
  exercise.outputs = {{{rows, 3}, root}};
  exercise.write = [op](Tensors in, Tensors out, const CollectiveOptions& options) {
    op ? reduce(in, out[0], *op, options) : reduce_add(in, out[0], options);
  };
  exercise.make = [op, root](Tensors in, const CollectiveOptions& options) {
    return std::vector<Tensor>{op ? reduce(in, *op, root, options) : reduce_add(in, root, options)};
  };
  exercise.bind = [op](Tensors in, Tensors out, const CollectiveOptions& options) {
    return op ? persistent_reduce(in, out[0], *op, options) : persistent_reduce_add(in, out[0], options);
  };
  exercise.expect = [op](std::span<const HostArray> in) {
    return std::vector<HostArray>{reference_reduction(in, op.value_or(ReduceOp::sum))};
  };
}

void exercise_reduce_coalesced(Exercise& exercise, const std::vector<Device>& devices, std::int64_t rows,
                               const std::optional<ReduceOp>& op) {
  const Device root = devices.front();
  const std::vector<Sizes> sizes = coalesced_sizes(rows);
  for (const Device device : devices) {
    for (const Sizes& each : sizes) exercise.inputs.push_back({each, device});
  }
  for (const Sizes& each : sizes) exercise.outputs.push_back({each, root});
  const std::size_t length = sizes.size();
  exercise.write = [op, length](Tensors in, Tensors out, const CollectiveOptions& options) {
    const TensorRows inputs = in_rows_of(in, length);
    op ? reduce_coalesced(inputs, out, *op, default_buffer_size, options)
       : reduce_add_coalesced(inputs, out, default_buffer_size, options);
  };
  exercise.make = [op, length, root](Tensors in, const CollectiveOptions& options) {
    const TensorRows inputs = in_rows_of(in, length);
    return op ? reduce_coalesced(inputs, *op, root, default_buffer_size, options)
              : reduce_add_coalesced(inputs, root, default_buffer_size, options);
  };
  exercise.bind = [op, length](Tensors in, Tensors out, const CollectiveOptions& options) {
    const TensorRows inputs = in_rows_of(in, length);
    return op ? persistent_reduce_coalesced(inputs, out, *op, default_buffer_size, options)
              : persistent_reduce_add_coalesced(inputs, out, default_buffer_size, options);
  };
  exercise.expect = [op, length](std::span<const HostArray> in) {
    std::vector<HostArray> expected;
    for (std::size_t column = 0; column < length; ++column) {
      std::vector<HostArray> terms;
      for (std::size_t i = column; i < in.size(); i += length) terms.push_back(in[i]);
      expected.push_back(reference_reduction(terms, op.value_or(ReduceOp::sum)));
    }
    return expected;
  };
}

void exercise_scatter(Exercise& exercise, const std::vector<Device>& devices, std::int64_t rows) {
  const std::vector<Device> targets = without_root(devices);
  const auto count = static_cast<std::int64_t>(targets.size());
  exercise.inputs = {{{rows * count, 3}, devices.front()}};
  for (const Device device : targets) exercise.outputs.push_back({{rows, 3}, device});
  exercise.write = [](Tensors in, Tensors out, const CollectiveOptions& options) {
    scatter(in[0], out, 0, {}, options);
  };
  exercise.make = [targets](Tensors in, const CollectiveOptions& options) {
    return scatter(in[0], targets, {}, 0, {}, options);
  };
  exercise.bind = [](Tensors in, Tensors out, const CollectiveOptions& options) {
    return persistent_scatter(in[0], out, 0, options);
  };
  exercise.expect = [rows, parts = targets.size()](std::span<const HostArray> in) {
    return split(in[0], 0, Sizes(parts, rows));
  };
}

void exercise_gather(Exercise& exercise, const std::vector<Device>& devices, std::int64_t rows) {
  const Device root = devices.front();
  const auto count = static_cast<std::int64_t>(devices.size());
  for (const Device device : devices) exercise.inputs.push_back({{rows, 3}, device});
  exercise.outputs = {{{rows * count, 3}, root}};
  exercise.write = [](Tensors in, Tensors out, const CollectiveOptions& options) {
    gather(in, out[0], 0, options);
  };
  exercise.make = [root](Tensors in, const CollectiveOptions& options) {
    return std::vector<Tensor>{gather(in, 0, root, options)};
  };
  exercise.bind = [](Tensors in, Tensors out, const CollectiveOptions& options) {
    return persistent_gather(in, out[0], 0, options);
  };
  exercise.expect = [](std::span<const HostArray> in) { return std::vector<HostArray>{concatenate(in, 0)}; };
}

}  // namespace

std::vector<HostArray> Exercise::values(std::uint64_t seed) const {
  std::vector<HostArray> arrays;
  for (const Slot& input : inputs) {
    arrays.push_back(random_numbers(dtype, input.sizes, random_at(seed, arrays.size())));
  }
  return arrays;
}

Exercise make_exercise(CollectiveForm form, const std::vector<Device>& devices, std::int64_t rows,
                       DType dtype, const std::optional<ReduceOp>& op) {
  if (devices.size() < 2) throw std::logic_error("an exercise needs two devices");
  Exercise exercise;
  exercise.form = form;
  exercise.function = name_of(form);
  exercise.dtype = dtype;
  switch (form.collective) {
    case Collective::broadcast:
      (form.takes_lists ? exercise_broadcast_coalesced : exercise_broadcast)(exercise, devices, rows);
      break;
    case Collective::reduce:
      if (!op) exercise.function = form.takes_lists ? "reduce_add_coalesced" : "reduce_add";
      (form.takes_lists ? exercise_reduce_coalesced : exercise_reduce)(exercise, devices, rows, op);
      break;
    case Collective::scatter:
      exercise_scatter(exercise, devices, rows);
      break;
    case Collective::gather:
      exercise_gather(exercise, devices, rows);
      break;
    default:
      throw std::logic_error("exercises are of one process");
  }
  return exercise;
}

std::vector<Tensor> make_inputs(const Exercise& exercise, std::span<const HostArray> values) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < values.size(); ++i)
    inputs.push_back(make_tensor(values[i], exercise.inputs[i].device));
  return inputs;
}

std::vector<TestTensor> make_poisoned_outputs(const Exercise& exercise) {
  std::vector<TestTensor> outputs;
  for (const Slot& output : exercise.outputs) {
    outputs.push_back(TestTensor::poisoned(exercise.dtype, output.sizes, output.device));
  }
  return outputs;
}

testing::AssertionResult all_hold(const Exercise& exercise, Tensors outputs,
                                  std::span<const HostArray> expected) {
  if (outputs.size() != expected.size()) {
    return testing::AssertionFailure() << outputs.size() << " outputs, expected " << expected.size();
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (const auto result = holds(outputs[i], exercise.outputs[i].device, expected[i]); !result) {
      return testing::AssertionFailure() << exercise.function << ": output " << i << ": " << result.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult all_hold(const std::vector<TestTensor>& outputs,
                                  std::span<const HostArray> expected) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (const auto result = outputs[i].holds(expected[i]); !result) {
      return testing::AssertionFailure() << "output " << i << ": " << result.message();
    }
  }
  return testing::AssertionSuccess();
}

void EveryCollective::SetUp() {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  if (transport() == TransportKind::nccl && !reason_against_nccl().empty())
    GTEST_SKIP() << reason_against_nccl();
}

void EveryCollective::TearDown() {
  EXPECT_NO_THROW(synchronize_all());
}

std::vector<Tensor> EveryCollective::make(const Exercise& exercise, Tensors inputs) {
  std::vector<Tensor> results;
  carry(transport(), [&](const CollectiveOptions& options) { results = exercise.make(inputs, options); },
        {.determinism = Determinism::bitwise});
  return results;
}

void EveryCollective::write(const Exercise& exercise, Tensors inputs, Tensors outputs) {
  carry(transport(), [&](const CollectiveOptions& options) { exercise.write(inputs, outputs, options); },
        {.determinism = Determinism::bitwise});
}

std::string CollectiveAndTransportName::operator()(
    const testing::TestParamInfo<std::tuple<CollectiveForm, TransportKind>>& parameters) const {
  return std::string(name_of(std::get<0>(parameters.param))) + "_" +
         std::string(name_of(std::get<1>(parameters.param)));
}

}  // namespace tutti::test
