// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/disjoint.hpp"
#include "collectives/communicator/operations.hpp"
#include "transport/team/shared/agreement.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

/// Tensors that count as flat, so that shapes make no difference.
std::vector<Tensor> flattened(std::span<const Tensor> tensors) {
  std::vector<Tensor> flat;
  flat.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    flat.push_back(tensor.is_contiguous() ? tensor.view({tensor.numel()}) : tensor);
  return flat;
}

/// The outputs of a local member, which have been looked at one by one, overlap nothing; but one may be the
/// input in its place.
void check_overlaps(const TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                    std::size_t local) {
  if (out[local].size() == 1 && lie_apart(inputs[local][0], out[local][0])) return;
  const std::vector<Tensor> given = flattened(inputs[local]);
  const std::vector<Tensor> written = flattened(out[local]);
  Named named_inputs = inputs.named("inputs", local);
  Named named_out = out.named("out", local);
  named_inputs.tensors = given;
  named_out.tensors = written;
  require_disjoint(call.arguments(), std::span(&named_inputs, 1), std::span(&named_out, 1),
                   InPlace::same_index);
}

void set_exchanged(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      const Tensor& input = inputs[i][t];
      call.operands().set_input(i, t, input, inputs.name("inputs", i, t));
      call.operands().set_output(i, t, out[i][t], out.name("out", i, t));
      if (input.numel() > 0 && input.is_contiguous() && input.data() == out[i][t].data())
        call.operands().set_in_place(i, t);
    }
  }
}

/// `sizes` are a list for each local member, of a number for each of all members; each list has as many
/// elements in all as that member's tensor.
void check_sizes(const TeamCall& call, const SizeLists& sizes, std::string_view argument, TensorList tensors,
                 std::string_view tensors_argument) {
  call.checks().one_per_member(sizes.size(), argument);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t total = call.checks().part_sizes(sizes[i], Name(argument, i));
    if (tensors[i].numel() != total) {
      call.arguments().fail("{} has {} elements, expected {}: as many as {} in all",
                            Name(tensors_argument, i), tensors[i].numel(), total, Name(argument, i));
    }
  }
}

/// The sizes that members exchange: elements to and from each of all members.
class ToldSizes {
 public:
  explicit ToldSizes(const transport::team::Membership& membership)
      : membership_(membership),
        members_(membership.member_count()),
        // Ranks tell equally much.
        numbers_per_rank_(2 * membership.most_members_of_a_rank() * members_),
        mine_(numbers_per_rank_) {}

  void set(std::size_t local, std::span<const std::int64_t> to, std::span<const std::int64_t> from) {
    std::ranges::copy(to, mine_.begin() + static_cast<std::ptrdiff_t>(2 * local * members_));
    std::ranges::copy(from, mine_.begin() + static_cast<std::ptrdiff_t>((2 * local + 1) * members_));
  }
  /// Over a collective exchange among all ranks.
  void tell(Exchange& exchange) { all_ = transport::team::gather_lists<std::uint64_t>(exchange, mine_); }

  [[nodiscard]] std::uint64_t to(std::size_t member, std::size_t other) const {
    return all_[place_of(member) + other];
  }
  [[nodiscard]] std::uint64_t from(std::size_t member, std::size_t other) const {
    return all_[place_of(member) + members_ + other];
  }

 private:
  [[nodiscard]] std::size_t place_of(std::size_t member) const {
    const std::size_t rank = membership_.rank_of_member()[member];
    return rank * numbers_per_rank_ + 2 * (member - membership_.first_member(rank)) * members_;
  }

  const transport::team::Membership& membership_;
  std::size_t members_;
  std::size_t numbers_per_rank_;
  std::vector<std::uint64_t> mine_;
  std::vector<std::uint64_t> all_;
};

/// The first pair that does not agree, in words; empty if all do.
std::string disagreement(const ToldSizes& sizes, std::size_t members) {
  for (std::size_t sender = 0; sender < members; ++sender) {
    for (std::size_t receiver = 0; receiver < members; ++receiver) {
      const std::uint64_t sent = sizes.to(sender, receiver);
      const std::uint64_t expected = sizes.from(receiver, sender);
      if (sent != expected) {
        return fmt::format("member {} sends {} elements to member {}, which expects {} of it", sender, sent,
                           receiver, expected);
      }
    }
  }
  return {};
}

