// SPDX-License-Identifier: Apache-2.0
#include "tutti/communicator.hpp"

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/explain.hpp"
#include "collectives/communicator/message_call.hpp"
#include "collectives/communicator/team_call.hpp"
#include "transport/team/departure.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/team_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti {
namespace {

using collectives::LinkCall;
using collectives::Name;
using collectives::TeamCall;
using collectives::TeamContext;

}  // namespace

Communicator::Communicator(Exchange& exchange, const CommunicatorOptions& options)
    : CommunicatorCollectives(std::make_unique<Impl>(exchange, options, false)) {}
Communicator::Communicator(const CommunicatorOptions& options)
    : CommunicatorCollectives(std::make_unique<Impl>(options)) {}
Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : CommunicatorCollectives(std::move(impl)) {}
Communicator::Communicator() noexcept = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const {
  return static_cast<int>(impl().context->team().membership().rank());
}
int Communicator::rank_count() const {
  return static_cast<int>(impl().context->team().membership().rank_count());
}
int Communicator::member_count() const {
  return static_cast<int>(impl().context->team().membership().member_count());
}
int Communicator::first_member() const {
  return static_cast<int>(impl().context->team().membership().first_local());
}
const std::vector<Device>& Communicator::devices() const {
  return impl().context->devices();
}

void Communicator::send(const Tensor& tensor, int to, StreamList streams) {
  LinkCall call(*impl().context, "send", streams);
  call.add(Message::send(tensor, to), "tensor", "to");
  call.run();
}

void Communicator::recv(const Tensor& out, int from, StreamList streams) {
  LinkCall call(*impl().context, "recv", streams);
  call.add(Message::recv(out, from), "out", "from");
  call.run();
}

void Communicator::sendrecv(const Tensor& tensor, int to, const Tensor& out, int from, StreamList streams) {
  LinkCall call(*impl().context, "sendrecv", streams);
  call.add(Message::send(tensor, to), "tensor", "to");
  call.add(Message::recv(out, from), "out", "from");
  call.run();
}

Tensor Communicator::sendrecv(const Tensor& tensor, int to, int from) {
  LinkCall call(*impl().context, "sendrecv", {});
  call.add(Message::send(tensor, to), "tensor", "to");
  call.join_capture();
  Tensor out = empty(tensor.sizes(), {.dtype = tensor.dtype(), .device = tensor.device()});
  call.add(Message::recv(out, from), "out", "from");
  call.run();
  return out;
}

void Communicator::batch_send_recv(ListOf<Message> messages, StreamList streams) {
  LinkCall call(*impl().context, "batch_send_recv", streams);
  for (std::size_t i = 0; i < messages.size(); ++i)
    call.add(messages[i], Name("messages", i), Name("the peer of messages", i));
  call.run();
}

std::optional<Communicator> Communicator::split(std::optional<int> color, int key) {
  struct Wish {
    int has_color = 0;
    int color = 0;
    int key = 0;
    std::uint64_t start = 0;
  };
  TeamContext& context = *impl().context;
  transport::team::free_deferred(context.require_own_process().runtime(),
                                 context.team().membership().devices());
  TeamCall call(context, Collective::split, {});
  const std::uint64_t sequence = call.post_without_work();
  transport::team::TeamExchange all(context.team(), sequence);
  const std::vector<Wish> wishes =
      transport::team::gather(all, Wish{.has_color = color ? 1 : 0,
                                        .color = color.value_or(0),
                                        .key = key,
                                        .start = transport::team::TeamExchange::part_start(context.team())});
  if (!color) return std::nullopt;

  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].has_color == 1 && wishes[rank].color == *color) ranks.push_back(rank);
  }
  std::ranges::stable_sort(ranks, {}, [&](std::size_t rank) { return wishes[rank].key; });
  std::vector<std::uint64_t> starts;
  for (const std::size_t rank : ranks) starts.push_back(wishes[rank].start);
  transport::team::TeamExchange part(context.team(), sequence, std::move(ranks), std::move(starts));
  return Communicator(std::make_unique<Impl>(part, impl_->options(), true));
}

PlanSummary Communicator::last_plan() const {
  impl().context->require_own_process();
  const std::lock_guard lock(impl().context->team().calls().mutex());
  return impl().context->last_plan();
}

std::string Communicator::explain() const {
  return collectives::explain(*impl().context);
}
std::string Communicator::explain(const Workload& workload) const {
  return collectives::explain(impl().context->require_own_process(), workload);
}

void Communicator::abort(std::string_view reason) noexcept {
  if (!*this || impl_->is_forked_off()) return;
  impl_->context->team().abort().set(ErrorCode::aborted, fmt::format("rank {} gave up: {}", rank(), reason));
}
void Communicator::check() const {
  impl().context->require_own_process().team().abort().require_running();
}
bool Communicator::is_running() const noexcept {
  return *this && !impl_->context->team().abort().is_set();
}
std::string Communicator::flight_record() const {
  if (!impl().is_forked_off())
    static_cast<void>(impl().context->team().progress().is_idle());  // looks what is complete
  return impl().context->team().flight_record().json();
}

}  // namespace tutti
