// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare_parts.hpp"

#include "perf/operations/operands.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace tutti::perf {
namespace {

std::vector<Payload> payloads_of(const Case& what, Cut cut) {
  std::vector<Payload> payloads;
  for (const TensorSpec& tensor : payload_tensors(what, cut.coalesced))
    payloads.emplace_back(what.members.count, cut.parts, tensor);
  return payloads;
}

std::vector<TensorSpec> wholes_of(const std::vector<Payload>& payloads) {
  std::vector<TensorSpec> wholes;
  for (const Payload& payload : payloads) wholes.push_back(payload.whole());
  return wholes;
}

}  // namespace

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
    if (!what.members.is_local(member)) continue;
    add(whole == Whole::output, shape, columns_of(content, chunk.start, chunk.length, spec.sizes.back()),
        member);
  }
  if (what.members.is_local(what.root)) add(whole == Whole::input, spec, content, what.root);
  return call;
}

Call prepare_all_gather(const Case& what, Placement placement, Cut cut) {
  const std::vector<Payload> payloads = payloads_of(what, cut);
  Call call = call_of(what, wholes_of(payloads));
  if (cut.parts == Parts::unequal) call.sizes = payloads.front().sizes();
  for (std::size_t t = 0; t < payloads.size(); ++t) {
    const Payload& payload = payloads[t];
    const Content content = whole_content(payload.whole(), what, t, Pattern::bits);
    for (std::size_t local = 0; local < what.members.local.size(); ++local) {
      const std::size_t list = cut.coalesced ? local : 0;
      const int member = what.members.number_of(local);
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

Call prepare_reduce_scatter(const Case& what, Placement placement, Cut cut) {
  const std::vector<Payload> payloads = payloads_of(what, cut);
  Call call = call_of(what, wholes_of(payloads));
  if (cut.parts == Parts::unequal) call.sizes = payloads.front().sizes();
  call.repeatable = placement != Placement::in_place;
  for (std::size_t t = 0; t < payloads.size(); ++t) {
    const Payload& payload = payloads[t];
    for (std::size_t local = 0; local < what.members.local.size(); ++local) {
      const std::size_t list = cut.coalesced ? local : 0;
      const int member = what.members.number_of(local);
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

Call prepare_all_to_all(const Case& what, Placement placement, Cut cut) {
  const std::vector<Payload> payloads = payloads_of(what, cut);
  Call call = call_of(what, wholes_of(payloads));
  call.repeatable = placement != Placement::in_place;
  for (std::size_t t = 0; t < payloads.size(); ++t) {
    const Payload& payload = payloads[t];
    // Every member's input is a part of one array.
    const Content content = whole_content(payload.whole(), what, t, Pattern::bits);
    const auto values = [&](int from, std::int64_t start, std::int64_t length) {
      return columns_of(content, from * payload.elements() + start, length, payload.elements());
    };
    for (std::size_t local = 0; local < what.members.local.size(); ++local) {
      const std::size_t list = cut.coalesced ? local : 0;
      const int member = what.members.number_of(local);
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

}  // namespace tutti::perf
