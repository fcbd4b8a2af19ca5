// SPDX-License-Identifier: Apache-2.0
#include "tutti/sharded_optimizer.hpp"

#include "collectives/call/arguments.hpp"
#include "collectives/training/clipping.hpp"
#include "collectives/training/given_alike.hpp"
#include "collectives/training/member_lists.hpp"
#include "collectives/training/optimizer_state.hpp"
#include "collectives/training/shard_replicas.hpp"
#include "device/runtime.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using collectives::Arguments;

/// Elements whose multiples parameters and shards begin at: 16 bytes of the smallest type, which is what
/// kernels load at once and what other processes open.
constexpr std::int64_t shard_alignment = 16;

constexpr std::int64_t aligned(std::int64_t elements) {
  return (elements + shard_alignment - 1) / shard_alignment * shard_alignment;
}

collectives::GivenAlike described(const std::vector<Tensor>& parameters, std::size_t locals,
                                  const ShardedOptimizerOptions& options) {
  const DType dtype = parameters[0].dtype();
  collectives::GivenAlike given;
  given.add_tensors("parameters[0]", parameters);
  given.add_operation(options.operation);
  given.add("options.gradient_dtype", std::string(name_of(options.gradient_dtype.value_or(dtype))));
  given.add("options.state_count", std::to_string(options.state_count));
  given.add("options.state_dtype", std::string(name_of(options.state_dtype.value_or(dtype))));
  given.add("options.steps_per_replica", std::to_string(options.steps_per_replica));
  if (options.steps_per_replica > 0) given.add("the number of local members", std::to_string(locals));
  return given;
}

/// Views into `flat` of the sizes that `like` have, one behind the other.
std::vector<Tensor> views_into(const Tensor& flat, const std::vector<Tensor>& like) {
  std::vector<Tensor> views;
  std::int64_t begin = 0;
  for (const Tensor& tensor : like) {
    views.push_back(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += aligned(tensor.numel());
  }
  return views;
}

}  // namespace

class ShardedOptimizer::Impl {
 public:
  /// `before`: whose replicas may be of use.
  Impl(Communicator& communicator, TensorLists parameters, const ShardedOptimizerOptions& options,
       const Impl* before);

  /// One local member's buffers.
  struct Buffers {
    Tensor flat_parameters;
    Tensor flat_gradients;
    std::vector<Tensor> parameters;
    std::vector<Tensor> gradients;
  };
  [[nodiscard]] const Buffers& buffers(int member, const char* function) const {
    collectives::check_local_member(Arguments(Runtime::get(), function), member, buffers_.size());
    return buffers_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] const std::vector<ParameterShard>& shards() const noexcept { return shards_; }

  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }
  [[nodiscard]] bool is_restored() const noexcept { return is_restored_; }

  void step(const Update& update) { step(update, nullptr); }
  Tensor step(const Update& update, const GradientClip& clip) { return step(update, &clip); }
  void save(const std::string& path, std::string_view extra);
  [[nodiscard]] std::string load(const std::string& path);
  /// Makes an optimiser of the same parameters for another communicator.
  [[nodiscard]] std::unique_ptr<Impl> rescaled(Communicator& communicator, const Restore& restore) const;
  void zero_gradients() const {
    for (const Buffers& each : buffers_) {
      each.flat_gradients.fill_(0);
      each.flat_gradients.record_stream(current_stream(each.flat_gradients.device()));
    }
  }

 private:
  void check(TensorLists parameters) const;
  void add_member(const std::vector<Tensor>& parameters, std::int64_t shard_elements);
  void start_replicas(const Impl* before);
  /// Checks that no step is under way, and that no current stream is being captured.
  void require_idle(const Arguments& arguments) const;
  [[nodiscard]] collectives::OptimizerLayout layout() const;
  /// Gives all members the parameters of all shards.
  void gather_parameters();
  /// Calls `work` for each local shard, with its device current.
  template <class Work>
  void for_each_shard(const Work& work) const;
  /// Makes a step, with clipping if there is a `clip`. Returns the norm, if it is known.
  Tensor step(const Update& update, const GradientClip* clip);
  [[nodiscard]] Tensor clip_shards(const Arguments& arguments, const GradientClip& clip);
  /// The memory is not reused before the step is done, though the optimizer be destroyed. Of what the update
  /// alone touches, or whatever follows an update that throws, the communicator's calls do not tell.
  void keep_memory() const;

  Communicator& communicator_;
  const ShardedOptimizerOptions options_;
  std::vector<Buffers> buffers_;
  std::vector<ParameterShard> shards_;
  bool is_updating_ = false;  ///< for good if an update throws
  std::int64_t steps_ = 0;
  bool is_restored_ = false;
  std::optional<collectives::ShardReplicas> replicas_;
};

