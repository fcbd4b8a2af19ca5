// SPDX-License-Identifier: Apache-2.0
#include "prepare.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

Tensor make_aligned_tensor(const TensorSpec& spec, const Case& what, int member) {
  const std::size_t own = what.members.own_index(member);
  if (what.memory != nullptr) return what.memory->make(spec.sizes, *spec.dtype, own);
  return empty(spec.sizes, {.dtype = *spec.dtype, .device = what.members.own[own]});
}

Tensor make_tensor(const TensorSpec& spec, const Case& what, int member) {
  if (what.first_element == 0) return make_aligned_tensor(spec, what, member);
  const std::int64_t elements = Layout(*spec.dtype, spec.sizes).numel();
  return make_aligned_tensor({{elements + what.first_element}, spec.dtype}, what, member)
      .narrow(0, what.first_element, elements)
      .view(spec.sizes);
}

std::vector<Tensor> make_list(const std::vector<TensorSpec>& specs, const Case& what, int member) {
  std::vector<Tensor> list;
  for (const TensorSpec& spec : specs) list.push_back(make_tensor(spec, what, member));
  return list;
}

/// A list for every own member. Lists of many tensors are laid out as a program gets them that replicates its
/// parameters: in one process by `broadcast_coalesced`, between processes by every process for itself.
Lists make_lists(const std::vector<TensorSpec>& specs, const Case& what) {
  const bool replicates = specs.size() > 1 && what.members.communicator == nullptr &&
                          what.memory == nullptr && what.first_element == 0;
  const std::vector<Tensor> originals =
      replicates ? make_list(specs, what, what.root) : std::vector<Tensor>();
  Lists lists;
  for (std::size_t own = 0; own < what.members.own.size(); ++own) {
    const int member = what.members.number_of(own);
    if (replicates && member != what.root) {
      // Staged works on every topology and needs no communicator.
      lists.push_back(broadcast_coalesced(originals, {what.members.own[own]}, default_buffer_size,
                                          {.transport = TransportKind::staged})[0]);
    } else {
      lists.push_back(make_list(specs, what, member));
    }
  }
  return lists;
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

Call call_of(const Case& what, const std::vector<TensorSpec>& specs) {
  Call call;
  call.root = what.root;
  call.devices = what.members.own;
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

void add_result(Call& call, std::size_t list, Placement placement, const Tensor& tensor,
                const Content& content) {
  if (placement == Placement::returned) {
    call.expect_output(list, content);
  } else {
    call.add_output(list, tensor, content);
  }
}

/// One member's chunk of the whole.
struct Chunk {
  std::int64_t start = 0;
  std::int64_t length = 0;
};
Chunk chunk_of(std::int64_t size, int index, int count) {
  const std::int64_t most = (size + count - 1) / count;
  const std::int64_t start = std::min(size, most * index);
  return {start, std::min(most, size - start)};
}

/// A tensor of the payload, flat, as parts of all members.
class Payload {
 public:
  Payload(const Case& what, Parts parts, const TensorSpec& tensor)
      : members_(what.members.count), parts_(parts) {
    const std::int64_t elements = Layout(*tensor.dtype, tensor.sizes).numel();
    whole_ = {{parts == Parts::equal ? elements / members_ * members_ : elements}, tensor.dtype};
  }
  /// One-dimensional.
  [[nodiscard]] const TensorSpec& whole() const { return whole_; }
  [[nodiscard]] std::int64_t elements() const { return whole_.sizes.front(); }
  [[nodiscard]] TensorSpec part(int index) const { return {{size(index)}, whole_.dtype}; }
  [[nodiscard]] std::int64_t start(int index) const {
    if (parts_ == Parts::equal) return elements() / members_ * index;
    // Lengths of 1, 2, … in all, rounded where they begin; quotient and remainder, so that nothing overflows.
    const std::int64_t units = std::int64_t{members_} * (members_ + 1) / 2;
    const std::int64_t before = std::int64_t{index} * (index + 1) / 2;
    return elements() / units * before + elements() % units * before / units;
  }
  [[nodiscard]] std::int64_t size(int index) const { return start(index + 1) - start(index); }
  [[nodiscard]] std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> all;
    for (int index = 0; index < members_; ++index) all.push_back(size(index));
    return all;
  }
  /// What an exchange's member sends to others: the part for itself comes first, then that for the next one.
  [[nodiscard]] std::int64_t sent(int from, int to) const { return size((to - from + members_) % members_); }

 private:
  int members_;
  Parts parts_;
  TensorSpec whole_;
};

/// Of one tensor, or of each of a list, whose parts are equal.
struct Cut {
  Parts parts = Parts::equal;
  bool coalesced = false;
};

std::vector<Payload> payloads_of(const Case& what, Cut cut) {
  std::vector<Payload> payloads;
  for (const TensorSpec& tensor : payload_tensors(what, cut.coalesced))
    payloads.emplace_back(what, cut.parts, tensor);
  return payloads;
}
Call call_of(const Case& what, const std::vector<Payload>& payloads) {
  std::vector<TensorSpec> wholes;
  for (const Payload& payload : payloads) wholes.push_back(payload.whole());
  return call_of(what, wholes);
}

/// A source on the root and a copy for every member. In place, the root's copy is its source.
Call prepare_broadcast(const Case& what, Placement placement, bool coalesced) {
  const std::vector<TensorSpec> specs = payload_tensors(what, coalesced);
  Call call = call_of(what, specs);
  const bool has_root = what.members.owns(what.root);
  const Lists copies = placement == Placement::returned ? Lists() : make_lists(specs, what);
  std::vector<Tensor> sources;
  if (has_root) {
    sources = placement == Placement::in_place ? copies[what.members.own_index(what.root)]
                                               : make_list(specs, what, what.root);
  }
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const Content content = whole_content(specs[t], what, t, Pattern::bits);
    if (has_root) call.add_input(0, sources[t], content);
    for (std::size_t own = 0; own < what.members.own.size(); ++own) {
      const std::size_t list = coalesced ? own : 0;
      if (placement == Placement::in_place && what.members.number_of(own) == what.root) {
        call.add_aliasing_output(list, sources[t], content);
      } else {
        add_result(call, list, placement, placement == Placement::returned ? Tensor() : copies[own][t],
                   content);
      }
    }
  }
  return call;
}

