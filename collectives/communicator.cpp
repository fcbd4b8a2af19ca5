#include "tutti/communicator.hpp"

#include "collectives/arguments.hpp"
#include "collectives/disjoint.hpp"
#include "collectives/packing.hpp"
#include "collectives/team_problem.hpp"
#include "runtime.hpp"
#include "transport/plan_cache.hpp"
#include "transport/ranks/team.hpp"
#include "transport/ranks/team_plan.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::InPlace;
using collectives::Name;
using collectives::Named;
using collectives::Packing;
using collectives::PackingPolicy;
using collectives::TeamColumn;
using collectives::TeamProblem;
using transport::PlanKey;
using transport::ranks::Operation;
using transport::ranks::Signature;
using transport::ranks::Team;
using transport::ranks::TeamLauncher;
using transport::ranks::TeamPlan;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdU;
  return hash ^ hash >> 32U;
}

std::vector<TeamColumn> columns_of(std::span<const Tensor> tensors) {
  std::vector<TeamColumn> columns;
  for (const Tensor& tensor : tensors) {
    columns.push_back({static_cast<std::uint64_t>(tensor.numel()), tensor.dtype()});
  }
  return columns;
}

LayoutPtr contiguous_layout(const Tensor& tensor) {
  return collectives::layout_in(*tensor.layout(), MemoryFormat::contiguous);
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(Exchange& exchange, const CommunicatorOptions& options)
      : runtime_(Runtime::get()),
        devices_(checked_devices(options)),
        team_(runtime_, exchange, settings(options)),
        launcher_(runtime_, team_) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  [[nodiscard]] Team& team() noexcept { return team_; }
  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }

  class Call;

 private:
  std::vector<Device> checked_devices(const CommunicatorOptions& options);
  [[nodiscard]] Team::Settings settings(const CommunicatorOptions& options) const {
    Team::Settings settings{
        .timeout = options.timeout, .staging_bytes_per_member = options.staging_bytes, .devices = {}};
    for (const Device device : devices_) settings.devices.push_back(device.index());
    return settings;
  }

  Runtime& runtime_;
  std::vector<Device> devices_;
  Team team_;
  TeamLauncher launcher_;
  std::mutex mutex_;
  std::unordered_map<PlanKey, std::shared_ptr<const TeamPlan>, PlanKey::Hash> plans_;
};

std::vector<Device> Communicator::Impl::checked_devices(const CommunicatorOptions& options) {
  const Arguments arguments(runtime_, "Communicator");
  std::vector<Device> devices = options.devices;
  if (devices.empty()) devices.emplace_back(current_device());
  arguments.existing_devices(devices, "options.devices");
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(i), devices[i]) !=
        devices.begin() + static_cast<std::ptrdiff_t>(i)) {
      arguments.fail("options.devices[{}] is {}, which is there already: a device is one member", i,
                     to_string(devices[i]));
    }
  }
  if (options.timeout.count() <= 0) {
    arguments.fail("options.timeout is {} ms, expected more than 0", options.timeout.count());
  }
  if (devices.size() > transport::ranks::most_own_members) {
    arguments.fail("options.devices has {} entries, expected {} at most", devices.size(),
                   transport::ranks::most_own_members);
  }
  constexpr std::size_t smallest = std::size_t{512} << 10U;
  if (options.staging_bytes < smallest) {
    arguments.fail("options.staging_bytes is {}, expected {} or more", options.staging_bytes, smallest);
  }
  return devices;
}

