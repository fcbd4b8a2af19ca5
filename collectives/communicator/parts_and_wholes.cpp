// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/parts_and_wholes.hpp"

#include "collectives/call/disjoint.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace tutti::collectives {

PartsAndWholes::PartsAndWholes(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                               Wholes wholes, const std::optional<PartSizes>& sizes)
    : call_(call),
      inputs_(inputs),
      out_(out),
      sizes_(sizes),
      wholes_(wholes == Wholes::inputs ? inputs : out),
      parts_(wholes == Wholes::inputs ? out : inputs),
      wholes_name_(wholes == Wholes::inputs ? "inputs" : "out"),
      parts_name_(wholes == Wholes::inputs ? "out" : "inputs") {}

void PartsAndWholes::check() {
  if (sizes_) {
    check_parts();
  } else {
    call_.checks().alike(parts_, parts_name_, Likeness::elements);
  }
  call_.checks().one_per_member(wholes_.size(), wholes_name_);
  for (std::size_t i = 0; i < out_.size(); ++i) {
    check_count(i);
    for (std::size_t t = 0; t < parts_[0].size(); ++t) check_whole(i, t);
    for (std::size_t t = 0; t < out_[i].size(); ++t)
      call_.arguments().writable(out_[i][t], out_.name("out", i, t));
    check_overlaps(i);
  }
}

void PartsAndWholes::check_parts() {
  call_.checks().one_per_member(parts_.size(), parts_name_);
  total_ = call_.checks().part_sizes(sizes_->sizes, "sizes");
  elements_.assign(sizes_->sizes.begin(), sizes_->sizes.end());
  in_rows_.elements = elements_;
  if (sizes_->dim) return check_parts_along(*sizes_->dim);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Tensor& part = parts_[i][0];
    const Name name = parts_.name(parts_name_, i, 0);
    call_.checks().on_member(part, name, i);
    call_.arguments().same_dtype(part, name, parts_[0][0].dtype(), parts_.name(parts_name_, 0, 0));
    const std::size_t member = call_.first_local() + i;
    if (part.numel() != elements_[member]) {
      call_.arguments().fail("{} has {} elements, expected {} as sizes[{}]", name, part.numel(),
                             elements_[member], member);
    }
  }
}

void PartsAndWholes::check_parts_along(int dim) {
  along_ = call_.checks().parts(parts_, parts_name_, dim);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::size_t member = call_.first_local() + i;
    const std::int64_t size = parts_[i][0].size(*along_);
    if (size != sizes_->sizes[member]) {
      call_.arguments().fail("{} has size {} along dimension {}, expected {} as sizes[{}]",
                             parts_.name(parts_name_, i, 0), size, *along_, sizes_->sizes[member], member);
    }
  }
  // Numbers that do not fit are those of tensors without elements.
  const Tensor& first = parts_[0][0];
  const auto at = static_cast<std::size_t>(*along_);
  std::uint64_t unit = 1;
  for (std::size_t d = 0; d < first.sizes().size(); ++d) {
    if (d == at) in_rows_.rows = unit;
    if (d != at) unit *= static_cast<std::uint64_t>(first.sizes()[d]);
  }
  for (std::int64_t& elements : elements_)
    elements = static_cast<std::int64_t>(static_cast<std::uint64_t>(elements) * unit);
  if (total_ == 0 || unit == 0) in_rows_.rows = 1;
  std::vector<std::int64_t> of_whole(first.sizes().begin(), first.sizes().end());
  of_whole[at] = total_;
  call_.signature().set_alike(first.dtype(), of_whole, *along_);
}

bool PartsAndWholes::is_in_place(const Tensor& part, const Tensor& whole, std::size_t local) const {
  if (are_in_rows() || !part.is_contiguous() || !whole.is_contiguous()) return false;
  const std::size_t member = call_.first_local() + local;
  const auto start = sizes_ ? static_cast<std::size_t>(std::accumulate(
                                  elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(member),
                                  std::int64_t{0})) *
                                  size_of(part.dtype())
                            : member * part.nbytes();
  return static_cast<const std::byte*>(part.data()) == static_cast<const std::byte*>(whole.data()) + start;
}

void PartsAndWholes::check_count(std::size_t i) const {
  if (wholes_[i].size() == parts_[0].size()) return;
  call_.arguments().fail("{}[{}] has {} tensors, expected {} as {}[0]", wholes_name_, i, wholes_[i].size(),
                         parts_[0].size(), parts_name_);
}