ShardedOptimizer::Impl::Impl(Communicator& communicator, TensorLists parameters,
                             const ShardedOptimizerOptions& options, const Impl* before)
    : communicator_(communicator), options_(options) {
  require_alike(communicator, "ShardedOptimizer", collectives::InCapture::unsupported, [&] {
    check(parameters);
    return described(parameters[0], parameters.size(), options);
  });
  const std::int64_t elements =
      std::accumulate(parameters[0].begin(), parameters[0].end(), std::int64_t{0},
                      [](std::int64_t sum, const Tensor& each) { return sum + aligned(each.numel()); });
  const auto members = static_cast<std::int64_t>(communicator.member_count());
  for (const std::vector<Tensor>& list : parameters)
    add_member(list, aligned((elements + members - 1) / members));
  if (options.steps_per_replica > 0) start_replicas(before);
}

void ShardedOptimizer::Impl::start_replicas(const Impl* before) {
  const collectives::ShardReplicas* const held =
      before != nullptr && before->replicas_ ? &*before->replicas_ : nullptr;
  const collectives::ShardReplicas::Start start =
      collectives::ShardReplicas::restore(communicator_, held, shards_);
  replicas_.emplace(communicator_, shards_, start, held);
  if (!start.age) return;
  steps_ = start.age->step;
  is_restored_ = true;
  for (std::size_t local = 0; local < shards_.size(); ++local) {
    const ParameterShard& shard = shards_[local];
    const std::vector<Tensor>& full = start.full[local];
    const std::int64_t count = std::min(full[0].numel(), buffers_[local].flat_parameters.numel());
    buffers_[local].flat_parameters.narrow(0, 0, count).copy_(full[0].narrow(0, 0, count));
    const std::int64_t own = std::clamp<std::int64_t>(count - shard.begin, 0, shard.parameters.numel());
    for (std::size_t i = 0; i < shard.state.size() && own > 0; ++i)
      shard.state[i].narrow(0, 0, own).copy_(full[1 + i].narrow(0, shard.begin, own));
  }
}

void ShardedOptimizer::Impl::check(TensorLists parameters) const {
  const Arguments arguments(Runtime::get(), "ShardedOptimizer");
  if (options_.steps_per_replica < 0)
    arguments.fail("options.steps_per_replica is {}, expected 0 or more", options_.steps_per_replica);
  collectives::check_member_lists(arguments, communicator_, parameters, "parameters");
  const std::vector<Tensor>& first = parameters[0];
  for (std::size_t t = 0; t < first.size(); ++t) {
    arguments.same_dtype(first[t], collectives::Name("parameters", 0, t), first[0].dtype(),
                         collectives::Name("parameters", 0, 0));
  }
  arguments.operation(options_.operation, options_.gradient_dtype.value_or(first[0].dtype()),
                      static_cast<std::size_t>(communicator_.member_count()));
}

