// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "interrupts.hpp"
#include "operands.hpp"
#include "scopes.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/patience.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using SizesOfMembers = std::vector<Sizes>;
using Use = Operands::Use;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// A communicator whose functions give up the GIL, and whose waits Ctrl-C ends.
class PythonCommunicator {
 public:
  explicit PythonCommunicator(Communicator communicator)
      : communicator_(std::make_shared<Communicator>(std::move(communicator))) {}
  PythonCommunicator(const PythonCommunicator&) = delete;
  PythonCommunicator& operator=(const PythonCommunicator&) = delete;
  ~PythonCommunicator() { close(); }

  /// Waits for other ranks as the destructor of `Communicator` says; if other threads are in calls, the last
  /// of these does.
  void close() {
    if (communicator_ == nullptr) return;
    std::shared_ptr<Communicator> last = std::move(communicator_);
    const nb::gil_scoped_release release;
    const AbortOnInterrupt interruptible(*last);
    last.reset();
  }

  [[nodiscard]] bool is_open() const noexcept { return communicator_ != nullptr; }
  [[nodiscard]] Communicator& get() const {
    if (!is_open()) {
      throw Error(ErrorCode::invalid_argument, "the communicator has been closed, expected one that has not");
    }
    return *communicator_;
  }

  template <class Function>
  auto call(Function&& function) const {
    static_cast<void>(get());
    std::shared_ptr<Communicator> shared = communicator_;
    const nb::gil_scoped_release release;
    const std::shared_ptr<Communicator> kept = std::move(shared);  // it may go without the GIL only
    const AbortOnInterrupt interruptible(*kept);
    return function(*kept);
  }

  [[nodiscard]] Operands operands() const { return Operands(get().devices()); }

 private:
  std::shared_ptr<Communicator> communicator_;
};

/// Exchanges messages by a function of the program.
class FunctionExchange final : public Exchange {
 public:
  FunctionExchange(int rank, int size, nb::callable all_gather, nb::object limit_waits)
      : rank_(rank), size_(size), all_gather_(std::move(all_gather)), limit_waits_(std::move(limit_waits)) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const nb::gil_scoped_acquire acquire;
    const nb::object gathered = all_gather_(nb::bytes(mine.data(), mine.size()));
    std::size_t rank = 0;
    for (const nb::handle one : gathered) take(nb::cast<nb::bytes>(one), rank++, all);
    if (rank != static_cast<std::size_t>(size_)) refuse("has " + std::to_string(rank) + " values", rank);
  }
  void limit_waits(std::chrono::milliseconds timeout) override {
    const nb::gil_scoped_acquire acquire;
    if (!limit_waits_.is_none()) limit_waits_(static_cast<double>(timeout.count()) / 1000);
  }

 private:
  void take(const nb::bytes& bytes, std::size_t rank, std::span<std::byte> all) const {
    const std::size_t length = all.size() / static_cast<std::size_t>(size_);
    if (rank >= static_cast<std::size_t>(size_)) refuse("has more than that", rank);
    if (bytes.size() != length) refuse("has " + std::to_string(bytes.size()) + " bytes from a rank", rank);
    const auto* const first = static_cast<const std::byte*>(bytes.data());
    std::copy_n(first, length, all.begin() + static_cast<std::ptrdiff_t>(rank * length));
  }
  [[noreturn]] void refuse(const std::string& what, std::size_t rank) const {
    throw Error(ErrorCode::invalid_argument,
                "all_gather: the result " + what + " (rank " + std::to_string(rank) + "), expected " +
                    std::to_string(size_) + " values of equal length, one from each rank");
  }

  int rank_;
  int size_;
  nb::callable all_gather_;
  nb::object limit_waits_;
};

Determinism determinism_of(const std::string& text) {
  if (text == "fastest") return Determinism::fastest;
  if (text == "bitwise") return Determinism::bitwise;
  throw Error(ErrorCode::invalid_argument, "determinism is '" + text + "', expected 'fastest' or 'bitwise'");
}