/// An input from every member; the sum on the root. In place, it is the root's input.
Call prepare_reduce(const Case& what, Placement placement, bool coalesced) {
  const std::vector<TensorSpec> specs = payload_tensors(what, coalesced);
  Call call = call_of(what, specs);
  call.repeatable = placement != Placement::in_place;  // there every call adds to the last one's sum
  const Lists inputs = make_lists(specs, what);
  for (std::size_t t = 0; t < specs.size(); ++t) {
    for (std::size_t own = 0; own < inputs.size(); ++own) {
      call.add_input(coalesced ? own : 0, inputs[own][t],
                     summand(specs[t], what, t, what.members.number_of(own)));
    }
    if (!what.members.owns(what.root)) continue;
    const Content sum = sum_of_all(specs[t], what, t);
    // A communicator takes the lists of own members, of which only the root's is looked at.
    const std::size_t list = what.members.communicator == nullptr ? 0 : what.members.own_index(what.root);
    if (placement == Placement::in_place) {
      call.add_aliasing_output(list, inputs[what.members.own_index(what.root)][t], sum);
    } else {
      add_result(call, list, placement,
                 placement == Placement::returned ? Tensor() : make_tensor(specs[t], what, what.root), sum);
    }
  }
  return call;
}

/// An input from every member; the sum on each. In place, it is the member's input.
Call prepare_all_reduce(const Case& what, Placement placement, bool coalesced) {
  const std::vector<TensorSpec> specs = payload_tensors(what, coalesced);
  Call call = call_of(what, specs);
  call.repeatable = placement != Placement::in_place;
  const Lists inputs = make_lists(specs, what);
  const Lists sums = placement == Placement::out_of_place ? make_lists(specs, what) : inputs;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const Content sum = sum_of_all(specs[t], what, t);
    for (std::size_t own = 0; own < inputs.size(); ++own) {
      const std::size_t list = coalesced ? own : 0;
      call.add_input(list, inputs[own][t], summand(specs[t], what, t, what.members.number_of(own)));
      if (placement == Placement::in_place) {
        call.add_aliasing_output(list, inputs[own][t], sum);
      } else {
        add_result(call, list, placement, sums[own][t], sum);
      }
    }
  }
  return call;
}