Communicator::Impl::~Impl() {
  // Queued work uses the shared memory. What does not end by itself is ended.
  const auto deadline = std::chrono::steady_clock::now() + team_.timeout();
  while (!team_.is_idle() && std::chrono::steady_clock::now() < deadline) {
    if (team_.abort_word().is_set()) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (!team_.is_idle()) team_.abort(ErrorCode::aborted, "a rank left with calls under way");
  for (const Device device : devices_) {
    try {
      runtime_.backend().synchronize_device(device.index());
    } catch (const Error&) {
      continue;  // failed work is over as well
    }
  }
}

/// One call: checks, signature, problem, launch. Makes its calls one after another with those of other
/// threads.
class Communicator::Impl::Call {
 public:
  Call(Impl& impl, Operation operation, StreamList streams)
      : impl_(impl),
        team_(impl.team_),
        lock_(impl.mutex_),
        arguments_(impl.runtime_, transport::ranks::name_of(operation)),
        packing_(arguments_, PackingPolicy::copy) {
    signature_.operation = operation;
    arguments_.streams(streams, impl.devices_);
    for (const Stream& stream : streams) guards_.emplace_back(stream);
    for (const Device device : impl.devices_)
      streams_.push_back(current_stream_ref(impl.runtime_, device.index()));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    while (!guards_.empty()) guards_.pop_back();  // guards nest
  }

  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }
  [[nodiscard]] std::size_t locals() const noexcept { return impl_.devices_.size(); }
  [[nodiscard]] std::size_t first() const noexcept { return team_.first_local(); }
  [[nodiscard]] std::size_t members() const noexcept { return team_.member_count(); }
  /// This process's position of a member, if it is one of its own.
  [[nodiscard]] std::optional<std::size_t> own(std::size_t member) const {
    return team_.is_local(member) ? std::optional(member - first()) : std::nullopt;
  }
  [[nodiscard]] Stream stream(std::size_t own_member) const {
    return StreamAccess::make(streams_[own_member]);
  }

  void set_root(int root) {
    if (root < 0 || static_cast<std::size_t>(root) >= members()) {
      arguments_.fail("root is {}, expected 0 to {}", root, members() - 1);
    }
    root_ = static_cast<std::size_t>(root);
    signature_.root = static_cast<std::int16_t>(root);
  }
  [[nodiscard]] std::size_t root() const noexcept { return root_; }

  void one_per_member(std::size_t count, std::string_view argument) const {
    if (count != locals()) {
      arguments_.fail("{} has {} entries, expected one per own member, {}", argument, count, locals());
    }
  }
  void on_member(const Tensor& tensor, const Name& name, std::size_t own_member) const {
    arguments_.usable(tensor, name);
    if (tensor.device() != impl_.devices_[own_member]) {
      arguments_.fail("{} is on {}, expected {}, the device of member {}", name, to_string(tensor.device()),
                      to_string(impl_.devices_[own_member]), first() + own_member);
    }
  }
  /// Own members' lists: on their devices, all of the same element types and sizes as the first.
  void check_lists(TensorLists lists, std::string_view argument) const {
    one_per_member(lists.size(), argument);
    arguments_.not_empty(lists[0].size(), argument);
    for (std::size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].size() != lists[0].size()) {
        arguments_.fail("{}[{}] has {} tensors, expected {} as {}[0]", argument, i, lists[i].size(),
                        lists[0].size(), argument);
      }
      for (std::size_t t = 0; t < lists[i].size(); ++t) {
        const Name name(argument, i, t);
        on_member(lists[i][t], name, i);
        arguments_.same_dtype(lists[i][t], name, lists[0][t].dtype(), Name(argument, 0, t));
        arguments_.same_sizes(lists[i][t], name, lists[0][t].sizes(), Name(argument, 0, t));
      }
    }
  }
  void check_output(const Tensor& out, const Name& name, std::size_t own_member, const Tensor& like,
                    const Name& like_name) const {
    on_member(out, name, own_member);
    arguments_.same_dtype(out, name, like.dtype(), like_name);
    arguments_.same_sizes(out, name, like.sizes(), like_name);
    arguments_.writable(out, name);
  }

  /// The columns that all members have alike, for signature and plan.
  void set_columns(std::vector<TeamColumn> columns) {
    columns_ = std::move(columns);
    signature_.tensors = static_cast<std::uint32_t>(columns_.size());
    signature_.dtype = columns_.front().dtype;
    for (const TeamColumn& column : columns_) {
      signature_.elements += column.elements;
      signature_.shape =
          mixed(mixed(signature_.shape, column.elements), static_cast<std::uint64_t>(column.dtype));
    }
    inputs_.resize(locals() * columns_.size());
    outputs_.resize(locals() * columns_.size());
  }
  [[nodiscard]] std::span<const TeamColumn> columns() const noexcept { return columns_; }

  void set_input(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name) {
    inputs_[own_member * columns_.size() + column] = packing_.input(tensor, *contiguous_layout(tensor), name);
  }
  void set_output(std::size_t own_member, std::size_t column, const Tensor& tensor, const Name& name) {
    outputs_[own_member * columns_.size() + column] =
        packing_.output(tensor, *contiguous_layout(tensor), name, stream(own_member));
  }
  /// Bytes that stay on a member: queued before the call's transfers.
  void copy_locally(std::size_t own_member, const backend::Copy2D& copy) {
    if (copy.target != copy.source && copy.row_bytes > 0 && copy.rows > 0)
      local_copies_.push_back({own_member, copy});
  }
  [[nodiscard]] std::byte* input_address(std::size_t own_member) const {
    return address_of(inputs_[own_member * columns_.size()]);
  }
  [[nodiscard]] std::byte* output_address(std::size_t own_member) const {
    return address_of(outputs_[own_member * columns_.size()]);
  }

  void post() { sequence_ = team_.post(signature_); }

  /// A whole call: `parts` of own members, and the root's `whole`, along `dim`.
  void cut_apart(const Tensor& whole, TensorList parts, int dim) {
    cut(whole, "tensor", parts, "out", dim, true);
  }
  void join(TensorList parts, const Tensor& whole, int dim) {
    cut(whole, "out", parts, "tensors", dim, false);
  }

  /// Plans, or finds the plan of an earlier call with the same columns, root and `more` numbers, and
  /// enqueues.
  void launch(const std::function<void(TeamProblem&)>& describe, std::span<const std::uint64_t> more = {}) {
    // Before anything is queued: what is queued keeps its memory even if the rest fails.
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Stream used = stream(i / columns_.size());
      for (const Tensor* tensor : {&inputs_[i], &outputs_[i]}) {
        if (tensor->defined()) tensor->record_stream(used);
      }
    }
    try {
      for (const auto& [member, copy] : local_copies_) impl_.runtime_.backend().copy(streams_[member], copy);
      impl_.launcher_.launch(sequence_, *plan(describe, more), addresses(), streams_);
      packing_.unpack();
    } catch (const Error& error) {
      // The others rely on this rank's part.
      team_.abort(error.code(),
                  fmt::format("rank {} failed in {}: {}", team_.rank(), to_string(signature_), error.what()));
      throw;
    }
  }
  void launch_barrier() { impl_.launcher_.launch_barrier(sequence_, streams_); }

 private:
  void cut(const Tensor& whole, std::string_view whole_name, TensorList parts, std::string_view parts_name,
           int dim, bool apart);
  static std::byte* address_of(const Tensor& tensor) {
    return tensor.defined() ? static_cast<std::byte*>(tensor.data()) : nullptr;
  }

  [[nodiscard]] std::vector<std::byte*> addresses() const {
    const std::size_t side = members() * columns_.size();
    std::vector<std::byte*> result(2 * side);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      result[first() * columns_.size() + i] = address_of(inputs_[i]);
      result[side + first() * columns_.size() + i] = address_of(outputs_[i]);
    }
    return result;
  }

  [[nodiscard]] std::shared_ptr<const TeamPlan> plan(const std::function<void(TeamProblem&)>& describe,
                                                     std::span<const std::uint64_t> more) {
    PlanKey key;
    key.add(static_cast<std::uint64_t>(signature_.operation) << 32U | root_);
    for (const TeamColumn& column : columns_) {
      key.add(column.elements);
      key.add(static_cast<std::uint64_t>(column.dtype));
    }
    key.add_all(more);
    if (impl_.plans_.size() >= transport::PlanCache::capacity) impl_.plans_.clear();
    auto& plan = impl_.plans_[key];
    if (plan == nullptr) {
      TeamProblem builder(members(), columns_.size());
      describe(builder);
      builder.share_staging(members() * team_.staging_bytes_per_member());
      plan = transport::ranks::plan_for_team(builder.problem(), team_.rank_of_member());
    }
    return plan;
  }

  Impl& impl_;
  Team& team_;
  const std::lock_guard<std::mutex> lock_;
  Arguments arguments_;
  Packing packing_;
  std::deque<StreamGuard> guards_;
  std::vector<backend::StreamRef> streams_;
  Signature signature_;
  std::size_t root_ = 0;
  std::uint64_t sequence_ = 0;
  std::vector<TeamColumn> columns_;
  std::vector<Tensor> inputs_;   ///< by own member, then column; undefined where there is none
  std::vector<Tensor> outputs_;  ///< likewise
  std::vector<std::pair<std::size_t, backend::Copy2D>> local_copies_;
};