/// Reads the options that every maker of a communicator takes by keyword.
CommunicatorOptions options_of(const nb::dict& given) {
  CommunicatorOptions options;
  for (const auto [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (value.is_none()) continue;
    if (name == "devices") {
      options.devices = DevicesArgument{nb::borrow(value)}.get();
    } else if (name == "timeout") {
      options.timeout = milliseconds_of(nb::cast<double>(value));
    } else if (name == "patience") {
      options.patience = milliseconds_of(nb::cast<double>(value));
    } else if (name == "window_bytes") {
      options.window_bytes = nb::cast<std::size_t>(value);
    } else if (name == "transport") {
      options.transport = parse_transport(nb::cast<std::string>(value));
    } else if (name == "determinism") {
      options.determinism = determinism_of(nb::cast<std::string>(value));
    } else if (name == "multiprocessors") {
      options.multiprocessors = nb::cast<int>(value);
    } else {
      throw Error(
          ErrorCode::invalid_argument,
          "Communicator: '" + name +
              "' is no option, expected devices, timeout, patience, window_bytes, transport, determinism or "
              "multiprocessors");
    }
  }
  return options;
}

std::unique_ptr<PythonCommunicator> made(Communicator communicator) {
  return std::make_unique<PythonCommunicator>(std::move(communicator));
}

std::unique_ptr<PythonCommunicator> local(const DevicesArgument& devices, const nb::kwargs& given) {
  CommunicatorOptions options = options_of(given);
  options.devices = devices.get();
  const nb::gil_scoped_release release;
  return made(Communicator(options));
}

std::unique_ptr<PythonCommunicator> from_exchange(int rank, int size, nb::callable all_gather,
                                                  nb::object limit_waits, const nb::kwargs& given) {
  const CommunicatorOptions options = options_of(given);
  FunctionExchange exchange(rank, size, std::move(all_gather), std::move(limit_waits));
  const nb::gil_scoped_release release;
  return made(Communicator(exchange, options));
}

void watch_signals() {
  const nb::gil_scoped_acquire acquire;
  check_signals();
}

std::unique_ptr<PythonCommunicator> from_env(const nb::kwargs& given) {
  CommunicatorOptions options = options_of(given);
  const tcp::Rendezvous rendezvous = tcp::rendezvous();
  const nb::gil_scoped_release release;
  if (options.devices.empty()) options.devices = {Device(rendezvous.local_rank % device_count())};
  tcp::Exchange exchange(rendezvous, watch_signals);
  return made(Communicator(exchange, options));
}

// Calls. Each takes operands, makes the call without the GIL, and gives results back.

bool is_root(const Communicator& communicator, int root) {
  const int first = communicator.first_member();
  return root >= first && root < first + static_cast<int>(communicator.devices().size());
}

/// Returns the local number of the root, or of the first member where the root is another rank's, whose
/// operand is ignored.
std::size_t index_of_root(const Communicator& communicator, int root) {
  return is_root(communicator, root) ? static_cast<std::size_t>(root - communicator.first_member()) : 0;
}

nb::object broadcast(const PythonCommunicator& self, const TensorsArgument& tensor, int root,
                     const TensorsArgument& out, const StreamsArgument& streams) {
  Operands operands = self.operands();
  const Tensor source = operands.tensor(tensor.object, index_of_root(self.get(), root), Use::read, "tensor");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return c.broadcast(source, root); }));
  }
  const std::vector<Tensor> targets = operands.tensors(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.broadcast(source, targets, root); });
  operands.finish();
  return out.object;
}

nb::object broadcast_in_place(const PythonCommunicator& self, const TensorsArgument& tensors, int root,
                              const StreamsArgument& streams) {
  Operands operands = self.operands();
  const std::vector<Tensor> all = operands.tensors(tensors, Use::read_write, "tensors");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.broadcast(all, root); });
  operands.finish();
  return tensors.object;
}

