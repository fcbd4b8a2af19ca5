// SPDX-License-Identifier: Apache-2.0
#include "tutti/jiterator.hpp"

#include "device/runtime.hpp"
#include "jit/code_cache.hpp"
#include "jit/jit_source.hpp"
#include "jit_text/function_name.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

JitScalarKind kind_of(const JitScalar& scalar) {
  return static_cast<JitScalarKind>(scalar.value().index());
}

/// In a word, as the text has it in a union.
std::uint64_t word_of(const JitScalar& scalar) {
  if (const auto* const truth = std::get_if<bool>(&scalar.value())) return *truth ? 1 : 0;
  if (const auto* const number = std::get_if<std::int64_t>(&scalar.value()))
    return static_cast<std::uint64_t>(*number);
  if (const auto* const number = std::get_if<std::uint64_t>(&scalar.value())) return *number;
  return std::bit_cast<std::uint64_t>(std::get<double>(scalar.value()));
}

bool is_among(std::span<const JitArgument> arguments, std::string_view name) {
  return std::ranges::find(arguments, name, &JitArgument::name) != arguments.end();
}

/// The sizes that all inputs are broadcast to.
std::vector<std::int64_t> common_sizes(const std::vector<Tensor>& inputs, std::string_view function) {
  std::size_t rank = 0;
  for (const Tensor& input : inputs) rank = std::max(rank, input.sizes().size());
  std::vector<std::int64_t> sizes(rank, 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto given = inputs[i].sizes();
    for (std::size_t d = 0; d < given.size(); ++d) {
      std::int64_t& size = sizes[rank - given.size() + d];
      if (size == 1) size = given[d];
      if (given[d] == 1 || given[d] == size) continue;
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("{}: inputs[{}] has sizes {}, expected sizes that can be broadcast with those of "
                      "the inputs before it",
                      function, i, to_string(given)));
    }
  }
  return sizes;
}

}  // namespace

/// The common part of functions with one output and with several.
class JitProgram {
 public:
  JitProgram(std::string source, std::size_t outputs, bool returns_output, JitArguments defaults,
             std::string_view function)
      : source_(std::move(source)),
        name_(jit_function_name(source_, function)),
        label_("jitted function " + name_),
        outputs_(outputs),
        returns_output_(returns_output),
        defaults_(std::move(defaults)) {
    const auto refuse = [&](const std::string& reason) {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", function, reason));
    };
    if (outputs < 1 || outputs > most_jit_outputs)
      refuse(fmt::format("num_outputs is {}, expected 1 to {}", outputs, most_jit_outputs));
    if (defaults_.size() > most_jit_scalars)
      refuse(fmt::format("defaults has {} entries, expected {} at most", defaults_.size(), most_jit_scalars));
    for (std::size_t i = 0; i < defaults_.size(); ++i) {
      const std::string& name = defaults_[i].name;
      if (name.empty()) refuse(fmt::format("defaults[{}] has no name, expected one", i));
      if (is_among(std::span(defaults_).first(i), name))
        refuse(fmt::format("defaults[{}] is \"{}\", expected a name that is not given twice", i, name));
    }
  }