/// Every rank knows the lengths of its own parts alone: the plan is made when all have told theirs.
void Communicator::Impl::Call::cut(const Tensor& whole, std::string_view whole_name, TensorList parts,
                                   std::string_view parts_name, int dim, bool apart) {
  one_per_member(parts.size(), parts_name);
  arguments_.usable(parts[0], Name(parts_name, 0));
  const int along = arguments_.dimension(dim, parts[0].dim());
  const auto at = static_cast<std::size_t>(along);
  std::vector<std::int64_t> sizes(parts[0].sizes().begin(), parts[0].sizes().end());
  const auto check = [&](const Tensor& tensor, const Name& name, std::size_t own_member) {
    on_member(tensor, name, own_member);
    arguments_.same_dtype(tensor, name, parts[0].dtype(), Name(parts_name, 0));
    if (tensor.dim() != parts[0].dim()) {
      arguments_.fail("{} has {} dimensions, expected {} as {}[0]", name, tensor.dim(), parts[0].dim(),
                      parts_name);
    }
    sizes[at] = tensor.size(along);
    arguments_.same_sizes(tensor, name, sizes, fmt::format("{}[0] outside dimension {}", parts_name, along));
  };
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check(parts[i], Name(parts_name, i), i);
    if (apart) arguments_.writable(parts[i], Name(parts_name, i));
    signature_.own[i] = static_cast<std::uint64_t>(parts[i].size(along));
  }
  const std::optional<std::size_t> root = own(root_);
  if (root) {
    check(whole, whole_name, *root);
    if (!apart) arguments_.writable(whole, whole_name);
    const Named whole_named{whole_name, std::span(&whole, 1), -2};
    const Named parts_named{parts_name, parts};
    require_disjoint(arguments_, std::span(apart ? &whole_named : &parts_named, 1),
                     std::span(apart ? &parts_named : &whole_named, 1), InPlace::forbidden);
  }

  sizes[at] = 1;
  std::uint64_t elements = 1;
  for (const std::int64_t size : sizes) {
    elements *= static_cast<std::uint64_t>(size);
    signature_.shape = mixed(signature_.shape, static_cast<std::uint64_t>(size));
  }
  set_columns({{elements, parts[0].dtype()}});
  signature_.dim = static_cast<std::int16_t>(along);
  const auto set = [&](bool is_input, std::size_t own_member, const Tensor& tensor, const Name& name) {
    is_input ? set_input(own_member, 0, tensor, name) : set_output(own_member, 0, tensor, name);
  };
  for (std::size_t i = 0; i < parts.size(); ++i) set(!apart, i, parts[i], Name(parts_name, i));
  if (root) set(apart, *root, whole, whole_name);
  post();

  const std::vector<std::uint64_t> lengths = team_.agree(sequence_);
  std::vector<std::uint64_t> starts;
  std::uint64_t total = 0;
  for (const std::uint64_t length : lengths) {
    starts.push_back(total);
    total += length;
  }
  if (root && total != static_cast<std::uint64_t>(whole.size(along))) {
    team_.abort(
        ErrorCode::invalid_argument,
        fmt::format("{} #{}: the members' {} are {} long in all along dimension {}, {} on root {} is {}",
                    transport::ranks::name_of(signature_.operation), sequence_, parts_name, total, along,
                    whole_name, root_, whole.size(along)));
    team_.require_running();
  }

  const collectives::Cut geometry = collectives::cut_along(*contiguous_layout(parts[0]), along);
  const auto bytes_of = [&](std::uint64_t length) { return length * geometry.slab_bytes; };
  const std::uint64_t whole_pitch = bytes_of(total);
  if (root) {
    const std::uint64_t part_pitch = bytes_of(lengths[root_]);
    backend::Copy2D copy{.target = output_address(*root),
                         .target_pitch = part_pitch,
                         .source = input_address(*root),
                         .source_pitch = part_pitch,
                         .row_bytes = part_pitch,
                         .rows = geometry.rows};
    const std::uint64_t start = bytes_of(starts[root_]);
    if (apart) {
      copy.source += start;
      copy.source_pitch = whole_pitch;
    } else {
      copy.target += start;
      copy.target_pitch = whole_pitch;
    }
    copy_locally(*root, copy);
  }
  launch(
      [&](TeamProblem& builder) {
        for (std::size_t member = 0; member < builder.members(); ++member) {
          const std::uint64_t part_pitch = bytes_of(lengths[member]);
          const std::uint64_t start = bytes_of(starts[member]);
          if (member == root_) continue;
          const bool is_all = part_pitch == whole_pitch;
          const std::uint64_t row_bytes = is_all ? part_pitch * geometry.rows : part_pitch;
          const std::uint64_t rows = is_all ? 1 : geometry.rows;
          if (apart) {
            builder.rows(builder.input(root_, 0, start), whole_pitch, builder.output(member, 0), part_pitch,
                         row_bytes, rows);
          } else {
            builder.rows(builder.input(member, 0), part_pitch, builder.output(root_, 0, start), whole_pitch,
                         row_bytes, rows);
          }
        }
      },
      lengths);
}