/// Completes the request of an exchange of such parts.
void set_parts(Request& request, const ToldSizes& sizes, std::size_t members, std::uint64_t width) {
  std::uint64_t most = 0;
  for (std::size_t member = 0; member < members; ++member) {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (std::size_t other = 0; other < members; ++other) {
      request.parts.push_back(sizes.to(member, other) * width);
      sent += request.parts.back();
      received += sizes.from(member, other) * width;
    }
    most = std::max({most, sent, received});
  }
  request.copied().bytes.push_back(most);
  const auto is_first = [&](std::uint64_t bytes) { return bytes == request.parts.front(); };
  if (std::ranges::all_of(request.parts, is_first)) request.parts.clear();
}

}  // namespace

void all_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  call.checks().alike(inputs, "inputs", Likeness::elements);
  call.checks().one_per_member(out.size(), "out");
  for (std::size_t t = 0; t < inputs[0].size(); ++t) {
    const std::int64_t elements = inputs[0][t].numel();
    if (elements % static_cast<std::int64_t>(call.members()) != 0) {
      call.arguments().fail("{} has {} elements, expected a multiple of {}: equal parts for all members",
                            inputs.name("inputs", 0, t), elements, call.members());
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].size() != inputs[0].size()) {
      call.arguments().fail("out[{}] has {} tensors, expected {} as inputs[0]", i, out[i].size(),
                            inputs[0].size());
    }
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      const Tensor& like = inputs[0][t];
      const Name name = out.name("out", i, t);
      call.checks().on_member(out[i][t], name, i);
      call.arguments().same_dtype(out[i][t], name, like.dtype(), inputs.name("inputs", 0, t));
      if (out[i][t].numel() != like.numel()) {
        call.arguments().fail("{} has {} elements, expected {} as {}", name, out[i][t].numel(), like.numel(),
                              inputs.name("inputs", 0, t));
      }
      call.arguments().writable(out[i][t], name);
    }
    check_overlaps(call, inputs, out, i);
  }
  call.begin(inputs[0]);
  set_exchanged(call, inputs, out);
  call.run();
}

void all_to_all(TeamCall& call, TensorList inputs, TensorList out, const SizeLists& input_sizes,
                const SizeLists& out_sizes) {
  call.checks().one_per_member(inputs.size(), "inputs");
  call.checks().one_per_member(out.size(), "out");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.checks().on_member(inputs[i], Name("inputs", i), i);
    call.arguments().same_dtype(inputs[i], Name("inputs", i), inputs[0].dtype(), Name("inputs", 0));
    call.checks().on_member(out[i], Name("out", i), i);
    call.arguments().same_dtype(out[i], Name("out", i), inputs[0].dtype(), Name("inputs", 0));
    call.arguments().writable(out[i], Name("out", i));
  }
  check_sizes(call, input_sizes, "input_sizes", inputs, "inputs");
  check_sizes(call, out_sizes, "out_sizes", out, "out");
  for (std::size_t i = 0; i < call.locals(); ++i) {
    for (std::size_t j = 0; j < call.locals(); ++j) {
      const std::int64_t sent = input_sizes[i][call.first_local() + j];
      const std::int64_t expected = out_sizes[j][call.first_local() + i];
      if (sent == expected) continue;
      call.arguments().fail(
          "out_sizes[{}][{}] is {}, expected {} as input_sizes[{}][{}]: from member {} to {}", j,
          call.first_local() + i, expected, sent, i, call.first_local() + j, call.first_local() + i,
          call.first_local() + j);
    }
  }
  const MemberOperands given = MemberOperands::one_each(inputs);
  const MemberOperands written = MemberOperands::one_each(out);
  for (std::size_t i = 0; i < call.locals(); ++i) check_overlaps(call, given, written, i);
  call.signature().has_sizes = true;
  call.begin(0, inputs[0].dtype());  // no other rank knows the lengths
  set_exchanged(call, given, written);
  ToldSizes sizes(call.membership());
  for (std::size_t local = 0; local < call.locals(); ++local)
    sizes.set(local, input_sizes[local], out_sizes[local]);
  call.request().copied().bytes.reserve(1);
  call.request().parts.reserve(call.members() * call.members());
  // That it is the same call is all that they agree on before.
  call.run_agreed(false, [&](std::span<const std::uint64_t>) {
    transport::team::TeamExchange exchange = call.exchange();
    sizes.tell(exchange);
    if (const std::string text = disagreement(sizes, call.members()); !text.empty())
      call.refuse_for_all(text);
    set_parts(call.request(), sizes, call.members(), size_of(inputs[0].dtype()));
  });
}

}  // namespace tutti::collectives
