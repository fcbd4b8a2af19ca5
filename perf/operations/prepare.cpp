// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/operation.hpp"
#include "perf/operations/payload.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::perf {
namespace {

Tensor make_aligned_tensor(const TensorSpec& spec, const Case& what, std::size_t local) {
  if (what.memory != nullptr) return what.memory->make(spec.sizes, *spec.dtype, local);
  return empty(spec.sizes, {.dtype = *spec.dtype, .device = what.members.local[local]});
}

/// Makes a tensor of a local member where the case wants it.
Tensor make_tensor(const TensorSpec& spec, const Case& what, std::size_t local) {
  if (what.first_element == 0) return make_aligned_tensor(spec, what, local);
  const std::int64_t elements = Layout(*spec.dtype, spec.sizes).numel();
  return make_aligned_tensor({{elements + what.first_element}, spec.dtype}, what, local)
      .narrow(0, what.first_element, elements)
      .view(spec.sizes);
}

/// What source `source` holds of tensor `index`, whole; `all_sources` sources may be summed.
Content whole_content(const TensorSpec& spec, const Case& what, std::size_t index, Pattern pattern,
                      int source = 0, int all_sources = 1) {
  // A tensor without elements has no first row either; a row length of one keeps the arithmetic defined.
  const std::int64_t elements = std::max<std::int64_t>(Layout(*spec.dtype, spec.sizes).numel(), 1);
  return {.dtype = *spec.dtype,
          .pattern = pattern,
          .seed = mix_seed(what.seed, index),
          .first_source = source,
          .source_count = 1,
          .all_sources = all_sources,
          .row_length = elements,
          .row_stride = elements,
          .offset = 0};
}

/// What `member` contributes to a sum.
Content summand(const TensorSpec& spec, const Case& what, std::size_t index, int member) {
  Content content = whole_content(spec, what, index, Pattern::integers, member, what.members.count);
  content.reduce_kind = what.reduce_kind;
  content.is_input = true;
  return content;
}

Content sum_of_all(const TensorSpec& spec, const Case& what, std::size_t index) {
  Content sum = summand(spec, what, index, 0);
  sum.source_count = what.members.count;
  sum.is_input = false;
  return sum;
}

/// Elements `start` to `start + length - 1` of every row of `row_length`.
Content columns_of(Content content, std::int64_t start, std::int64_t length, std::int64_t row_length) {
  content.offset = start;
  content.row_length = std::max<std::int64_t>(length, 1);
  content.row_stride = std::max<std::int64_t>(row_length, 1);
  return content;
}

/// A call of the case, whose payload are `specs`, still without tensors.
Call call_of(const Case& what, const std::vector<TensorSpec>& specs) {
  Call call;
  call.root = what.root;
  call.devices = what.members.local;
  call.dim = what.dim;
  call.reduce_kind = what.reduce_kind;
  call.tensors = specs.size();
  for (const TensorSpec& spec : specs) {
    const Layout layout(*spec.dtype, spec.sizes);
    call.bytes += layout.nbytes();
    call.count += layout.numel();
  }
  return call;
}

/// What members give to a collective, or get from it.
struct Side {
  bool is_of_root;  ///< of no other member
  bool is_part;     ///< of what is cut; else all of it
};

/// Prepares one call of a collective. In place, what is smaller is the part of the other where it belongs.
class Preparation {
 public:
  Preparation(CollectiveForm form, const Case& what, Placement placement, Parts parts)
      : what_(what),
        placement_(placement),
        traits_(traits_of(form.collective)),
        takes_lists_(form.takes_lists),
        is_unequal_(parts == Parts::unequal) {
    const bool has_parts = traits_.output == CollectiveOutput::part;
    exchanges_ = has_parts && !traits_.reduces && !traits_.has_root;
    output_ = {.is_of_root = traits_.output == CollectiveOutput::one, .is_part = has_parts && !exchanges_};
    input_ = {.is_of_root = traits_.has_root && !output_.is_of_root,
              .is_part = moves_parts(form.collective) && !has_parts};
    for (const TensorSpec& tensor : payload_tensors(what, takes_lists_))
      payloads_.emplace_back(what.members.count, parts, tensor);
  }