Communicator::Communicator(Exchange& exchange, const CommunicatorOptions& options)
    : impl_(std::make_unique<Impl>(exchange, options)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept {
  return impl_->team().rank();
}
int Communicator::rank_count() const noexcept {
  return impl_->team().rank_count();
}
int Communicator::member_count() const noexcept {
  return static_cast<int>(impl_->team().member_count());
}
int Communicator::first_member() const noexcept {
  return static_cast<int>(impl_->team().first_local());
}
const std::vector<Device>& Communicator::devices() const noexcept {
  return impl_->devices();
}

void Communicator::broadcast(TensorList tensors, int root, StreamList streams) {
  Impl::Call call(*impl_, Operation::broadcast, streams);
  call.set_root(root);
  call.one_per_member(tensors.size(), "tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    call.check_output(tensors[i], Name("tensors", i), i, tensors[0], "tensors[0]");
  }
  call.set_columns(columns_of(tensors.first(1)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (call.own(call.root()) == i) {
      call.set_input(i, 0, tensors[i], Name("tensors", i));
    } else {
      call.set_output(i, 0, tensors[i], Name("tensors", i));
    }
  }
  call.post();
  call.launch([&](TeamProblem& builder) {
    builder.flow(builder.input(call.root(), 0), builder.other_outputs(call.root(), 0),
                 call.columns()[0].bytes());
  });
}

void Communicator::broadcast_coalesced(TensorLists tensors, int root, StreamList streams) {
  Impl::Call call(*impl_, Operation::broadcast_coalesced, streams);
  call.set_root(root);
  call.check_lists(tensors, "tensors");
  call.set_columns(columns_of(tensors[0]));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t t = 0; t < tensors[i].size(); ++t) {
      const Name name("tensors", i, t);
      if (call.own(call.root()) == i) {
        call.set_input(i, t, tensors[i][t], name);
      } else {
        call.arguments().writable(tensors[i][t], name);
        call.set_output(i, t, tensors[i][t], name);
      }
    }
  }
  call.post();
  call.launch([&](TeamProblem& builder) {
    for (std::size_t t = 0; t < call.columns().size(); ++t) {
      builder.flow(builder.input(call.root(), t), builder.other_outputs(call.root(), t),
                   call.columns()[t].bytes());
    }
  });
}

