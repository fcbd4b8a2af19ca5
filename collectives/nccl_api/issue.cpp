// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/issue.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/operands.hpp"
#include "collectives/nccl_api/stand_ins.hpp"
#include "collectives/nccl_api/types.hpp"
#include "tutti/event.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

ReduceOp operation_of(const Call& call) {
  return operations[static_cast<std::size_t>(call.op)];
}

bool is_reduction(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}

bool has_root(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::reduce;
}

/// Returns whether two calls of a rank may be parts of one coalesced call.
bool go_together(const Call& a, const Call& b) {
  return a.kind == b.kind && (!is_reduction(a.kind) || a.op == b.op) &&
         (!has_root(a.kind) || a.peer == b.peer);
}

/// Returns whether two ranks make the same call.
bool are_alike(const Call& a, const Call& b) {
  return go_together(a, b) && a.dtype == b.dtype && a.count == b.count;
}

/// Calls of one kind that become one call of tutti, for each local member.
class Run {
 public:
  Run(Communicator& communicator, std::span<Batch* const> batches, std::size_t first, std::size_t end)
      : communicator_(communicator), end_(end - first) {
    reserve(batches.size());
    for (const Batch* const batch : batches)
      add_row(std::span<const Call>(batch->collectives).subspan(first, end_));
  }
  /// Makes a run of one call of each member.
  Run(Communicator& communicator, std::span<const Call> calls) : communicator_(communicator), end_(1) {
    reserve(calls.size());
    for (const Call& call : calls) add_row(std::span(&call, 1));
  }

  void issue() {
    join(Side::before);
    if (end_ == 1) {
      issue_one();
    } else {
      issue_coalesced();
    }
    join(Side::after);
  }

  /// Issues broadcasts from every rank in turn.
  void issue_as_all_gather() {
    join(Side::before);
    std::vector<Tensor> inputs;
    std::vector<JoinedPieces> outputs;
    for (std::size_t local = 0; local < rows_.size(); ++local) {
      const Row& row = rows_[local];
      const Call& own = row[static_cast<std::size_t>(row.front().comm->rank)];
      inputs.push_back(input(own, streams_[local]));
      outputs.emplace_back(row, Pieces::outputs, streams_[local]);
    }
    communicator_.all_gather(inputs, wholes(outputs), sizes(), streams_);
    for (const JoinedPieces& output : outputs) output.give_back();
    join(Side::after);
  }

  /// Issues reductions to every rank in turn.
  void issue_as_reduce_scatter() {
    join(Side::before);
    std::vector<JoinedPieces> inputs;
    std::vector<Tensor> outputs;
    for (std::size_t local = 0; local < rows_.size(); ++local) {
      const Row& row = rows_[local];
      inputs.emplace_back(row, Pieces::inputs, streams_[local]);
      outputs.push_back(output(row[static_cast<std::size_t>(row.front().comm->rank)]));
    }
    communicator_.reduce_scatter(wholes(inputs), outputs, operation_of(front()), sizes(), streams_);
    join(Side::after);
  }

 private:
  using Row = std::span<const Call>;
  enum class Side : std::uint8_t { before, after };

  void reserve(std::size_t members) {
    rows_.reserve(members);
    streams_.reserve(members);
  }
  void add_row(Row row) {
    rows_.push_back(row);
    streams_.push_back(row.front().comm->stream(row.front().stream));
  }
  [[nodiscard]] const Call& front() const { return rows_.front().front(); }

  /// Orders the run's stream of every member with the other streams of its calls.
  void join(Side side) {
    if (end_ == 1) return;
    for (std::size_t local = 0; local < rows_.size(); ++local) {
      for (const Call& call : rows_[local]) {
        if (call.stream == rows_[local].front().stream) continue;
        const Stream other = call.comm->stream(call.stream);
        if (side == Side::before) {
          streams_[local].wait_stream(other);
        } else {
          other.wait_stream(streams_[local]);
        }
      }
    }
  }

