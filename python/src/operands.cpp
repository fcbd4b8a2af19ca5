// SPDX-License-Identifier: Apache-2.0
#include "operands.hpp"

#include "shared_object.hpp"
#include "staging.hpp"
#include "tutti/error.hpp"
#include "work.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace tutti::python {
namespace {

bool is_sequence(nb::handle object) {
  return nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object);
}

bool holds_sequences(nb::handle object) {
  return nb::len(object) > 0 && is_sequence(object[0]);
}

}  // namespace

CurrentStreams::~CurrentStreams() {
  while (!guards_.empty()) guards_.pop_back();
}

void CurrentStreams::add(const Stream& stream) {
  const Device device(current_device());
  guards_.push_back(std::make_unique<StreamGuard>(stream));
  set_device(device);
}

void keep_unordered(const std::vector<Operand>& operands, std::vector<Stream> more_streams) noexcept try {
  if (std::ranges::none_of(operands, &Operand::is_unordered)) return;
  const auto kept = std::make_shared<std::vector<Operand>>();
  std::vector<Stream> streams = std::move(more_streams);
  for (const Operand& operand : operands) {
    if (!operand.is_unordered) continue;
    kept->push_back(operand);
    streams.push_back(current_stream(operand.tensor.device()));
  }
  keep_while_used(kept, streams);
} catch (const std::exception&) {
  // No event can be recorded where the device has failed, and so runs nothing any more.
}

Operands::Operands(std::vector<Device> members) : members_(std::move(members)) {
  bury();
  held_.reserve(2 * members_.size());
}
Operands::~Operands() {
  keep_unordered(held_);
  keep_in_place(held_);
}

Device Operands::member(std::size_t index) const {
  return index < members_.size() ? members_[index] : Device::host();
}

Tensor Operands::staged(const Operand& host, Device device, Use use) {
  for (Staged& known : staged_) {
    if (known.host.tensor.data() != host.tensor.data() || known.device.device() != device) continue;
    if (!(*known.host.tensor.layout() == *host.tensor.layout())) continue;
    known.is_written = known.is_written || use != Use::read;
    return known.device;
  }
  const Tensor copy = empty(host.tensor.sizes(), {.dtype = host.tensor.dtype(), .device = device});
  if (use != Use::write) copy_in(host, copy);
  staged_.push_back({host, copy, use != Use::read});
  if (Work::current() != nullptr) Work::current()->add(device);
  return copy;
}

Tensor Operands::tensor(nb::handle given, std::size_t index, Use use, const char* name) {
  if (!given.is_valid() || given.is_none()) return {};
  if (!std::exchange(has_kind_, true)) kind_ = Kind::of(given);
  Operand& operand = held_.emplace_back(borrow_tensor(given, name, Order::of_library));
  const Device device = member(index);
  const bool is_elsewhere =
      operand.tensor.defined() && operand.tensor.device().is_host() && !device.is_host();
  are_on_host_ = are_on_host_ || is_elsewhere;
  if (!is_elsewhere) return operand.tensor;
  const bool is_in_graph = is_captured(kind_.current_stream(device).value_or(current_stream(device)));
  if (is_in_graph && backend_kind() == BackendKind::cuda) {
    throw Error(ErrorCode::unsupported,
                std::string(name) + " is in host memory, and the current stream of device " +
                    std::to_string(device.index()) +
                    " is being captured, expected memory of the device: a graph would not copy it anew");
  }
  // Between members, no stream would order what uses memory in place with copies of the same memory.
  const bool may_stay = members_.size() == 1 && !is_in_graph;
  return may_stay && use_in_place(operand, device) ? operand.tensor : staged(operand, device, use);
}