  void prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars) const {
    require_inputs(inputs);
    static_cast<void>(code_for(inputs, with_defaults(scalars)));
  }

  [[nodiscard]] std::vector<Tensor> run(const std::vector<Tensor>& inputs,
                                        const JitArguments& scalars) const {
    require_inputs(inputs);
    const JitArguments arguments = with_defaults(scalars);
    const std::vector<std::int64_t> sizes = common_sizes(inputs, label_);
    const Device device = inputs.front().device();
    const DType dtype = inputs.front().dtype();
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < outputs_; ++i)
      outputs.push_back(allocate_tensor(make_layout(dtype, sizes), device, HostMemory::pageable, label_));
    if (outputs.front().numel() == 0) return outputs;

    const ElementwisePlaces places{inputs.size(), outputs_, arguments.size()};
    Runtime& runtime = Runtime::get();
    const auto code = code_for(inputs, arguments);

    std::vector<std::uint64_t> words(places.total());
    std::vector<backend::CodeMemory> memory;
    const auto count = static_cast<std::size_t>(outputs.front().numel());
    words[ElementwisePlaces::count] = count;
    const auto is_plain = [&sizes](const Tensor& input) {
      return std::ranges::equal(input.sizes(), sizes) && input.is_contiguous();
    };
    words[ElementwisePlaces::is_dense] = std::ranges::all_of(inputs, is_plain) ? 1 : 0;
    words[ElementwisePlaces::rank] = sizes.size();
    for (std::size_t d = 0; d < sizes.size(); ++d)
      words[ElementwisePlaces::sizes + d] = static_cast<std::uint64_t>(sizes[d]);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = inputs[i];
      const std::size_t added = sizes.size() - input.sizes().size();
      for (std::size_t d = 0; d < input.sizes().size(); ++d) {
        const bool is_repeated = input.sizes()[d] == 1;
        words[places.strides(i) + added + d] =
            is_repeated ? 0 : static_cast<std::uint64_t>(input.strides()[d]);
      }
      words[places.input(i)] = reinterpret_cast<std::uint64_t>(input.data());
      memory.push_back({places.input(i), input.layout()->span_bytes(), false});
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      words[places.output(i)] = reinterpret_cast<std::uint64_t>(outputs[i].data());
      memory.push_back({places.output(i), count * size_of(dtype), true});
    }
    for (std::size_t i = 0; i < arguments.size(); ++i) words[places.scalar(i)] = word_of(arguments[i].value);
    code_calls_of(runtime.backend())
        .run_code(current_stream_ref(runtime, device.index()), code,
                  {.parameters = words, .memory = memory, .count = count});
    return outputs;
  }

 private:
  /// Returns the code for inputs that have been checked.
  [[nodiscard]] std::shared_ptr<const backend::CompiledCode> code_for(const std::vector<Tensor>& inputs,
                                                                      const JitArguments& arguments) const {
    std::vector<JitScalarKind> kinds;
    for (const JitArgument& argument : arguments) kinds.push_back(kind_of(argument.value));
    const ElementwisePlaces places{inputs.size(), outputs_, arguments.size()};
    const Tensor& first = inputs.front();
    return compiled(Runtime::get().backend(), first.device().index(),
                    elementwise_text(source_, name_, first.dtype(), places, kinds, returns_output_));
  }

  void require_inputs(const std::vector<Tensor>& inputs) const {
    const auto refuse = [this](const std::string& reason) {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", label_, reason));
    };
    if (inputs.empty() || inputs.size() > most_jit_inputs)
      refuse(fmt::format("{} inputs are given, expected 1 to {}", inputs.size(), most_jit_inputs));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& input = inputs[i];
      require_defined(input, label_, fmt::format("inputs[{}]", i));
      const Tensor& first = inputs.front();
      if (input.device().is_host()) refuse(fmt::format("inputs[{}] is on the host, expected a device", i));
      if (input.device() != first.device() || input.dtype() != first.dtype()) {
        refuse(fmt::format("inputs[{}] is of {} on {}, expected {} on {} as the first", i,
                           name_of(input.dtype()), to_string(input.device()), name_of(first.dtype()),
                           to_string(first.device())));
      }
    }
    Runtime::get().require_device(inputs.front().device(), label_);
    require_jit_dtype(inputs.front().dtype(), label_);
  }

  [[nodiscard]] JitArguments with_defaults(const JitArguments& scalars) const {
    JitArguments arguments = defaults_;
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      const std::string& name = scalars[i].name;
      const auto refuse = [&](std::string_view expected) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{}: scalars[{}] is \"{}\", expected {}", label_, i, name, expected));
      };
      const auto known = std::ranges::find(arguments, name, &JitArgument::name);
      if (known == arguments.end()) refuse("a name that it was created with");
      if (is_among(std::span(scalars).first(i), name)) refuse("a name that is not given twice");
      known->value = scalars[i].value;
    }
    return arguments;
  }

  const std::string source_;
  const std::string name_;
  const std::string label_;  ///< what messages call it
  const std::size_t outputs_;
  const bool returns_output_;
  const JitArguments defaults_;
};

Tensor JitFunction::operator()(const std::vector<Tensor>& inputs, const JitArguments& scalars) const {
  return std::move(program_->run(inputs, scalars).front());
}

void JitFunction::prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars) const {
  program_->prepare(inputs, scalars);
}

void MultiOutputJitFunction::prepare(const std::vector<Tensor>& inputs, const JitArguments& scalars) const {
  program_->prepare(inputs, scalars);
}

std::vector<Tensor> MultiOutputJitFunction::operator()(const std::vector<Tensor>& inputs,
                                                       const JitArguments& scalars) const {
  return program_->run(inputs, scalars);
}

JitFunction create_jit_fn(const std::string& source, const JitArguments& defaults) {
  return JitFunction(std::make_shared<const JitProgram>(source, 1, true, defaults, "create_jit_fn"));
}

MultiOutputJitFunction create_multi_output_jit_fn(const std::string& source, std::size_t num_outputs,
                                                  const JitArguments& defaults) {
  return MultiOutputJitFunction(
      std::make_shared<const JitProgram>(source, num_outputs, false, defaults, "create_multi_output_jit_fn"));
}

}  // namespace tutti