namespace {

/// Lists of one tensor, for the forms that share their checks with coalesced ones.
std::vector<std::vector<Tensor>> as_lists(TensorList tensors) {
  std::vector<std::vector<Tensor>> lists;
  for (const Tensor& tensor : tensors) lists.push_back({tensor});
  return lists;
}

/// Inputs and outputs of sums: lists alike on all members; outputs where `wants_output` says.
template <class Call, class WantsOutput>
void set_sum_operands(Call& call, TensorLists inputs, TensorLists out, WantsOutput wants_output) {
  call.check_lists(inputs, "inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!wants_output(i)) continue;
    if (out.size() <= i) {
      call.arguments().fail("out has {} entries, expected one per own member, {}", out.size(), call.locals());
    }
    if (out[i].size() != inputs[0].size()) {
      call.arguments().fail("out[{}] has {} tensors, expected {} as inputs[0]", i, out[i].size(),
                            inputs[0].size());
    }
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      call.check_output(out[i][t], Name("out", i, t), i, inputs[0][t], Name("inputs", 0, t));
    }
    const Named given{"inputs", inputs[i], static_cast<int>(i)};
    const Named outputs{"out", out[i], static_cast<int>(i)};
    require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::same_index);
  }
  call.set_columns(columns_of(inputs[0]));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      call.set_input(i, t, inputs[i][t], Name("inputs", i, t));
      if (wants_output(i)) call.set_output(i, t, out[i][t], Name("out", i, t));
    }
  }
}