void ShardedOptimizer::Impl::add_member(const std::vector<Tensor>& parameters, std::int64_t shard_elements) {
  const DType dtype = parameters[0].dtype();
  const Device device = parameters[0].device();
  const int local = static_cast<int>(buffers_.size());
  const std::int64_t member = communicator_.first_member() + local;
  const std::int64_t elements = shard_elements * communicator_.member_count();
  Buffers made{.flat_parameters = zeros({elements}, {.dtype = dtype, .device = device}),
               .flat_gradients =
                   zeros({elements}, {.dtype = options_.gradient_dtype.value_or(dtype), .device = device}),
               .parameters = {},
               .gradients = {}};
  made.parameters = views_into(made.flat_parameters, parameters);
  made.gradients = views_into(made.flat_gradients, parameters);
  for (std::size_t t = 0; t < parameters.size(); ++t) made.parameters[t].copy_(parameters[t]);
  ParameterShard shard{
      .member = local,
      .begin = member * shard_elements,
      .parameters = made.flat_parameters.narrow(0, member * shard_elements, shard_elements),
      .gradients = made.flat_gradients.narrow(0, member * shard_elements, shard_elements),
      .state = {},
  };
  for (std::size_t i = 0; i < options_.state_count; ++i) {
    shard.state.push_back(
        zeros({shard_elements}, {.dtype = options_.state_dtype.value_or(dtype), .device = device}));
  }
  buffers_.push_back(std::move(made));
  shards_.push_back(std::move(shard));
}

void ShardedOptimizer::Impl::keep_memory() const {
  for (std::size_t local = 0; local < shards_.size(); ++local) {
    const Stream stream = current_stream(shards_[local].parameters.device());
    buffers_[local].flat_parameters.record_stream(stream);
    buffers_[local].flat_gradients.record_stream(stream);
    for (const Tensor& state : shards_[local].state) state.record_stream(stream);
  }
}

template <class Work>
void ShardedOptimizer::Impl::for_each_shard(const Work& work) const {
  for (const ParameterShard& shard : shards_) {
    const DeviceGuard guard(shard.parameters.device());
    work(shard);
  }
}

Tensor ShardedOptimizer::Impl::clip_shards(const Arguments& arguments, const GradientClip& clip) {
  std::vector<collectives::ClippedGradients> members;
  for (const ParameterShard& shard : shards_)
    members.push_back(
        {.measured = {{shard.gradients, 0, shard.gradients.numel()}}, .scaled = {shard.gradients}});
  return collectives::clip_norm(communicator_, arguments, members, clip);
}

Tensor ShardedOptimizer::Impl::step(const Update& update, const GradientClip* clip) {
  const Arguments arguments(Runtime::get(), "ShardedOptimizer::step");
  if (!update) arguments.fail("update is empty, expected a function");
  if (is_updating_)
    arguments.fail("the update of an earlier step has not returned, expected no further step");
  if (clip != nullptr)
    check_clip(arguments, communicator_, *clip, std::span(&shards_[0].gradients, 1), "gradients");
  if (replicas_) {
    require_uncaptured(arguments, communicator_);
    replicas_->begin_step();
  }
  std::vector<Tensor> gradients;
  std::vector<Tensor> own_gradients;
  for (std::size_t local = 0; local < shards_.size(); ++local) {
    gradients.push_back(buffers_[local].flat_gradients);
    own_gradients.push_back(shards_[local].gradients);
  }
  communicator_.reduce_scatter(gradients, own_gradients, options_.operation);
  keep_memory();
  const Tensor norm = clip == nullptr ? Tensor() : clip_shards(arguments, *clip);
  is_updating_ = true;
  for_each_shard(update);
  is_updating_ = false;
  const std::int64_t steps = steps_ + 1;
  if (replicas_ && steps % options_.steps_per_replica == 0) replicas_->save(steps);
  gather_parameters();
  if (replicas_) replicas_->note_end_of_step();
  steps_ = steps;
  return norm;
}

void ShardedOptimizer::Impl::require_idle(const Arguments& arguments) const {
  if (is_updating_) arguments.fail("an update has thrown or has not returned, expected none");
  require_uncaptured(arguments, communicator_);
}