nb::object broadcast_coalesced_in_place(const PythonCommunicator& self, const TensorsArgument& tensors,
                                        int root, const StreamsArgument& streams) {
  Operands operands = self.operands();
  const auto all = operands.lists(tensors, Use::read_write, "tensors");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.broadcast_coalesced(all, root); });
  operands.finish();
  return tensors.object;
}

nb::object broadcast_coalesced(const PythonCommunicator& self, const TensorsArgument& tensors, int root,
                               const StreamsArgument& streams) {
  Operands operands = self.operands();
  std::vector<Tensor> sources;
  if (!tensors.object.is_none()) {
    const std::size_t index = index_of_root(self.get(), root);
    for (const nb::handle one : tensors.object)
      sources.push_back(operands.tensor(one, index, Use::read, "tensors"));
  }
  operands.make_current(streams);
  return operands.results(self.call([&](Communicator& c) { return c.broadcast_coalesced(sources, root); }));
}

nb::object reduce(const PythonCommunicator& self, const TensorsArgument& inputs, int root,
                  const TensorsArgument& out, const OperationArgument& op, const StreamsArgument& streams) {
  Operands operands = self.operands();
  const std::vector<Tensor> sources = operands.tensors(inputs, Use::read, "inputs");
  const ReduceOp operation = op.get();
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.result(self.call([&](Communicator& c) { return c.reduce(sources, operation, root); }));
  }
  // Only the root's output is written.
  const bool writes = is_root(self.get(), root);
  const std::vector<Tensor> targets =
      writes ? operands.tensors(out, Use::read_write, "out") : std::vector<Tensor>{};
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.reduce(sources, targets, operation, root); });
  operands.finish();
  return out.object;
}

nb::object reduce_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs, int root,
                            const TensorsArgument& out, const OperationArgument& op,
                            const StreamsArgument& streams) {
  Operands operands = self.operands();
  const auto sources = operands.lists(inputs, Use::read, "inputs");
  const ReduceOp operation = op.get();
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.list(
        self.call([&](Communicator& c) { return c.reduce_coalesced(sources, operation, root); }));
  }
  const bool writes = is_root(self.get(), root);
  const auto targets =
      writes ? operands.lists(out, Use::read_write, "out") : std::vector<std::vector<Tensor>>{};
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.reduce_coalesced(sources, targets, operation, root); });
  operands.finish();
  return out.object;
}

/// Makes a call with a tensor of each member, with given outputs or with returned ones.
template <class Given, class Returned>
nb::object call_tensors(const PythonCommunicator& self, const TensorsArgument& inputs,
                        const TensorsArgument& out, const StreamsArgument& streams, Given&& given,
                        Returned&& returned) {
  Operands operands = self.operands();
  const std::vector<Tensor> sources = operands.tensors(inputs, Use::read, "inputs");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return returned(c, sources); }));
  }
  const std::vector<Tensor> targets = operands.tensors(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { given(c, sources, targets); });
  operands.finish();
  return out.object;
}

/// Makes a call with a list of tensors of each member.
template <class Given, class Returned>
nb::object call_lists(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, const StreamsArgument& streams, Given&& given,
                      Returned&& returned) {
  Operands operands = self.operands();
  const auto sources = operands.lists(inputs, Use::read, "inputs");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return returned(c, sources); }));
  }
  const auto targets = operands.lists(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { given(c, sources, targets); });
  operands.finish();
  return out.object;
}

nb::object all_reduce(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, const OperationArgument& op,
                      const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) { c.all_reduce(in, to, operation); },
      [&](Communicator& c, const auto& in) { return c.all_reduce(in, operation); });
}

nb::object all_reduce_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                const TensorsArgument& out, const OperationArgument& op,
                                const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_lists(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) { c.all_reduce_coalesced(in, to, operation); },
      [&](Communicator& c, const auto& in) { return c.all_reduce_coalesced(in, operation); });
}

