// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/operands.hpp"

#include <algorithm>

namespace tutti::perf {
namespace {

Tensor make_aligned_tensor(const TensorSpec& spec, const Case& what, int member) {
  const std::size_t local = what.members.local_of(member);
  if (what.memory != nullptr) return what.memory->make(spec.sizes, *spec.dtype, local);
  return empty(spec.sizes, {.dtype = *spec.dtype, .device = what.members.local[local]});
}

}  // namespace

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

Lists make_lists(const std::vector<TensorSpec>& specs, const Case& what) {
  const bool replicates = specs.size() > 1 && what.members.communicator == nullptr &&
                          what.memory == nullptr && what.first_element == 0;
  const std::vector<Tensor> originals =
      replicates ? make_list(specs, what, what.root) : std::vector<Tensor>();
  Lists lists;
  for (std::size_t local = 0; local < what.members.local.size(); ++local) {
    const int member = what.members.number_of(local);
    if (replicates && member != what.root) {
      // Staged works on every topology and needs no communicator.
      lists.push_back(broadcast_coalesced(originals, {what.members.local[local]}, default_buffer_size,
                                          {.transport = TransportKind::staged})[0]);
    } else {
      lists.push_back(make_list(specs, what, member));
    }
  }
  return lists;
}

Content whole_content(const TensorSpec& spec, const Case& what, std::size_t index, Pattern pattern,
                      int source, int all_sources) {
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

Content columns_of(Content content, std::int64_t start, std::int64_t length, std::int64_t row_length) {
  content.offset = start;
  content.row_length = std::max<std::int64_t>(length, 1);
  content.row_stride = std::max<std::int64_t>(row_length, 1);
  return content;
}

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

void add_result(Call& call, std::size_t list, Placement placement, const Tensor& tensor,
                const Content& content) {
  if (placement == Placement::returned) {
    call.expect_output(list, content);
  } else {
    call.add_output(list, tensor, content);
  }
}

}  // namespace tutti::perf