template <class Call>
void reduce_to_root(Call& call, TensorLists inputs, TensorLists out, int root) {
  call.set_root(root);
  set_sum_operands(call, inputs, out, [&](std::size_t i) { return call.own(call.root()) == i; });
  call.post();
  call.launch([&](TeamProblem& builder) {
    for (std::size_t t = 0; t < call.columns().size(); ++t) {
      const TeamColumn& column = call.columns()[t];
      builder.sum(t, column, 0, column.elements, builder.output(call.root(), t));
    }
  });
}

template <class Call>
void reduce_to_all(Call& call, TensorLists inputs, TensorLists out) {
  if (out.size() != call.locals()) {
    call.arguments().fail("out has {} entries, expected one per own member, {}", out.size(), call.locals());
  }
  set_sum_operands(call, inputs, out, [](std::size_t) { return true; });
  call.post();
  call.launch([&](TeamProblem& builder) { collectives::describe_shared_sums(builder, call.columns()); });
}

}  // namespace

void Communicator::reduce_add(TensorList inputs, TensorList out, int root, StreamList streams) {
  Impl::Call call(*impl_, Operation::reduce_add, streams);
  reduce_to_root(call, as_lists(inputs), as_lists(out), root);
}

void Communicator::reduce_add_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams) {
  Impl::Call call(*impl_, Operation::reduce_add_coalesced, streams);
  reduce_to_root(call, inputs, out, root);
}

void Communicator::all_reduce_add(TensorList inputs, TensorList out, StreamList streams) {
  Impl::Call call(*impl_, Operation::all_reduce_add, streams);
  reduce_to_all(call, as_lists(inputs), as_lists(out));
}

void Communicator::all_reduce_add_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  Impl::Call call(*impl_, Operation::all_reduce_add_coalesced, streams);
  reduce_to_all(call, inputs, out);
}