void PartsAndWholes::check_whole(std::size_t i, std::size_t t) const {
  const Tensor& whole = wholes_[i][t];
  const Tensor& part = parts_[0][t];
  const Name name = wholes_.name(wholes_name_, i, t);
  const Name part_name = parts_.name(parts_name_, 0, t);
  if (along_) return check_whole_along(whole, name, i);
  if (&wholes_ != &inputs_) call_.checks().on_member(whole, name, i);
  call_.arguments().same_dtype(whole, name, part.dtype(), part_name);
  if (sizes_) {
    if (whole.numel() == total_) return;
    call_.arguments().fail("{} has {} elements, expected {}: as many as sizes in all", name, whole.numel(),
                           total_);
  }
  std::int64_t all = 0;
  if (__builtin_mul_overflow(part.numel(), call_.members(), &all)) {
    call_.arguments().fail("{} has {} elements, expected fewer: those of {} members are more than 2^63 - 1",
                           part_name, part.numel(), call_.members());
  }
  if (whole.numel() != all) {
    call_.arguments().fail("{} has {} elements, expected {}: {} {} each of {} members", name, whole.numel(),
                           all, part.numel(), wholes_name_ == "out" ? "from" : "for", call_.members());
  }
}

void PartsAndWholes::check_whole_along(const Tensor& whole, const Name& name, std::size_t i) const {
  call_.checks().like_part(whole, name, i, parts_[0][0], parts_.name(parts_name_, 0, 0), *along_);
  if (whole.size(*along_) == total_) return;
  call_.arguments().fail("{} has size {} along dimension {}, expected {}: as sizes in all", name,
                         whole.size(*along_), *along_, total_);
}

void PartsAndWholes::check_overlaps(std::size_t i) const {
  const bool is_one = out_[i].size() == 1;
  if (is_one && (lie_apart(inputs_[i][0], out_[i][0]) || is_in_place(parts_[i][0], wholes_[i][0], i))) return;

  MemoryRuns runs;
  runs.start_outputs();
  for (std::size_t t = 0; t < out_[i].size(); ++t)
    runs.add(is_in_place(parts_[i][t], wholes_[i][t], i) ? wholes_[i][t] : out_[i][t]);
  runs.start_inputs();
  for (std::size_t t = 0; t < out_[i].size(); ++t) {
    if (!is_in_place(parts_[i][t], wholes_[i][t], i)) runs.add(inputs_[i][t]);
  }
  if (!runs.are_disjoint()) check_overlaps_one_by_one(i);
}

void PartsAndWholes::check_overlaps_one_by_one(std::size_t i) const {
  std::vector<Tensor> given;
  std::vector<Tensor> written;
  for (std::size_t t = 0; t < out_[i].size(); ++t) {
    const Tensor& whole = wholes_[i][t];
    if (is_in_place(parts_[i][t], whole, i)) {
      given.push_back(whole.view({whole.numel()}).narrow(0, 0, 0));
      written.push_back(whole);
    } else {
      given.push_back(inputs_[i][t]);
      written.push_back(out_[i][t]);
    }
  }
  Named inputs = inputs_.named("inputs", i);
  Named outputs = out_.named("out", i);
  inputs.tensors = given;
  outputs.tensors = written;
  require_disjoint_one_by_one(call_.arguments(), std::span(&inputs, 1), std::span(&outputs, 1),
                              InPlace::forbidden, false);
}

void PartsAndWholes::set() {
  if (sizes_) {
    call_.begin_parts(elements_, parts_[0][0].dtype());
  } else {
    call_.begin(inputs_[0]);
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    for (std::size_t t = 0; t < inputs_[i].size(); ++t) {
      set_input(i, t);
      set_output(i, t);
    }
  }
}

void PartsAndWholes::set_input(std::size_t i, std::size_t t) {
  const Name name = inputs_.name("inputs", i, t);
  if (are_in_rows() && &wholes_ == &inputs_)
    return call_.operands().set_input_whole(i, inputs_[i][t], name, in_rows_);
  call_.operands().set_input(i, t, inputs_[i][t], name);
}

void PartsAndWholes::set_output(std::size_t i, std::size_t t) {
  const Name name = out_.name("out", i, t);
  if (are_in_rows() && &wholes_ == &out_)
    return call_.operands().set_output_whole(i, out_[i][t], name, in_rows_);
  call_.operands().set_output(i, t, out_[i][t], name);
}

}  // namespace tutti::collectives