  [[nodiscard]] std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> sizes;
    for (const Call& call : rows_.front()) sizes.push_back(static_cast<std::int64_t>(call.count));
    return sizes;
  }

  static std::vector<Tensor> wholes(std::span<const JoinedPieces> pieces) {
    std::vector<Tensor> tensors;
    for (const JoinedPieces& one : pieces) tensors.push_back(one.whole());
    return tensors;
  }

  /// Returns the root's input of a broadcast if the root is local, else an undefined tensor.
  [[nodiscard]] Tensor roots_input(std::size_t index) const {
    for (std::size_t local = 0; local < rows_.size(); ++local) {
      const Call& call = rows_[local][index];
      if (call.peer == call.comm->rank) return input(call, streams_[local]);
    }
    return {};
  }

  [[nodiscard]] bool has_root_here() const {
    return std::ranges::any_of(rows_,
                               [](const Row& row) { return row.front().peer == row.front().comm->rank; });
  }

  /// Returns the outputs of all members for a call, or none for a reduction to another process.
  [[nodiscard]] std::vector<Tensor> outputs(std::size_t index) const {
    std::vector<Tensor> tensors;
    if (front().kind == Kind::reduce && !has_root_here()) return tensors;
    tensors.reserve(rows_.size());
    for (const Row& row : rows_) tensors.push_back(output_or_input(row[index]));
    return tensors;
  }

  void issue_one() {
    std::vector<Tensor> inputs;
    inputs.reserve(rows_.size());
    for (std::size_t local = 0; local < rows_.size() && front().kind != Kind::broadcast; ++local)
      inputs.push_back(input(rows_[local].front(), streams_[local]));
    const std::vector<Tensor> out = outputs(0);
    switch (front().kind) {
      case Kind::all_reduce:
        return communicator_.all_reduce(inputs, out, operation_of(front()), streams_);
      case Kind::broadcast:
        return communicator_.broadcast(roots_input(0), out, front().peer, streams_);
      case Kind::reduce:
        return communicator_.reduce(inputs, out, operation_of(front()), front().peer, streams_);
      case Kind::all_gather:
        return communicator_.all_gather(inputs, out, streams_);
      case Kind::reduce_scatter:
        return communicator_.reduce_scatter(inputs, out, operation_of(front()), streams_);
      default:
        return communicator_.all_to_all(inputs, out, streams_);
    }
  }

  using Lists = std::vector<std::vector<Tensor>>;

  void issue_coalesced() {
    Lists inputs;
    Lists out;
    std::vector<StandIns> stand_ins;
    for (std::size_t local = 0; local < rows_.size(); ++local) {
      std::vector<Tensor>& ins = inputs.emplace_back();
      std::vector<Tensor>& outs = out.emplace_back();
      for (const Call& call : rows_[local]) {
        if (needs_input(call)) ins.push_back(input(call, streams_[local]));
        outs.push_back(output_or_input(call));
      }
      const Call& first = rows_[local].front();
      const bool is_written = first.kind != Kind::reduce || first.peer == first.comm->rank;
      stand_ins.emplace_back(ins, is_written ? std::span<Tensor>(outs) : std::span<Tensor>(),
                             streams_[local]);
    }
    issue_lists(inputs, out);
    for (const StandIns& those : stand_ins) those.give_back();
  }

  void issue_lists(const Lists& inputs, const Lists& out) {
    switch (front().kind) {
      case Kind::all_reduce:
        return communicator_.all_reduce_coalesced(inputs, out, operation_of(front()), streams_);
      case Kind::broadcast:
        return communicator_.broadcast_coalesced(roots_inputs(), out, front().peer, streams_);
      case Kind::reduce:
        return communicator_.reduce_coalesced(inputs, has_root_here() ? out : Lists{}, operation_of(front()),
                                              front().peer, streams_);
      case Kind::all_gather:
        return communicator_.all_gather_coalesced(inputs, out, streams_);
      case Kind::reduce_scatter:
        return communicator_.reduce_scatter_coalesced(inputs, out, operation_of(front()), streams_);
      default:
        return communicator_.all_to_all_coalesced(inputs, out, streams_);
    }
  }

  [[nodiscard]] std::vector<Tensor> roots_inputs() const {
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < end_ && has_root_here(); ++i) tensors.push_back(roots_input(i));
    return tensors;
  }

  Communicator& communicator_;
  std::size_t end_;
  std::vector<Row> rows_;  ///< of each local member
  std::vector<Stream> streams_;
};

/// Returns the number of calls from `first` on that have every rank as their root, in order; 0 if not all.
std::size_t turns_from(std::span<const Call> calls, std::size_t first) {
  const auto ranks = static_cast<std::size_t>(calls[first].comm->ranks);
  if (ranks < 2 || !has_root(calls[first].kind) || calls.size() - first < ranks) return 0;
  for (std::size_t i = 0; i < ranks; ++i) {
    const Call& call = calls[first + i];
    const bool is_one_of_them = call.kind == calls[first].kind && call.dtype == calls[first].dtype &&
                                call.op == calls[first].op && call.peer == static_cast<int>(i);
    if (!is_one_of_them) return 0;
  }
  return ranks;
}

/// The messages of one rank, on the stream of the first: the streams of the others are ordered with it.
class MessagesOfRank {
 public:
  explicit MessagesOfRank(std::span<const Call> calls)
      : calls_(calls), stream_(calls.front().comm->stream(calls.front().stream)) {}

  [[nodiscard]] const Stream& stream() const noexcept { return stream_; }

  /// Adds the messages to a batch.
  void prepare(std::vector<Message>& messages) {
    for (const Stream& other : other_streams()) stream_.wait_stream(other);
    std::vector<Tensor> sent;
    std::vector<Tensor> received;
    for (const Call& call : calls_)
      (call.kind == Kind::send ? sent : received)
          .push_back(call.kind == Kind::send ? input(call, stream_) : output(call));
    stand_ins_ = StandIns::of_messages(sent, received, stream_);
    auto next_sent = sent.begin();
    auto next_received = received.begin();
    for (const Call& call : calls_)
      messages.push_back(call.kind == Kind::send ? Message::send(*next_sent++, call.peer)
                                                 : Message::recv(*next_received++, call.peer));
  }