  [[nodiscard]] Call call() {
    std::vector<TensorSpec> wholes;
    for (const Payload& payload : payloads_) wholes.push_back(payload.whole());
    call_ = call_of(what_, wholes);
    call_.repeatable = placement_ != Placement::in_place || !(traits_.reduces || exchanges_);
    make_tensors();
    note_sizes();
    for (std::size_t t = 0; t < payloads_.size(); ++t) {
      for (std::size_t local = 0; local < what_.members.local.size(); ++local) add(t, local);
    }
    return call_;
  }

 private:
  [[nodiscard]] bool is_in_place() const { return placement_ == Placement::in_place; }
  [[nodiscard]] bool has(const Side& side, std::size_t local) const {
    return !side.is_of_root || what_.members.number_of(local) == what_.root;
  }

  /// Makes first what all members have, and of that what is whole: it lies at the same place of every
  /// member's memory.
  void make_tensors() {
    if (input_.is_of_root || (input_.is_part && !output_.is_of_root)) {
      if (placement_ != Placement::returned) outputs_ = made(output_);
      inputs_ = is_in_place() ? within(outputs_, input_) : made(input_);
    } else {
      inputs_ = made(input_);
      if (placement_ != Placement::returned)
        outputs_ = is_in_place() ? within(inputs_, output_) : made(output_);
    }
  }

  /// A list for every local member, empty for those that have none. In one process, lists of many whole
  /// tensors are laid out as a program gets them that replicates its parameters, by `broadcast_coalesced`.
  [[nodiscard]] Lists made(const Side& side) const {
    const bool replicates = !side.is_of_root && !side.is_part && payloads_.size() > 1 &&
                            what_.members.communicator == nullptr && what_.memory == nullptr &&
                            what_.first_element == 0;
    const std::vector<Tensor> originals =
        replicates ? list_of(side, what_.members.local_of(what_.root)) : std::vector<Tensor>();
    Lists lists(what_.members.local.size());
    for (std::size_t local = 0; local < lists.size(); ++local) {
      if (!has(side, local)) continue;
      if (replicates && what_.members.number_of(local) != what_.root) {
        // Staged works on every topology and needs no communicator.
        lists[local] = broadcast_coalesced(originals, {what_.members.local[local]}, default_buffer_size,
                                           {.transport = TransportKind::staged})[0];
      } else {
        lists[local] = list_of(side, local);
      }
    }
    return lists;
  }
  [[nodiscard]] std::vector<Tensor> list_of(const Side& side, std::size_t local) const {
    std::vector<Tensor> list;
    for (const Payload& payload : payloads_) {
      const int member = what_.members.number_of(local);
      list.push_back(make_tensor(side.is_part ? payload.part(member) : payload.whole(), what_, local));
    }
    return list;
  }
  /// The tensors of one side, as parts of the other's.
  [[nodiscard]] Lists within(Lists others, const Side& side) const {
    for (std::size_t local = 0; local < others.size(); ++local) {
      const int member = what_.members.number_of(local);
      for (std::size_t t = 0; t < others[local].size() && side.is_part; ++t)
        others[local][t] = others[local][t].narrow(0, payloads_[t].start(member), payloads_[t].size(member));
    }
    return others;
  }

  void note_sizes() {
    for (int member = 0; member < what_.members.count && traits_.has_own_sizes; ++member) {
      const TensorSpec part = payloads_.front().part(member);
      call_.part_bytes.push_back(Layout(*part.dtype, part.sizes).nbytes());
    }
    if (is_unequal_ && !exchanges_) call_.sizes = payloads_.front().sizes();
    for (std::size_t local = 0; local < what_.members.local.size() && is_unequal_ && exchanges_; ++local) {
      const int member = what_.members.number_of(local);
      std::vector<std::int64_t>& sent = call_.input_sizes.emplace_back();
      std::vector<std::int64_t>& received = call_.out_sizes.emplace_back();
      for (int other = 0; other < what_.members.count; ++other) {
        sent.push_back(payloads_.front().sent(member, other));
        received.push_back(payloads_.front().sent(other, member));
      }
    }
  }

  void add(std::size_t t, std::size_t local) {
    const std::size_t list = takes_lists_ ? local : 0;
    if (has(input_, local))
      call_.add_input(input_.is_of_root ? 0 : list, inputs_[local][t],
                      input_content(t, what_.members.number_of(local)));
    if (!has(output_, local)) return;
    // A communicator takes the lists of local members, of which only the root's is looked at.
    const std::size_t own_list = !output_.is_of_root                                        ? list
                                 : traits_.reduces && what_.members.communicator != nullptr ? local
                                                                                            : 0;
    const bool is_input = is_in_place() && !input_.is_part && has(input_, local);
    call_.add_output(own_list, outputs_.empty() ? Tensor() : outputs_[local][t],
                     output_content(t, what_.members.number_of(local)), is_input);
  }