void Communicator::all_gather(TensorList inputs, TensorList out, StreamList streams) {
  Impl::Call call(*impl_, Operation::all_gather, streams);
  call.check_lists(as_lists(inputs), "inputs");
  call.one_per_member(out.size(), "out");
  const std::int64_t elements = inputs[0].numel();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name("out", i);
    call.on_member(out[i], name, i);
    call.arguments().same_dtype(out[i], name, inputs[0].dtype(), "inputs[0]");
    call.arguments().writable(out[i], name);
    if (out[i].numel() != elements * static_cast<std::int64_t>(call.members())) {
      call.arguments().fail("{} has {} elements, expected {}: {} from each of {} members", name,
                            out[i].numel(), elements * static_cast<std::int64_t>(call.members()), elements,
                            call.members());
    }
  }
  call.set_columns(columns_of(inputs.first(1)));
  const std::uint64_t bytes = call.columns()[0].bytes();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.set_input(i, 0, inputs[i], Name("inputs", i));
    call.set_output(i, 0, out[i], Name("out", i));
    call.copy_locally(i, {.target = call.output_address(i) + (call.first() + i) * bytes,
                          .source = call.input_address(i),
                          .row_bytes = bytes});
  }
  call.post();
  call.launch([&](TeamProblem& builder) {
    for (std::size_t member = 0; member < builder.members(); ++member) {
      builder.flow(builder.input(member, 0), builder.other_outputs(member, 0, member * bytes), bytes);
    }
  });
}

void Communicator::reduce_scatter_add(TensorList inputs, TensorList out, StreamList streams) {
  Impl::Call call(*impl_, Operation::reduce_scatter_add, streams);
  call.check_lists(as_lists(inputs), "inputs");
  call.one_per_member(out.size(), "out");
  const std::int64_t elements = out[0].defined() ? out[0].numel() : 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name("out", i);
    call.check_output(out[i], name, i, out[0], "out[0]");
    call.arguments().same_dtype(out[i], name, inputs[0].dtype(), "inputs[0]");
    const Named given{"inputs", inputs.subspan(i, 1), -2};
    const Named outputs{"out", out.subspan(i, 1), -2};
    require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::forbidden);
  }
  if (inputs[0].numel() != elements * static_cast<std::int64_t>(call.members())) {
    call.arguments().fail("inputs[0] has {} elements, expected {}: {} for each of {} members",
                          inputs[0].numel(), elements * static_cast<std::int64_t>(call.members()), elements,
                          call.members());
  }
  call.set_columns(columns_of(inputs.first(1)));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.set_input(i, 0, inputs[i], Name("inputs", i));
    call.set_output(i, 0, out[i], Name("out", i));
  }
  call.post();
  const auto count = static_cast<std::uint64_t>(elements);
  call.launch([&](TeamProblem& builder) {
    for (std::size_t member = 0; member < builder.members(); ++member) {
      builder.sum(0, call.columns()[0], member * count, count, builder.output(member, 0));
    }
  });
}

void Communicator::scatter(const Tensor& tensor, TensorList out, int root, int dim, StreamList streams) {
  Impl::Call call(*impl_, Operation::scatter, streams);
  call.set_root(root);
  call.cut_apart(tensor, out, dim);
}

void Communicator::gather(TensorList tensors, const Tensor& out, int root, int dim, StreamList streams) {
  Impl::Call call(*impl_, Operation::gather, streams);
  call.set_root(root);
  call.join(tensors, out, dim);
}

void Communicator::barrier(StreamList streams) {
  Impl::Call call(*impl_, Operation::barrier, streams);
  call.post();
  call.launch_barrier();
}

void Communicator::abort(std::string_view reason) noexcept {
  impl_->team().abort(ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank(), reason));
}
bool Communicator::is_running() const noexcept {
  return !impl_->team().abort_word().is_set();
}
std::string Communicator::flight_record() const {
  return impl_->team().record();
}

}  // namespace tutti