/// The two ends of scatter and gather.
enum class Whole : std::uint8_t { input, output };
/// A whole tensor on the root and its chunks, one per member: equal parts along a dimension, the last ones
/// smaller or empty. Chunks may not share memory with the whole: there is no in-place form.
Call prepare_chunks(const Case& what, Placement placement, Whole whole) {
  const TensorSpec spec = payload_tensors(what, false).front();
  const Content content = whole_content(spec, what, 0, Pattern::bits);
  Call call = call_of(what, {spec});
  const auto add = [&](bool is_input, const TensorSpec& shape, const Content& values, int member) {
    const bool is_returned = !is_input && placement == Placement::returned;
    const Tensor tensor = is_returned ? Tensor() : make_tensor(shape, what, member);
    if (is_input) {
      call.add_input(0, tensor, values);
    } else {
      add_result(call, 0, placement, tensor, values);
    }
  };
  for (int member = 0; member < what.members.count; ++member) {
    const Chunk chunk = chunk_of(spec.sizes.back(), member, what.members.count);
    TensorSpec shape = spec;
    shape.sizes.back() = chunk.length;
    call.part_bytes.push_back(Layout(*shape.dtype, shape.sizes).nbytes());
    if (!what.members.owns(member)) continue;
    add(whole == Whole::output, shape, columns_of(content, chunk.start, chunk.length, spec.sizes.back()),
        member);
  }
  if (what.members.owns(what.root)) add(whole == Whole::input, spec, content, what.root);
  return call;
}

/// A part from every member; the whole on each. In place, the part lies there already.
Call prepare_all_gather(const Case& what, Placement placement, Cut cut) {
  const std::vector<Payload> payloads = payloads_of(what, cut);
  Call call = call_of(what, payloads);
  if (cut.parts == Parts::unequal) call.sizes = payloads.front().sizes();
  for (std::size_t t = 0; t < payloads.size(); ++t) {
    const Payload& payload = payloads[t];
    const Content content = whole_content(payload.whole(), what, t, Pattern::bits);
    for (std::size_t own = 0; own < what.members.own.size(); ++own) {
      const std::size_t list = cut.coalesced ? own : 0;
      const int member = what.members.number_of(own);
      const bool is_returned = placement == Placement::returned;
      const Tensor out = is_returned ? Tensor() : make_tensor(payload.whole(), what, member);
      const std::int64_t start = payload.start(member);
      const std::int64_t elements = payload.size(member);
      const Tensor input = placement == Placement::in_place ? out.narrow(0, start, elements)
                                                            : make_tensor(payload.part(member), what, member);
      call.add_input(list, input, columns_of(content, start, elements, payload.elements()));
      add_result(call, list, placement, out, content);
    }
  }
  return call;
}

/// A whole from every member; a part of the sum for each.
Call prepare_reduce_scatter(const Case& what, Placement placement, Cut cut) {
  const std::vector<Payload> payloads = payloads_of(what, cut);
  Call call = call_of(what, payloads);
  if (cut.parts == Parts::unequal) call.sizes = payloads.front().sizes();
  call.repeatable = placement != Placement::in_place;
  for (std::size_t t = 0; t < payloads.size(); ++t) {
    const Payload& payload = payloads[t];
    for (std::size_t own = 0; own < what.members.own.size(); ++own) {
      const std::size_t list = cut.coalesced ? own : 0;
      const int member = what.members.number_of(own);
      const std::int64_t start = payload.start(member);
      const std::int64_t elements = payload.size(member);
      const Tensor input = make_tensor(payload.whole(), what, member);
      const Content sum =
          columns_of(sum_of_all(payload.whole(), what, t), start, elements, payload.elements());
      call.add_input(list, input, summand(payload.whole(), what, t, member));
      if (placement == Placement::in_place) {
        call.add_aliasing_output(list, input.narrow(0, start, elements), sum);
      } else {
        const bool is_returned = placement == Placement::returned;
        add_result(call, list, placement,
                   is_returned ? Tensor() : make_tensor(payload.part(member), what, member), sum);
      }
    }
  }
  return call;
}