  /// Does what is to be done once the batch has been made.
  void finish() const {
    stand_ins_->give_back();
    for (const Stream& other : other_streams()) other.wait_stream(stream_);
  }

 private:
  [[nodiscard]] std::vector<Stream> other_streams() const {
    std::vector<Stream> streams;
    for (const Call& call : calls_) {
      if (call.stream != calls_.front().stream) streams.push_back(call.comm->stream(call.stream));
    }
    return streams;
  }

  std::span<const Call> calls_;
  Stream stream_;
  std::optional<StandIns> stand_ins_{};
};

[[noreturn]] void refuse_different(const ncclComm& first, const ncclComm& other) {
  throw Refusal{
      ncclInvalidUsage,
      fmt::format("ncclGroupEnd: rank {} and rank {} have made different calls in the group, expected "
                  "the same collectives of the same sizes, types, operations and roots",
                  first.rank, other.rank)};
}

void require_alike(std::span<Batch* const> batches) {
  const Batch& first = *batches.front();
  for (const Batch* const other : batches) {
    const bool is_alike = std::ranges::equal(first.collectives, other->collectives, are_alike);
    if (!is_alike) refuse_different(*first.comm, *other->comm);
  }
}

}  // namespace

void issue(Communicator& communicator, const Call& call) {
  ncclComm& comm = *call.comm;
  const Stream stream = comm.stream(call.stream);
  const StreamList streams = std::span(&stream, 1);
  const Tensor in = needs_input(call) ? input(call, stream) : Tensor();
  const Tensor out = call.kind == Kind::send ? Tensor() : output_or_input(call);
  const TensorList inputs = std::span(&in, 1);
  const TensorList outputs = std::span(&out, 1);
  switch (call.kind) {
    case Kind::all_reduce:
      return communicator.all_reduce(inputs, outputs, operation_of(call), streams);
    case Kind::broadcast:
      return communicator.broadcast(in, outputs, call.peer, streams);
    case Kind::reduce:
      return communicator.reduce(inputs, call.peer == comm.rank ? outputs : TensorList{}, operation_of(call),
                                 call.peer, streams);
    case Kind::all_gather:
      return communicator.all_gather(inputs, outputs, streams);
    case Kind::reduce_scatter:
      return communicator.reduce_scatter(inputs, outputs, operation_of(call), streams);
    case Kind::all_to_all:
      return communicator.all_to_all(inputs, outputs, streams);
    case Kind::send:
      return communicator.send(in, call.peer, streams);
    case Kind::recv:
      return communicator.recv(out, call.peer, streams);
  }
}

void issue_of_all(Communicator& communicator, std::span<const Call> calls) {
  for (const Call& call : calls) {
    if (!are_alike(calls.front(), call)) refuse_different(*calls.front().comm, *call.comm);
  }
  Run(communicator, calls).issue();
}

void issue_collectives(Communicator& communicator, std::span<Batch* const> batches) {
  if (batches.size() > 1) require_alike(batches);
  const std::span<const Call> calls = batches.front()->collectives;
  std::size_t first = 0;
  while (first < calls.size()) {
    if (const std::size_t ranks = turns_from(calls, first); ranks != 0) {
      Run run(communicator, batches, first, first + ranks);
      if (calls[first].kind == Kind::broadcast) {
        run.issue_as_all_gather();
      } else {
        run.issue_as_reduce_scatter();
      }
      first += ranks;
      continue;
    }
    std::size_t end = first + 1;
    while (end < calls.size() && go_together(calls[first], calls[end]) && turns_from(calls, end) == 0) ++end;
    Run(communicator, batches, first, end).issue();
    first = end;
  }
}

void issue_messages(Communicator& communicator, std::span<Batch* const> batches) {
  std::vector<Stream> streams;
  for (const Device device : communicator.devices()) streams.push_back(current_stream(device));
  std::vector<MessagesOfRank> ranks;
  for (Batch* const batch : batches) {
    if (batch->messages.empty()) continue;
    ranks.emplace_back(batch->messages);
    const int local = batch->comm->rank - communicator.first_member();
    streams[static_cast<std::size_t>(local)] = ranks.back().stream();
  }
  if (ranks.empty()) return;
  std::vector<Message> messages;
  for (MessagesOfRank& rank : ranks) rank.prepare(messages);
  communicator.batch_send_recv(messages, streams);
  for (const MessagesOfRank& rank : ranks) rank.finish();
}

void issue_messages(Communicator& communicator, std::span<const Call> messages) {
  MessagesOfRank rank(messages);
  std::vector<Message> batch;
  batch.reserve(messages.size());
  rank.prepare(batch);
  communicator.batch_send_recv(batch, std::span(&rank.stream(), 1));
  rank.finish();
}

}  // namespace tutti::nccl_api
