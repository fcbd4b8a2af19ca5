// SPDX-License-Identifier: Apache-2.0
#include "backend/team_exercise.hpp"
#include "support/values/reference_sum.hpp"

#include <algorithm>
#include <iterator>

#include <gtest/gtest.h>

/// What rounds of exercises do, and what they should leave behind.
namespace tutti::backend {
namespace {

std::size_t component_bytes(DType dtype) {
  if (dtype == DType::complex64) return size_of(DType::float32);
  return dtype == DType::complex128 ? size_of(DType::float64) : size_of(dtype);
}

/// Copies rows between host memories.
void copy_rows(std::byte* target, std::size_t target_pitch, const std::byte* source, std::size_t source_pitch,
               const Rectangle& rectangle) {
  for (std::uint32_t row = 0; row < rectangle.rows; ++row) {
    std::copy_n(source + row * source_pitch, rectangle.row_bytes, target + row * target_pitch);
  }
}

std::size_t extent(const Rectangle& rectangle, std::size_t pitch) {
  return rectangle.rows == 0 ? 0 : (rectangle.rows - 1) * pitch + rectangle.row_bytes;
}

}  // namespace

std::size_t TeamExercise::numbers_offset(DType dtype, SumAlignment alignment) {
  const std::size_t index = 3 * static_cast<std::size_t>(dtype) + static_cast<std::size_t>(alignment);
  const std::size_t distance = alignment == SumAlignment::none ? 5 : component_bytes(dtype);
  return bits_bytes + index * (numbers_bytes + vector_bytes) + distance;
}

std::size_t TeamExercise::place(std::size_t& cursor, std::size_t bytes, std::size_t multiple,
                                std::size_t residue) {
  cursor += random_.next() % (2 * vector_bytes);
  const std::size_t offset =
      (cursor + multiple - 1 - residue % multiple) / multiple * multiple + residue % multiple;
  cursor = offset + bytes;
  return offset;
}

std::size_t TeamExercise::output_place(Member& member, std::size_t bytes, std::size_t multiple,
                                       std::size_t residue) {
  const std::size_t offset = place(member.used, bytes, multiple, residue);
  EXPECT_LE(member.used, output_bytes) << "the test needs larger outputs";
  fill_output(member, member.used);
  return offset;
}

std::byte* TeamExercise::expect(std::uint32_t member, std::span<const std::byte> bytes) {
  Member& owner = members_[member];
  const std::size_t offset = output_place(owner, bytes.size(), 1, 0);
  std::ranges::copy(bytes, owner.expected.data() + offset);
  return owner.output + offset;
}

void TeamExercise::put(TeamPart& part, std::byte* source, std::byte* slot, std::uint64_t bytes) {
  const auto first = static_cast<std::uint32_t>(part.put_pointers.size());
  part.puts.push_back({.row_bytes = bytes, .source = first, .first_target = first + 1, .target_count = 1});
  part.put_pointers.insert(part.put_pointers.end(), {source, slot});
}

std::vector<std::byte*> TeamExercise::send(TeamCall& call, std::uint32_t round, std::uint32_t writer,
                                           const Numbers& readers, std::byte* source,
                                           std::uint64_t bytes) const {
  const std::uint64_t step = layout_.message_alignment();
  std::vector<std::byte*> places;
  for (const std::uint32_t reader : readers) {
    call.part(reader, round).is_low_latency = true;
    std::uint64_t& fill = call.inbox_fill[{round, reader}];
    places.push_back(members_[reader].window + layout_.inboxes_offset() + layout_.in_lines(fill));
    fill += (bytes + step - 1) / step * step;
    EXPECT_LE(fill, layout_.most_in_inbox()) << "the test sends more than an inbox holds";
  }
  TeamPart& part = call.part(writer, round);
  part.is_low_latency = true;
  const auto first = static_cast<std::uint32_t>(part.put_pointers.size());
  part.puts.push_back({.row_bytes = bytes,
                       .source = first,
                       .first_target = first + 1,
                       .target_count = static_cast<std::uint32_t>(places.size())});
  part.put_pointers.push_back(source);
  part.put_pointers.insert(part.put_pointers.end(), places.begin(), places.end());
  return places;
}

std::byte* TeamExercise::expose(TeamPart& part, std::uint32_t member, std::byte* memory) const {
  const std::uint64_t number = std::uint64_t{member} * layout_.most_exposed() + part.exposed.size();
  EXPECT_LT(part.exposed.size(), layout_.most_exposed()) << "the test gives more than a slot holds";
  const std::uint64_t rest = reinterpret_cast<std::uintptr_t>(memory) % vector_bytes;
  part.exposed.push_back(memory - rest);
  return SourcePlace::exposed(number, rest);
}

void TeamExercise::copy(TeamPart& part, std::byte* place, std::byte* target, std::uint64_t bytes) {
  const auto first = static_cast<std::uint32_t>(part.copy_pointers.size());
  part.copies.push_back({.row_bytes = bytes, .source = first, .first_target = first + 1, .target_count = 1});
  part.copy_pointers.insert(part.copy_pointers.end(),
                            {place, part.is_direct ? SourcePlace::own(target) : target});
}

void TeamExercise::add_message(TeamCall& call, std::uint32_t round, std::uint32_t writer,
                               const Numbers& readers, std::span<const Rectangle> rectangles, Way way) {
  const bool is_written = way == Way::written;
  const bool is_direct = is_written || way == Way::direct;
  TeamPart& own = call.part(writer, round);
  (is_written ? own.sources : own.readers) = readers;
  own.is_direct = is_direct;
  own.writes_exposed = is_written;
  for (const std::uint32_t reader : readers) {
    TeamPart& part = call.part(reader, round);
    (is_written ? part.readers : part.sources).push_back(writer);
    part.is_direct = is_direct;
    part.writes_exposed = is_written;
  }
  const auto random_pitch = [&](const Rectangle& rectangle) {
    return rectangle.row_bytes + (random_.one_in(2) ? 0 : random_.next() % 40);
  };
  std::size_t cursor = 0;
  for (const Rectangle& wanted : rectangles) {
    const Rectangle rectangle =
        way == Way::low_latency ? Rectangle{1, wanted.rows * wanted.row_bytes} : wanted;
    const std::size_t source_pitch = random_pitch(rectangle);
    const std::size_t begin = random_.next() % (bits_bytes - extent(rectangle, source_pitch));
    const std::size_t bytes = rectangle.rows * rectangle.row_bytes;
    const bool alike = random_.one_in(2);
    std::vector<std::byte*> sources;  // in the readers' tables
    if (is_written) {
      sources.assign(readers.size(), SourcePlace::own(input(writer) + begin));
    } else if (is_direct) {
      sources.assign(readers.size(), expose(call.part(writer, round), writer, input(writer) + begin));
    } else if (way == Way::low_latency) {
      sources = send(call, round, writer, readers, input(writer) + begin, bytes);
    } else {
      const std::size_t in_slot = place(cursor, bytes, alike ? vector_bytes : 1, begin);
      ASSERT_LE(cursor, slot_bytes) << "the test puts more than a slot holds";
      sources.assign(readers.size(), slot(writer) + in_slot);
      TeamPart& part = call.part(writer, round);
      const auto first = static_cast<std::uint32_t>(part.put_pointers.size());
      part.puts.push_back({.row_bytes = rectangle.row_bytes,
                           .source_pitch = source_pitch,
                           .target_pitch = rectangle.row_bytes,
                           .rows = rectangle.rows,
                           .source = first,
                           .first_target = first + 1,
                           .target_count = 1});
      part.put_pointers.insert(part.put_pointers.end(), {input(writer) + begin, slot(writer) + in_slot});
    }
    for (std::size_t i = 0; i < readers.size(); ++i) {
      const std::uint32_t reader = readers[i];
      Member& member = members_[reader];
      TeamPart& part = call.part(is_written ? writer : reader, round);
      const std::size_t target_pitch = random_pitch(rectangle);
      const auto first = static_cast<std::uint32_t>(part.copy_pointers.size());
      part.copies.push_back({.row_bytes = rectangle.row_bytes,
                             .source_pitch = is_direct ? source_pitch : rectangle.row_bytes,
                             .target_pitch = target_pitch,
                             .rows = rectangle.rows,
                             .source = first,
                             .first_target = first + 1,
                             .target_count = !is_written && random_.one_in(4) ? 2U : 1U});
      part.copy_pointers.push_back(sources[i]);
      for (std::uint32_t target = 0; target < part.copies.back().target_count; ++target) {
        const std::size_t offset =
            output_place(member, extent(rectangle, target_pitch), alike ? vector_bytes : 1, begin);
        std::byte* const place = member.output + offset;
        part.copy_pointers.push_back(is_written  ? expose(call.part(reader, round), reader, place)
                                     : is_direct ? SourcePlace::own(place)
                                                 : place);
        copy_rows(member.expected.data() + offset, target_pitch, members_[writer].input_bytes.data() + begin,
                  source_pitch, rectangle);
      }
    }
  }
}

void TeamExercise::add_sum(TeamCall& call, std::uint32_t round, const Numbers& receivers, DType dtype,
                           std::span<const std::uint64_t> counts, SumAlignment alignment, Way way) {
  // Kernels take elements wherever they lie; processors want them aligned.
  if (alignment == SumAlignment::none && machine_.kind() == BackendKind::host)
    alignment = SumAlignment::element;
  const std::size_t element = size_of(dtype);
  const std::size_t multiple = alignment == SumAlignment::alike     ? vector_bytes
                               : alignment == SumAlignment::element ? component_bytes(dtype)
                                                                    : 1;
  const std::size_t numbers = numbers_offset(dtype, alignment);
  const auto puts = [&](std::uint32_t member) { return receivers.size() > 1 || receivers.front() != member; };
  for (std::uint32_t member = 0; member < members(); ++member) {
    TeamPart& part = call.part(member, round);
    part.is_direct = way == Way::direct;
    if (puts(member)) {
      std::ranges::copy_if(receivers, std::back_inserter(part.readers),
                           [&](std::uint32_t receiver) { return receiver != member; });
    }
    if (std::ranges::find(receivers, member) == receivers.end()) continue;
    part.sources = everyone_but(member);
    part.dtype = dtype;
    part.input_count = members();
  }
  std::vector<std::size_t> cursors(members(), 0);
  for (const std::uint64_t count : counts) {
    const std::uint64_t step = std::max<std::uint64_t>(multiple / element, 1);
    const std::uint64_t starts = (numbers_bytes / element - count) / step + 1;
    std::vector<std::size_t> own(members());
    std::vector<std::vector<std::byte*>> elsewhere(
        members());  // for those who are not that member, by member
    std::vector<test::HostArray> inputs;
    for (std::uint32_t member = 0; member < members(); ++member) {
      own[member] = numbers + random_.next() % starts * step * element;
      const auto bytes = input_bytes(member).subspan(own[member], count * element);
      inputs.push_back({dtype, {static_cast<std::int64_t>(count)}, {bytes.begin(), bytes.end()}});
      if (!puts(member)) continue;
      if (way == Way::direct) {
        elsewhere[member].assign(members(),
                                 expose(call.part(member, round), member, input(member) + own[member]));
        continue;
      }
      if (way == Way::low_latency) {
        const Numbers& readers = call.part(member, round).readers;
        const std::vector<std::byte*> places =
            send(call, round, member, readers, input(member) + own[member], count * element);
        elsewhere[member].resize(members());
        for (std::size_t i = 0; i < readers.size(); ++i) elsewhere[member][readers[i]] = places[i];
        continue;
      }
      std::byte* const in_slot = slot(member) + place(cursors[member], count * element, multiple, numbers);
      ASSERT_LE(cursors[member], slot_bytes) << "the test puts more than a slot holds";
      elsewhere[member].assign(members(), in_slot);
      put(call.part(member, round), input(member) + own[member], in_slot, count * element);
    }
    const test::HostArray sum = test::reference_sum(inputs);
    for (const std::uint32_t receiver : receivers) {
      Member& member = members_[receiver];
      const std::size_t offset = output_place(member, count * element, multiple, numbers);
      std::ranges::copy(sum.bytes, member.expected.data() + offset);
      TeamPart& part = call.part(receiver, round);
      const auto first = static_cast<std::uint32_t>(part.sum_pointers.size());
      part.sums.push_back({.count = count, .first_input = first, .first_output = first + members()});
      for (std::uint32_t from = 0; from < members(); ++from) {
        part.sum_pointers.push_back(from == receiver ? SourcePlace::own(input(from) + own[from])
                                                     : elsewhere[from][receiver]);
      }
      part.sum_pointers.push_back(member.output + offset);
    }
  }
}

void TeamExercise::add_barrier(TeamCall& call, std::uint32_t round) const {
  for (std::uint32_t member = 0; member < members(); ++member) {
    TeamPart& part = call.part(member, round);
    part.readers = part.sources = everyone_but(member);
  }
}

TeamExercise::Terms TeamExercise::make_terms(DType dtype, std::uint64_t count) {
  Terms terms;
  std::vector<test::HostArray> arrays;
  for (Member& member : members_) {
    const test::HostArray& own =
        arrays.emplace_back(test::random_numbers(dtype, {static_cast<std::int64_t>(count)}, random_.next()));
    const std::size_t offset = output_place(member, own.bytes.size(), vector_bytes, 0);
    terms.inputs.push_back(member.output + offset);
    std::ranges::copy(own.bytes, member.expected.data() + offset);
    transfer(member.side_stream, terms.inputs.back(), own.bytes.data(), own.bytes.size());
    machine_.synchronize_stream(member.side_stream);
  }
  terms.sums = test::reference_sum(arrays).bytes;
  return terms;
}

void TeamExercise::add_share(TeamCall& call, std::uint32_t round, std::uint32_t member, const Terms& terms,
                             std::uint64_t at, std::uint64_t bytes, std::byte* output) {
  std::vector<std::byte*> places;
  for (std::uint32_t from = 0; from < members(); ++from) {
    places.push_back(from == member
                         ? SourcePlace::own(terms.inputs[from] + at)
                         : send(call, round, from, {member}, terms.inputs[from] + at, bytes).front());
  }
  TeamPart& part = call.part(member, round);
  const auto first = static_cast<std::uint32_t>(part.sum_pointers.size());
  part.sums.push_back(
      {.count = bytes / size_of(part.dtype), .first_input = first, .first_output = first + members()});
  part.sum_pointers.insert(part.sum_pointers.end(), places.begin(), places.end());
  part.sum_pointers.push_back(output);
}

void TeamExercise::add_shared_sum(TeamCall& call, std::uint32_t round, DType dtype,
                                  std::span<const std::uint64_t> counts, bool is_in_place) {
  for (std::uint32_t member = 0; member < members(); ++member) {
    for (const std::uint32_t step : {round, round + 1}) {
      TeamPart& part = call.part(member, step);
      part.is_low_latency = true;
      part.readers = part.sources = everyone_but(member);
    }
    call.part(member, round).dtype = dtype;
    call.part(member, round).input_count = members();
    call.part(member, round + 1).is_relay = random_.one_in(2);
  }
  for (const std::uint64_t count : counts) {
    const std::uint64_t bytes = count * size_of(dtype);
    const Terms terms = make_terms(dtype, count * members());
    std::vector<std::byte*> outputs = terms.inputs;
    for (std::uint32_t member = 0; member < members(); ++member) {
      Member& owner = members_[member];
      if (!is_in_place)
        outputs[member] = owner.output + output_place(owner, terms.sums.size(), vector_bytes, 0);
      std::ranges::copy(terms.sums, owner.expected.data() + (outputs[member] - owner.output));
    }
    for (std::uint32_t share = 0; share < members(); ++share)
      add_share(call, round, share, terms, share * bytes, bytes, outputs[share] + share * bytes);
    for (std::uint32_t share = 0; share < members(); ++share) {
      const std::uint64_t at = share * bytes;
      const Numbers readers = everyone_but(share);
      const std::vector<std::byte*> places =
          send(call, round + 1, share, readers, outputs[share] + at, bytes);
      for (std::size_t i = 0; i < readers.size(); ++i)
        copy(call.part(readers[i], round + 1), places[i], outputs[readers[i]] + at, bytes);
    }
  }
}

void TeamExercise::add_direct_sum(TeamCall& call, std::uint32_t round, DType dtype,
                                  std::span<const std::uint64_t> counts, bool is_in_place) {
  for (std::uint32_t member = 0; member < members(); ++member) {
    TeamPart& part = call.part(member, round);
    part.is_direct = part.writes_exposed = true;
    part.readers = part.sources = everyone_but(member);
    part.dtype = dtype;
    part.input_count = part.output_count = members();
  }
  for (const std::uint64_t count : counts) {
    const std::uint64_t bytes = count * size_of(dtype);
    const Terms terms = make_terms(dtype, count * members());
    std::vector<std::byte*> outputs = terms.inputs;
    for (std::uint32_t member = 0; member < members(); ++member) {
      Member& owner = members_[member];
      if (!is_in_place)
        outputs[member] = owner.output + output_place(owner, terms.sums.size(), vector_bytes, 0);
      std::ranges::copy(terms.sums, owner.expected.data() + (outputs[member] - owner.output));
    }
    for (std::uint32_t adder = 0; adder < members(); ++adder) {
      TeamPart& part = call.part(adder, round);
      const auto first = static_cast<std::uint32_t>(part.sum_pointers.size());
      part.sums.push_back({.count = count, .first_input = first, .first_output = first + members()});
      for (const auto& memory : {terms.inputs, outputs}) {
        for (std::uint32_t member = 0; member < members(); ++member) {
          std::byte* const place = memory[member] + adder * bytes;
          part.sum_pointers.push_back(member == adder ? SourcePlace::own(place)
                                                      : expose(call.part(member, round), member, place));
        }
      }
    }
  }
}

void TeamExercise::add_sum_for_root(TeamCall& call, std::uint32_t round, std::uint32_t root, DType dtype,
                                    std::span<const std::uint64_t> counts, bool is_in_place) {
  const Numbers adders = everyone_but(root);
  for (std::uint32_t member = 0; member < members(); ++member) {
    TeamPart& exposes = call.part(member, round);
    exposes.is_low_latency = true;
    exposes.readers = adders;
    std::erase(exposes.readers, member);
    if (member == root) continue;
    exposes.sources = everyone_but(member);
    exposes.dtype = dtype;
    exposes.input_count = members();
  }
  for (std::uint32_t member = 0; member < members(); ++member) {
    TeamPart& hands_on = call.part(member, round + 1);
    hands_on.is_low_latency = true;
    hands_on.is_relay = random_.one_in(2);
    (member == root ? hands_on.sources : hands_on.readers) = member == root ? adders : Numbers{root};
  }
  for (const std::uint64_t count : counts) {
    const std::uint64_t bytes = count * size_of(dtype);
    const Terms terms = make_terms(dtype, count * adders.size());
    Member& owner = members_[root];
    std::byte* const result = is_in_place
                                  ? terms.inputs[root]
                                  : owner.output + output_place(owner, terms.sums.size(), vector_bytes, 0);
    std::ranges::copy(terms.sums, owner.expected.data() + (result - owner.output));
    std::uint64_t at = 0;
    for (const std::uint32_t adder : adders) {
      const auto share = std::span(terms.sums).subspan(at, bytes);
      Member& maker = members_[adder];
      std::byte* const output =
          is_in_place ? terms.inputs[adder] + at : maker.output + output_place(maker, bytes, vector_bytes, 0);
      std::ranges::copy(share, maker.expected.data() + (output - maker.output));
      add_share(call, round, adder, terms, at, bytes, output);
      copy(call.part(root, round + 1), send(call, round + 1, adder, {root}, output, bytes).front(),
           result + at, bytes);
      at += bytes;
    }
  }
}

}  // namespace tutti::backend
