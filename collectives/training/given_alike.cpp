// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/given_alike.hpp"

#include "base/hash.hpp"
#include "collectives/call/arguments.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/team_call.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::team::gather;
using transport::team::gather_lists;
using transport::team::Note;
using transport::team::TeamExchange;

/// Names are left out: forms of one function may call the same argument differently.
std::uint64_t hash_of(const GivenAlike::Item& item) noexcept {
  std::uint64_t hash = item.value.size();
  for (const char letter : item.value) hash = mix(hash, static_cast<unsigned char>(letter));
  return hash;
}

/// An item that ranks have given differently: the first one, and the first rank that differs from rank 0.
struct Difference {
  std::size_t item = 0;
  std::size_t rank = 0;
};

Difference first_difference(TeamExchange& exchange, const std::vector<GivenAlike::Item>& items) {
  const std::vector<std::size_t> counts = gather(exchange, items.size());
  std::vector<std::uint64_t> mine(*std::ranges::max_element(counts), 0);
  std::ranges::transform(items, mine.begin(), hash_of);
  const std::vector<std::uint64_t> all = gather_lists<std::uint64_t>(exchange, mine);
  for (std::size_t item = 0; item < mine.size(); ++item) {
    for (std::size_t rank = 1; rank < counts.size(); ++rank) {
      if (all[rank * mine.size() + item] != all[item]) return {item, rank};
    }
  }
  throw Error(ErrorCode::internal, "ranks report different hashes, but those of no item differ");
}

[[noreturn]] void refuse_difference(TeamExchange& exchange, const Arguments& arguments,
                                    const std::vector<GivenAlike::Item>& items) {
  const Difference found = first_difference(exchange, items);
  const GivenAlike::Item item = found.item < items.size() ? items[found.item] : GivenAlike::Item{};
  const std::vector<Note> values = gather(exchange, Note(item.value));
  arguments.fail("{} is {} on rank {}, and {} on rank 0, expected the same on all ranks", item.name,
                 values[found.rank].string(), found.rank, values[0].string());
}

/// Some ranks have refused what they were given: all others say what the first of them has said.
void refuse_as_others(TeamExchange& exchange, const Arguments& arguments, const std::string& own_refusal) {
  const std::string refusal = transport::team::first_complaint(exchange, own_refusal);
  if (own_refusal.empty()) arguments.fail("another rank refused its arguments: {}", refusal);
}

}  // namespace

void GivenAlike::add_operation(const ReduceOp& operation) {
  transport::team::Signature signature;
  signature.set_operation(operation);
  add("options.operation", operation_in_words(signature));
}

void GivenAlike::add_tensors(const std::string& name, std::span<const Tensor> tensors) {
  add(name, fmt::format("a list of {}", tensors.size()));
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    add(fmt::format("{}[{}]", name, t),
        fmt::format("{} {}", name_of(tensors[t].dtype()), to_string(tensors[t].sizes())));
  }
}

std::uint64_t GivenAlike::hash() const noexcept {
  std::uint64_t hash = items_.size();
  for (const Item& item : items_) hash = mix(hash, hash_of(item));
  return hash | 1U;
}

void require_alike(Communicator& communicator, std::string_view function, InCapture in_capture,
                   const std::function<GivenAlike()>& describe) {
  GivenAlike given;
  std::exception_ptr refusal;
  std::string refusal_text;
  try {
    given = describe();
  } catch (const Error& error) {
    if (communicator.rank_count() == 1 || error.code() != ErrorCode::invalid_argument) throw;
    refusal = std::current_exception();
    refusal_text = error.what();
  }
  if (communicator.rank_count() == 1) return;
  TeamContext& context = CommunicatorAccess::context(communicator);
  const Arguments arguments(context.runtime(), function);
  TeamCall call(context, Collective::all_gather, {});
  if (call.is_in_capture()) {
    if (refusal != nullptr) std::rethrow_exception(refusal);
    if (in_capture == InCapture::uncompared) return;
    arguments.unsupported("the current stream is being captured");
  }
  call.signature().set_purpose(function);
  TeamExchange exchange(context.team(), call.post_without_work());
  const std::uint64_t mine = refusal == nullptr ? given.hash() : 0;
  const std::vector<std::uint64_t> hashes = gather(exchange, mine);
  if (std::ranges::find(hashes, 0U) != hashes.end()) {
    refuse_as_others(exchange, arguments, refusal_text);
    std::rethrow_exception(refusal);
  }
  if (std::ranges::find_if(hashes, [&](std::uint64_t hash) { return hash != hashes[0]; }) != hashes.end())
    refuse_difference(exchange, arguments, given.items());
}

}  // namespace tutti::collectives