nb::object all_gather(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, const std::optional<Sizes>& sizes, std::optional<int> dim,
                      const StreamsArgument& streams) {
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) {
        if (!sizes) return c.all_gather(in, to);
        if (!dim) return c.all_gather(in, to, ListOf<std::int64_t>(*sizes));
        c.all_gather(in, to, ListOf<std::int64_t>(*sizes), *dim);
      },
      [&](Communicator& c, const auto& in) {
        if (!sizes) return c.all_gather(in);
        if (!dim) return c.all_gather(in, *sizes);
        return c.all_gather(in, *sizes, *dim);
      });
}

nb::object all_gather_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                const TensorsArgument& out, const StreamsArgument& streams) {
  return call_lists(
      self, inputs, out, streams,
      [](Communicator& c, const auto& in, const auto& to) { c.all_gather_coalesced(in, to); },
      [](Communicator& c, const auto& in) { return c.all_gather_coalesced(in); });
}

nb::object reduce_scatter(const PythonCommunicator& self, const TensorsArgument& inputs,
                          const TensorsArgument& out, const OperationArgument& op,
                          const std::optional<Sizes>& sizes, std::optional<int> dim,
                          const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) {
        if (!sizes) return c.reduce_scatter(in, to, operation);
        if (!dim) return c.reduce_scatter(in, to, operation, ListOf<std::int64_t>(*sizes));
        c.reduce_scatter(in, to, operation, ListOf<std::int64_t>(*sizes), *dim);
      },
      [&](Communicator& c, const auto& in) {
        if (!sizes) return c.reduce_scatter(in, operation);
        if (!dim) return c.reduce_scatter(in, operation, *sizes);
        return c.reduce_scatter(in, operation, *sizes, *dim);
      });
}

nb::object reduce_scatter_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                    const TensorsArgument& out, const OperationArgument& op,
                                    const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_lists(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) { c.reduce_scatter_coalesced(in, to, operation); },
      [&](Communicator& c, const auto& in) { return c.reduce_scatter_coalesced(in, operation); });
}

/// Lets a process with one member give its sizes without a list around them.
std::optional<SizesOfMembers> sizes_of_members(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  const bool is_nested = nb::len(given) > 0 && nb::isinstance<nb::sequence>(given[0]);
  if (is_nested) return nb::cast<SizesOfMembers>(given);
  return SizesOfMembers{nb::cast<Sizes>(given)};
}

nb::object all_to_all(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, nb::object input_sizes, nb::object out_sizes,
                      const StreamsArgument& streams) {
  const std::optional<SizesOfMembers> from = sizes_of_members(input_sizes);
  const std::optional<SizesOfMembers> to_sizes = sizes_of_members(out_sizes);
  if (from.has_value() != to_sizes.has_value()) {
    throw Error(ErrorCode::invalid_argument,
                "all_to_all: one of input_sizes and out_sizes is None, expected both or neither");
  }
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) {
        if (from) return c.all_to_all(in, to, *from, *to_sizes);
        c.all_to_all(in, to);
      },
      [&](Communicator& c, const auto& in) {
        if (from) return c.all_to_all(in, *from, *to_sizes);
        return c.all_to_all(in);
      });
}

nb::object all_to_all_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                const TensorsArgument& out, const StreamsArgument& streams) {
  return call_lists(
      self, inputs, out, streams,
      [](Communicator& c, const auto& in, const auto& to) { c.all_to_all_coalesced(in, to); },
      [](Communicator& c, const auto& in) { return c.all_to_all_coalesced(in); });
}

nb::object scatter(const PythonCommunicator& self, const TensorsArgument& tensor, int root,
                   const TensorsArgument& out, int dim, const StreamsArgument& streams) {
  Operands operands = self.operands();
  const Tensor source = operands.tensor(tensor.object, index_of_root(self.get(), root), Use::read, "tensor");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return c.scatter(source, root, dim); }));
  }
  const std::vector<Tensor> targets = operands.tensors(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.scatter(source, targets, root, dim); });
  operands.finish();
  return out.object;
}

