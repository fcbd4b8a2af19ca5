// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"

#include "perf/operations/operands.hpp"
#include "perf/operations/prepare_parts.hpp"
#include "tutti/error.hpp"

#include <vector>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// A source on the root and a copy for every member. In place, the root's copy is its source.
Call prepare_broadcast(const Case& what, Placement placement, bool coalesced) {
  const std::vector<TensorSpec> specs = payload_tensors(what, coalesced);
  Call call = call_of(what, specs);
  const bool has_root = what.members.is_local(what.root);
  const Lists copies = placement == Placement::returned ? Lists() : make_lists(specs, what);
  std::vector<Tensor> sources;
  if (has_root) {
    sources = placement == Placement::in_place ? copies[what.members.local_of(what.root)]
                                               : make_list(specs, what, what.root);
  }
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const Content content = whole_content(specs[t], what, t, Pattern::bits);
    if (has_root) call.add_input(0, sources[t], content);
    for (std::size_t local = 0; local < what.members.local.size(); ++local) {
      const std::size_t list = coalesced ? local : 0;
      if (placement == Placement::in_place && what.members.number_of(local) == what.root) {
        call.add_aliasing_output(list, sources[t], content);
      } else {
        add_result(call, list, placement, placement == Placement::returned ? Tensor() : copies[local][t],
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
    for (std::size_t local = 0; local < inputs.size(); ++local) {
      call.add_input(coalesced ? local : 0, inputs[local][t],
                     summand(specs[t], what, t, what.members.number_of(local)));
    }
    if (!what.members.is_local(what.root)) continue;
    const Content sum = sum_of_all(specs[t], what, t);
    // A communicator takes the lists of local members, of which only the root's is looked at.
    const std::size_t list = what.members.communicator == nullptr ? 0 : what.members.local_of(what.root);
    if (placement == Placement::in_place) {
      call.add_aliasing_output(list, inputs[what.members.local_of(what.root)][t], sum);
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
    for (std::size_t local = 0; local < inputs.size(); ++local) {
      const std::size_t list = coalesced ? local : 0;
      call.add_input(list, inputs[local][t], summand(specs[t], what, t, what.members.number_of(local)));
      if (placement == Placement::in_place) {
        call.add_aliasing_output(list, inputs[local][t], sum);
      } else {
        add_result(call, list, placement, sums[local][t], sum);
      }
    }
  }
  return call;
}

}  // namespace

Call prepare_collective(CollectiveForm form, const Case& what, Placement placement, Parts parts) {
  const Cut cut{.parts = parts, .coalesced = form.takes_lists};
  switch (form.collective) {
    case Collective::broadcast:
      return prepare_broadcast(what, placement, cut.coalesced);
    case Collective::reduce:
      return prepare_reduce(what, placement, cut.coalesced);
    case Collective::all_reduce:
      return prepare_all_reduce(what, placement, cut.coalesced);
    case Collective::scatter:
      return prepare_chunks(what, placement, Whole::input);
    case Collective::gather:
      return prepare_chunks(what, placement, Whole::output);
    case Collective::all_gather:
      return prepare_all_gather(what, placement, cut);
    case Collective::reduce_scatter:
      return prepare_reduce_scatter(what, placement, cut);
    case Collective::all_to_all:
      return prepare_all_to_all(what, placement, cut);
    default:
      throw Error(ErrorCode::internal, fmt::format("{} has no buffers", name_of(form)));
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
  for (std::size_t local = 0; local < what.members.local.size(); ++local) {
    const int member = what.members.number_of(local);
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