collectives::OptimizerLayout ShardedOptimizer::Impl::layout() const {
  const std::vector<Tensor>& parameters = buffers_[0].parameters;
  const DType dtype = parameters[0].dtype();
  collectives::OptimizerLayout layout;
  layout.parameter_dtype = dtype;
  layout.state_dtype = options_.state_dtype.value_or(dtype);
  layout.state_count = static_cast<std::uint32_t>(options_.state_count);
  for (const Tensor& parameter : parameters) {
    layout.elements += aligned(parameter.numel());
    layout.sizes.emplace_back(parameter.sizes().begin(), parameter.sizes().end());
  }
  return layout;
}

void ShardedOptimizer::Impl::save(const std::string& path, std::string_view extra) {
  require_idle(Arguments(Runtime::get(), "ShardedOptimizer::save"));
  collectives::save_state(communicator_, layout(), shards_, path, extra);
}

std::string ShardedOptimizer::Impl::load(const std::string& path) {
  require_idle(Arguments(Runtime::get(), "ShardedOptimizer::load"));
  std::string extra = collectives::load_state(communicator_, layout(), shards_, path);
  keep_memory();
  steps_ = 0;
  if (replicas_) replicas_->forget();
  gather_parameters();
  return extra;
}

void ShardedOptimizer::Impl::gather_parameters() {
  std::vector<Tensor> shards;
  std::vector<Tensor> wholes;
  for (std::size_t local = 0; local < shards_.size(); ++local) {
    shards.push_back(shards_[local].parameters);
    wholes.push_back(buffers_[local].flat_parameters);
  }
  communicator_.all_gather(shards, wholes);
}

std::unique_ptr<ShardedOptimizer::Impl> ShardedOptimizer::Impl::rescaled(Communicator& communicator,
                                                                         const Restore& restore) const {
  std::vector<std::vector<Tensor>> parameters;
  for (const Buffers& each : buffers_) parameters.push_back(each.parameters);
  auto impl = std::make_unique<Impl>(communicator, parameters, options_, this);
  keep_memory();  // until the copies are done
  if (restore && !impl->is_restored()) impl->for_each_shard(restore);
  return impl;
}

ShardedOptimizer::ShardedOptimizer(Communicator& communicator, TensorLists parameters,
                                   const ShardedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(communicator, parameters, options, nullptr)) {}
ShardedOptimizer::ShardedOptimizer(Communicator& communicator, TensorList parameters,
                                   const ShardedOptimizerOptions& options)
    : ShardedOptimizer(communicator, {std::vector<Tensor>(parameters.begin(), parameters.end())}, options) {}
ShardedOptimizer::~ShardedOptimizer() = default;

const std::vector<Tensor>& ShardedOptimizer::parameters(int member) const {
  return impl_->buffers(member, "ShardedOptimizer::parameters").parameters;
}
const std::vector<Tensor>& ShardedOptimizer::gradients(int member) const {
  return impl_->buffers(member, "ShardedOptimizer::gradients").gradients;
}
const Tensor& ShardedOptimizer::flat_parameters(int member) const {
  return impl_->buffers(member, "ShardedOptimizer::flat_parameters").flat_parameters;
}
const Tensor& ShardedOptimizer::flat_gradients(int member) const {
  return impl_->buffers(member, "ShardedOptimizer::flat_gradients").flat_gradients;
}
const std::vector<ParameterShard>& ShardedOptimizer::shards() const noexcept {
  return impl_->shards();
}
void ShardedOptimizer::step(const Update& update) {
  impl_->step(update);
}
Tensor ShardedOptimizer::step(const Update& update, const GradientClip& clip) {
  return impl_->step(update, clip);
}
void ShardedOptimizer::save(const std::string& path, std::string_view extra) {
  impl_->save(path, extra);
}
std::string ShardedOptimizer::load(const std::string& path) {
  return impl_->load(path);
}
std::int64_t ShardedOptimizer::steps() const noexcept {
  return impl_->steps();
}
bool ShardedOptimizer::rescale(Communicator& communicator, const Restore& restore) {
  impl_ = impl_->rescaled(communicator, restore);
  return impl_->is_restored();
}
void ShardedOptimizer::zero_gradients() {
  impl_->zero_gradients();
}

}  // namespace tutti