nb::object gather(const PythonCommunicator& self, const TensorsArgument& tensors, int root,
                  const TensorsArgument& out, int dim, const StreamsArgument& streams) {
  Operands operands = self.operands();
  const std::vector<Tensor> sources = operands.tensors(tensors, Use::read, "tensors");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.result(self.call([&](Communicator& c) { return c.gather(sources, root, dim); }));
  }
  const bool writes = is_root(self.get(), root);
  const Tensor target =
      writes ? operands.tensor(out.object, index_of_root(self.get(), root), Use::write, "out") : Tensor();
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.gather(sources, target, root, dim); });
  operands.finish();
  return out.object;
}

void barrier(const PythonCommunicator& self, const StreamsArgument& streams) {
  Operands operands = self.operands();
  operands.make_current(streams);
  self.call([](Communicator& c) { c.barrier(); });
  for (const Device device : self.get().devices()) {
    if (Work::current() != nullptr) Work::current()->add(device);
  }
}

void send(const PythonCommunicator& self, const TensorsArgument& tensor, int to,
          const StreamsArgument& streams) {
  Operands operands = self.operands();
  const Tensor source = operands.tensor(tensor.object, 0, Use::read, "tensor");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.send(source, to); });
}

nb::object recv(const PythonCommunicator& self, const TensorsArgument& out, int from,
                const StreamsArgument& streams) {
  Operands operands = self.operands();
  const Tensor target = operands.tensor(out.object, 0, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.recv(target, from); });
  operands.finish();
  return out.object;
}

nb::object sendrecv(const PythonCommunicator& self, const TensorsArgument& tensor, int to, int from,
                    const TensorsArgument& out, const StreamsArgument& streams) {
  Operands operands = self.operands();
  const Tensor source = operands.tensor(tensor.object, 0, Use::read, "tensor");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.result(self.call([&](Communicator& c) { return c.sendrecv(source, to, from); }));
  }
  const Tensor target = operands.tensor(out.object, 0, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.sendrecv(source, to, target, from); });
  operands.finish();
  return out.object;
}

/// Takes ('send', tensor, to) and ('recv', out, from).
Message message_of(Operands& operands, nb::handle given) {
  const auto kind = nb::cast<std::string>(given[0]);
  const auto peer = nb::cast<int>(given[2]);
  if (kind == "send") return Message::send(operands.tensor(given[1], 0, Use::read, "tensor"), peer);
  if (kind == "recv") return Message::recv(operands.tensor(given[1], 0, Use::write, "out"), peer);
  throw Error(ErrorCode::invalid_argument, "batch_send_recv: a message begins with '" + kind +
                                               "', expected ('send', tensor, to) or ('recv', out, from)");
}

void batch_send_recv(const PythonCommunicator& self, const nb::list& given, const StreamsArgument& streams) {
  Operands operands = self.operands();
  std::vector<Message> messages;
  for (const nb::handle one : given) messages.push_back(message_of(operands, one));
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.batch_send_recv(messages); });
  operands.finish();
}

/// Calls a function of the program, on whichever thread.
std::function<void()> function_of(nb::callable calls) {
  const auto kept = shared_object(calls);
  return [kept, calls = nb::handle(calls)] {
    const nb::gil_scoped_acquire acquire;
    nb::borrow<nb::callable>(calls)();
  };
}

std::unique_ptr<PythonCommunicator> split(const PythonCommunicator& self, std::optional<int> color, int key) {
  std::optional<Communicator> part = self.call([&](Communicator& c) { return c.split(color, key); });
  return part ? made(std::move(*part)) : nullptr;
}

LateRanks late_ranks_of(const std::string& text) {
  if (text == "fail") return LateRanks::fail;
  if (text == "leave_out") return LateRanks::leave_out;
  throw Error(ErrorCode::invalid_argument, "shrink: late is '" + text + "', expected 'fail' or 'leave_out'");
}

std::unique_ptr<PythonCommunicator> shrink(const PythonCommunicator& self, std::vector<int> leaving,
                                           const std::string& late, std::optional<double> timeout) {
  ShrinkOptions options{.leaving = std::move(leaving), .late = late_ranks_of(late)};
  if (timeout) options.timeout = milliseconds_of(*timeout);
  Communicator rest = self.call([&](Communicator& c) { return c.shrink(options); });
  return rest ? made(std::move(rest)) : nullptr;
}