/// A whole from every member, cut into parts for all, the shortest for itself; as much for each. In place,
/// that is the member's input.
Call prepare_all_to_all(const Case& what, Placement placement, Cut cut) {
  const std::vector<Payload> payloads = payloads_of(what, cut);
  Call call = call_of(what, payloads);
  call.repeatable = placement != Placement::in_place;
  for (std::size_t t = 0; t < payloads.size(); ++t) {
    const Payload& payload = payloads[t];
    // Every member's input is a part of one array.
    const Content content = whole_content(payload.whole(), what, t, Pattern::bits);
    const auto values = [&](int from, std::int64_t start, std::int64_t length) {
      return columns_of(content, from * payload.elements() + start, length, payload.elements());
    };
    for (std::size_t own = 0; own < what.members.own.size(); ++own) {
      const std::size_t list = cut.coalesced ? own : 0;
      const int member = what.members.number_of(own);
      const Tensor input = make_tensor(payload.whole(), what, member);
      const bool is_returned = placement == Placement::returned;
      const Tensor out =
          placement == Placement::out_of_place ? make_tensor(payload.whole(), what, member) : input;
      std::vector<Buffer> pieces;
      std::vector<std::pair<Content, std::int64_t>> expected;
      std::vector<std::int64_t> sent;
      std::vector<std::int64_t> received;
      std::int64_t filled = 0;
      for (int other = 0; other < what.members.count; ++other) {
        sent.push_back(payload.sent(member, other));
        received.push_back(payload.sent(other, member));
        std::int64_t start = 0;  // of what comes from the other one, in its input
        for (int before = 0; before < member; ++before) start += payload.sent(other, before);
        const Content piece = values(other, start, received.back());
        pieces.push_back({out.narrow(0, filled, received.back()), piece});
        expected.emplace_back(piece, received.back());
        filled += received.back();
      }
      call.add_input(list, input, values(member, 0, payload.elements()));
      if (is_returned) {
        call.expect_output_in_pieces(list, expected);
      } else {
        call.add_output_in_pieces(list, out, pieces, placement == Placement::in_place);
      }
      if (cut.parts == Parts::equal) continue;
      call.input_sizes.push_back(std::move(sent));
      call.out_sizes.push_back(std::move(received));
    }
  }
  return call;
}

}  // namespace

Call prepare_collective(Collective collective, const Case& what, Placement placement, Parts parts) {
  const CollectiveTraits& traits = traits_of(collective);
  const Cut cut{.parts = parts, .coalesced = traits.takes_lists};
  switch (traits.travels_as) {
    case Collective::broadcast:
      return prepare_broadcast(what, placement, cut.coalesced);
    case Collective::reduce_add:
      return prepare_reduce(what, placement, cut.coalesced);
    case Collective::all_reduce_add:
      return prepare_all_reduce(what, placement, cut.coalesced);
    case Collective::scatter:
      return prepare_chunks(what, placement, Whole::input);
    case Collective::gather:
      return prepare_chunks(what, placement, Whole::output);
    case Collective::all_gather:
      return prepare_all_gather(what, placement, cut);
    case Collective::reduce_scatter_add:
      return prepare_reduce_scatter(what, placement, cut);
    case Collective::all_to_all:
      return prepare_all_to_all(what, placement, cut);
    default:
      throw Error(ErrorCode::internal, fmt::format("{} has no buffers", name_of(collective)));
  }
}

Call prepare_copy(const Case& what) {
  const TensorSpec spec = payload_tensors(what, false).front();
  const Content content = whole_content(spec, what, 0, Pattern::bits);
  Call call = call_of(what, {spec});
  call.partner = what.partner;
  call.add_input(0, make_tensor(spec, what, what.root), content);
  call.add_output(0, make_tensor(spec, what, what.partner), content);
  return call;
}

Call prepare_around(const Case& what) {
  const TensorSpec spec = payload_tensors(what, false).front();
  Call call = call_of(what, {spec});
  // Every member's input is a part of one array.
  const Content content = whole_content(spec, what, 0, Pattern::bits);
  const auto values = [&](int from) {
    return columns_of(content, from * call.count, call.count, call.count);
  };
  for (std::size_t own = 0; own < what.members.own.size(); ++own) {
    const int member = what.members.number_of(own);
    call.add_input(0, make_tensor(spec, what, member), values(member));
    call.add_output(0, make_tensor(spec, what, member), values(what.members.before(member)));
  }
  return call;
}

Call prepare_nothing(const Case& what) {
  Call call = call_of(what, std::vector<TensorSpec>());
  call.inputs.resize(1);
  call.outputs.resize(1);
  return call;
}

}  // namespace tutti::perf