  [[nodiscard]] Content input_content(std::size_t t, int member) const {
    const Payload& payload = payloads_[t];
    if (traits_.reduces) return summand(payload.whole(), what_, t, member);
    const Content content = whole_content(payload.whole(), what_, t, Pattern::bits);
    if (exchanges_) return exchanged(content, payload, member, 0, payload.length());
    return input_.is_part ? part_of(content, payload, member) : content;
  }
  [[nodiscard]] std::vector<OutputPart> output_content(std::size_t t, int member) const {
    const Payload& payload = payloads_[t];
    const Content content = traits_.reduces ? sum_of_all(payload.whole(), what_, t)
                                            : whole_content(payload.whole(), what_, t, Pattern::bits);
    if (!exchanges_) return {{output_.is_part ? part_of(content, payload, member) : content}};
    std::vector<OutputPart> pieces;
    std::int64_t filled = 0;
    for (int other = 0; other < what_.members.count; ++other) {
      std::int64_t start = 0;  // of what comes from the other one, in its input
      for (int before = 0; before < member; ++before) start += payload.sent(other, before);
      const std::int64_t length = payload.sent(other, member);
      pieces.push_back({exchanged(content, payload, other, start, length), filled, length});
      filled += length;
    }
    return pieces;
  }

  [[nodiscard]] static Content part_of(const Content& content, const Payload& payload, int member) {
    return columns_of(content, payload.start(member), payload.size(member), payload.length());
  }
  /// In an exchange, every member's input is a part of one array.
  [[nodiscard]] static Content exchanged(const Content& content, const Payload& payload, int member,
                                         std::int64_t start, std::int64_t length) {
    return columns_of(content, member * payload.length() + start, length, payload.length());
  }

  const Case& what_;
  Placement placement_;
  const CollectiveTraits& traits_;
  bool takes_lists_;
  bool is_unequal_;
  bool exchanges_;  ///< parts of every member's input go to all, and come from all
  Side input_{};
  Side output_{};
  std::vector<Payload> payloads_;
  Lists inputs_;   ///< of each local member; empty for one that has none
  Lists outputs_;  ///< likewise; none where the call returns them
  Call call_;
};

/// Prepares a collective, by its traits. `parts_are_unequal`: of one that moves flat parts of one tensor.
Call prepare_collective(CollectiveForm form, const Case& what, Placement placement, bool parts_are_unequal) {
  if (!moves_tensors(form.collective)) return call_of(what, {});
  const Parts parts = !moves_parts(form.collective)              ? Parts::none
                      : traits_of(form.collective).has_own_sizes ? Parts::chunks
                      : parts_are_unequal                        ? Parts::unequal
                                                                 : Parts::equal;
  return Preparation(form, what, placement, parts).call();
}

/// A tensor on the root and one on the case's partner.
Call prepare_copy(const Case& what) {
  const TensorSpec spec = payload_tensors(what, false).front();
  const Content content = whole_content(spec, what, 0, Pattern::bits);
  Call call = call_of(what, {spec});
  call.partner = what.partner;
  call.add_input(0, make_tensor(spec, what, what.members.local_of(what.root)), content);
  call.add_output(0, make_tensor(spec, what, what.members.local_of(what.partner)), {{content}});
  return call;
}

/// A tensor from every member for the next one, and one from the one before.
Call prepare_around(const Case& what) {
  const TensorSpec spec = payload_tensors(what, false).front();
  Call call = call_of(what, {spec});
  // Every member's input is a part of one array.
  const Content content = whole_content(spec, what, 0, Pattern::bits);
  const auto values = [&](int from) {
    return columns_of(content, from * call.count, call.count, call.count);
  };
  for (std::size_t local = 0; local < what.members.local.size(); ++local) {
    const int member = what.members.number_of(local);
    call.add_input(0, make_tensor(spec, what, local), values(member));
    call.add_output(0, make_tensor(spec, what, local), {{values(what.members.before(member))}});
  }
  return call;
}

}  // namespace

Call Operation::prepare(const Case& what, Placement placement) const {
  if (is_copy()) return prepare_copy(what);
  if (goes_around()) return prepare_around(what);
  return prepare_collective(*row_.form, what, placement, has_unequal_parts());
}

}  // namespace tutti::perf