Collective collective_of(const std::string& name) {
  for (std::size_t i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (name_of(collective) == name) return collective;
  }
  throw Error(ErrorCode::invalid_argument,
              "explain: collective is '" + name + "', expected one such as 'all_reduce'");
}

std::string explain(const PythonCommunicator& self, const std::optional<std::string>& collective,
                    std::size_t bytes, const DTypeArgument& dtype, const OperationArgument& op, int root) {
  if (!collective) return self.get().explain();
  const Workload workload{.collective = collective_of(*collective),
                          .bytes = bytes,
                          .dtype = dtype.optional().value_or(DType::float32),
                          .reduce_kind = op.get().kind(),
                          .root = Device(root)};
  return self.get().explain(workload);
}

using Class = nb::class_<PythonCommunicator>;

void bind_makers(Class& communicators) {
  communicators
      .def_static("local", &local, nb::arg("devices") = nb::none(), nb::arg("options"),
                  "A communicator of this process's devices alone; all of them by default.")
      .def_static(
          "from_exchange", &from_exchange, nb::arg("rank"), nb::arg("size"), nb::arg("all_gather"),
          nb::arg("limit_waits") = nb::none(), nb::arg("options"),
          "A communicator of processes that exchange data by `all_gather(mine: bytes) -> list[bytes]` of the "
          "program, which returns the bytes of all ranks, in their order. `limit_waits(seconds)` bounds "
          "later waits.")
      .def_static(
          "from_env", &from_env, nb::arg("options"),
          "A communicator of the processes that torchrun, Slurm or a script has started: RANK, WORLD_SIZE, "
          "LOCAL_RANK, MASTER_ADDR, MASTER_PORT. The device is LOCAL_RANK unless `devices` is given.");
}

/// Adds a maker that is written in Python.
void bind_python_maker(Class& communicators, const char* name, const char* signature, const char* text) {
  communicators.def_static(
      name,
      [name](const nb::args& arguments, const nb::kwargs& options) -> nb::object {
        return nb::module_::import_("tutti.communicator").attr(name)(*arguments, **options);
      },
      nb::sig(signature), text);
}

void bind_python_makers(Class& communicators) {
  bind_python_maker(communicators, "from_store",
                    "def from_store(store: typing.Any, rank: int, size: int, *, prefix: str = 'tutti', "
                    "**options) -> Communicator",
                    "A communicator of `size` processes that share a store of torch.distributed, or any with "
                    "`set`, `get` and `check`. "
                    "`prefix` tells apart communicators that are made with one store.");
  bind_python_maker(
      communicators, "from_mpi4py", "def from_mpi4py(comm: typing.Any, **options) -> Communicator",
      "A communicator of the processes of an mpi4py communicator, which may be freed right away.");
}