std::vector<Tensor> Operands::tensors(const TensorsArgument& given, Use use, const char* name) {
  if (!given.object.is_valid() || given.object.is_none()) return {};
  is_list_ = is_list_ || is_sequence(given.object);
  if (!is_sequence(given.object)) return {tensor(given.object, 0, use, name)};
  std::vector<Tensor> tensors;
  tensors.reserve(nb::len(given.object));
  for (const nb::handle one : given.object) tensors.push_back(tensor(one, tensors.size(), use, name));
  return tensors;
}

std::vector<std::vector<Tensor>> Operands::lists(const TensorsArgument& given, Use use, const char* name) {
  if (!given.object.is_valid() || given.object.is_none()) return {};
  if (!is_sequence(given.object)) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name) + " is one tensor, expected a list of tensors");
  }
  const auto list_of = [&](nb::handle list, std::size_t index) {
    std::vector<Tensor> tensors;
    for (const nb::handle one : list) tensors.push_back(tensor(one, index, use, name));
    return tensors;
  };
  is_list_ = members_.size() != 1 || holds_sequences(given.object);
  if (!is_list_) return {list_of(given.object, 0)};
  std::vector<std::vector<Tensor>> lists;
  for (const nb::handle list : given.object) lists.push_back(list_of(list, lists.size()));
  return lists;
}

void Operands::make_current(const StreamsArgument& streams) {
  choose_streams(streams);
  if (is_in_place()) Work::current()->add(members_.front());
}

bool Operands::is_in_place() const {
  return std::ranges::any_of(held_, [](const Operand& operand) { return operand.range != nullptr; });
}

void Operands::choose_streams(const StreamsArgument& streams) {
  if (streams.object.is_none() && kind_.is_own()) return;
  const std::vector<nb::object> given = streams.each();
  if (!given.empty() && given.size() != members_.size()) {
    throw Error(ErrorCode::invalid_argument, "streams has " + std::to_string(given.size()) +
                                                 " streams, expected " + std::to_string(members_.size()) +
                                                 ": one for each device");
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::optional<Stream> stream;
    if (given.empty()) {
      stream = kind_.current_stream(members_[i]);
    } else if (!given[i].is_none()) {
      stream = StreamArgument{given[i]}.get(members_[i]);
    }
    if (!stream) continue;
    const bool may_not_be_captured = is_in_place() || (are_on_host_ && backend_kind() == BackendKind::cuda);
    if (may_not_be_captured && is_captured(*stream)) {
      throw Error(ErrorCode::invalid_argument,
                  "streams[" + std::to_string(i) +
                      "] is being captured, expected it to be current, as operands are in host memory");
    }
    // Host memory is copied, and was used before, on the stream that is current so far.
    if (are_on_host_) stream->wait_stream(current_stream(members_[i]));
    current_.add(*stream);
  }
}

void Operands::finish() {
  for (const Staged& one : staged_) {
    if (!one.is_written) continue;
    if (Work::current() != nullptr) Work::current()->add(one.device.device());
    copy_out(one.device, one.host);
  }
}

nb::object Operands::result(const Tensor& tensor) {
  if (!tensor.defined()) return nb::none();
  if (kind_.is_own() || !are_on_host_) return kind_.wrap(tensor);
  wait_for_stream_of(tensor);
  Tensor host;
  {
    const nb::gil_scoped_release release;
    host = tensor.to(Device::host());
  }
  return kind_.wrap(host);
}

nb::object Operands::list(const std::vector<Tensor>& tensors) {
  nb::list list;
  for (const Tensor& tensor : tensors) list.append(result(tensor));
  return std::move(list);
}

nb::object Operands::results(std::vector<Tensor> tensors) {
  if (!is_list_ && tensors.size() == 1) return result(tensors.front());
  return list(tensors);
}

nb::object Operands::results(std::vector<std::vector<Tensor>> lists) {
  if (!is_list_ && lists.size() == 1) return list(lists.front());
  nb::list all;
  for (const std::vector<Tensor>& one : lists) all.append(list(one));
  return std::move(all);
}

}  // namespace tutti::python