void bind_description(Class& communicators) {
  communicators.def_prop_ro("rank", [](const PythonCommunicator& self) { return self.get().rank(); })
      .def_prop_ro("rank_count", [](const PythonCommunicator& self) { return self.get().rank_count(); })
      .def_prop_ro(
          "member_count", [](const PythonCommunicator& self) { return self.get().member_count(); },
          "The number of devices of all ranks.")
      .def_prop_ro("first_member", [](const PythonCommunicator& self) { return self.get().first_member(); })
      .def_prop_ro(
          "devices", [](const PythonCommunicator& self) { return self.get().devices(); },
          "The devices of this process's members.")
      .def(
          "last_plan", [](const PythonCommunicator& self) { return self.get().last_plan(); },
          "The plan of this process's last call.")
      .def("explain", &explain, nb::arg("collective") = nb::none(), nb::arg("bytes") = 0,
           nb::arg("dtype") = nb::none(), nb::arg("op") = nb::none(), nb::arg("root") = 0,
           "How data may travel between the members, or how a call of so many bytes would, and why.")
      .def(
          "abort",
          [](const PythonCommunicator& self, const std::string& reason) {
            if (self.is_open()) self.get().abort(reason);
          },
          nb::arg("reason"), "Ends the communicator on all ranks. Returns at once.")
      .def("is_running",
           [](const PythonCommunicator& self) { return self.is_open() && self.get().is_running(); })
      .def(
          "check", [](const PythonCommunicator& self) { self.get().check(); },
          "Raises the error that has ended the communicator, if any.")
      .def(
          "flight_record", [](const PythonCommunicator& self) { return self.get().flight_record(); },
          "Every rank's last calls, as one line of JSON.")
      .def("close", &PythonCommunicator::close,
           "Destroys the communicator; waits for calls under way, and for the other ranks to complete as "
           "many.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__", [](PythonCommunicator& self, nb::args) { self.close(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
}

void bind_rooted(Class& communicators) {
  communicators
      .def("broadcast", &broadcast, nb::arg("tensor").none(), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("streams") = nb::none(),
           "Copies the root's tensor into every `out`. Without `out`, returns a copy for each local member, "
           "and waits for "
           "the sizes; other ranks may give None.")
      .def("broadcast_", &broadcast_in_place, nb::arg("tensors"), nb::arg("root"),
           nb::arg("streams") = nb::none(),
           "Copies the root's tensor into all others, which have its sizes and element type.")
      .def("broadcast_coalesced", &broadcast_coalesced, nb::arg("tensors").none(), nb::arg("root"),
           nb::arg("streams") = nb::none(), "Returns copies of the root's list of tensors.")
      .def("broadcast_coalesced_", &broadcast_coalesced_in_place, nb::arg("tensors"), nb::arg("root"),
           nb::arg("streams") = nb::none(), "Copies the root's list of tensors into all others.")
      .def("reduce", &reduce, nb::arg("inputs"), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("op") = "sum", nb::arg("streams") = nb::none(),
           "Combines all members' inputs, in ascending order of members, at the root; None elsewhere.")
      .def("reduce_coalesced", &reduce_coalesced, nb::arg("inputs"), nb::arg("root"),
           nb::arg("out") = nb::none(), nb::arg("op") = "sum", nb::arg("streams") = nb::none())
      .def("scatter", &scatter, nb::arg("tensor").none(), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("dim") = 0, nb::arg("streams") = nb::none(),
           "Cuts the root's tensor along `dim`: a part for each member. Other ranks give None.")
      .def("gather", &gather, nb::arg("tensors"), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("dim") = 0, nb::arg("streams") = nb::none(),
           "Joins all members' tensors along `dim` at the root; None elsewhere.");
}

void bind_rootless(Class& communicators) {
  communicators
      .def("all_reduce", &all_reduce, nb::arg("inputs"), nb::arg("out") = nb::none(), nb::arg("op") = "sum",
           nb::arg("streams") = nb::none(),
           "Combines all members' inputs, in ascending order of members, into every `out`, which may be the "
           "input.")
      .def("all_reduce_coalesced", &all_reduce_coalesced, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("op") = "sum", nb::arg("streams") = nb::none(),
           "All-reduces lists of tensors as one operation.")
      .def("all_gather", &all_gather, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("sizes") = nb::none(), nb::arg("dim") = nb::none(), nb::arg("streams") = nb::none(),
           "Concatenates all members' inputs. `sizes` are those of all members' inputs if they differ: "
           "elements, or along "
           "`dim`.")
      .def("all_gather_coalesced", &all_gather_coalesced, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("streams") = nb::none())
      .def("reduce_scatter", &reduce_scatter, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("op") = "sum", nb::arg("sizes") = nb::none(), nb::arg("dim") = nb::none(),
           nb::arg("streams") = nb::none(),
           "Combines all members' inputs and cuts the result into one part per member.")
      .def("reduce_scatter_coalesced", &reduce_scatter_coalesced, nb::arg("inputs"),
           nb::arg("out") = nb::none(), nb::arg("op") = "sum", nb::arg("streams") = nb::none())
      .def("all_to_all", &all_to_all, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("input_sizes") = nb::none(), nb::arg("out_sizes") = nb::none(),
           nb::arg("streams") = nb::none(),
           "Cuts every input into parts, one for each member: part j of member i becomes part i of member j. "
           "Sizes count "
           "elements of each part.")
      .def("all_to_all_coalesced", &all_to_all_coalesced, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("streams") = nb::none())
      .def("barrier", &barrier, nb::arg("streams") = nb::none(),
           "Makes later work on the members' streams run after all earlier work there, on all ranks. Does "
           "not wait.");
}

void bind_messages(Class& communicators) {
  communicators
      .def("send", &send, nb::arg("tensor"), nb::arg("to"), nb::arg("streams") = nb::none(),
           "Sends to member `to`.")
      .def("recv", &recv, nb::arg("out"), nb::arg("from_"), nb::arg("streams") = nb::none(),
           "Receives what member `from_` sends.")
      .def("sendrecv", &sendrecv, nb::arg("tensor"), nb::arg("to"), nb::arg("from_"),
           nb::arg("out") = nb::none(), nb::arg("streams") = nb::none(),
           "Sends and receives at the same time.")
      .def("batch_send_recv", &batch_send_recv, nb::arg("messages"), nb::arg("streams") = nb::none(),
           "Moves ('send', tensor, to) and ('recv', out, from) at the same time, in any order.")
      .def(
          "persistent",
          [](const PythonCommunicator& self, nb::callable calls) {
            std::function<void()> function = function_of(std::move(calls));
            return self.call([&](Communicator& c) { return c.persistent(std::move(function)); });
          },
          nb::arg("calls"), nb::keep_alive<0, 1>(),
          "Binds the calls that `calls()` makes, once, so that they can be launched many times.")
      .def("split", &split, nb::arg("color").none(), nb::arg("key") = 0,
           "A communicator of the ranks with the same color, in order of key; None for those without a "
           "color.")
      .def("shrink", &shrink, nb::arg("leaving") = std::vector<int>{}, nb::arg("late") = "fail",
           nb::arg("timeout") = nb::none(),
           "A communicator of the ranks that are left, after the end of this one or to go on without the "
           "ranks "
           "`leaving`, which get None. `late` says whether ranks that do not come within `timeout` seconds "
           "fail "
           "the call ('fail') or are left out ('leave_out').");
}

}  // namespace

void bind_communicator(nb::module_& module) {
  Class communicators(module, "Communicator",
                      "Devices of several processes, and the collectives among them. All ranks make the same "
                      "calls in the same "
                      "order. Each local member gives one tensor: a process with one member gives that, "
                      "others a list. Tensors "
                      "are of any library with DLPack; results are of the kind that was given. Host memory "
                      "is taken on virtual "
                      "devices alone, where the call then returns with the result.");
  bind_makers(communicators);
  bind_python_makers(communicators);
  bind_description(communicators);
  bind_rooted(communicators);
  bind_rootless(communicators);
  bind_messages(communicators);
  nb::class_<Work>(
      module, "Work",
      "Calls made in a `with` block on host memory of virtual devices, which return without waiting.")
      .def(nb::init<>())
      .def("__enter__",
           [](nb::object self) {
             nb::cast<Work&>(self).enter();
             return self;
           })
      .def(
          "__exit__", [](Work& work, nb::args) { work.leave(); },
          nb::sig("def __exit__(self, *args: object) -> None"))
      .def("wait", &Work::wait, "Waits until results are in host memory. Ctrl-C ends the wait.")
      .def("is_done", &Work::is_done);
  bind_scope<PatienceArgument>(
      module, "patience",
      "Overrides the patience of calls that this thread makes in a `with` block, in seconds.",
      [](const PatienceArgument& seconds) -> std::shared_ptr<void> {
        return std::make_shared<PatienceGuard>(milliseconds_of(nb::cast<double>(seconds.object)));
      });
}

}  // namespace tutti::python
