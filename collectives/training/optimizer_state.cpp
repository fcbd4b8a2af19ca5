// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/optimizer_state.hpp"

#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/team_call.hpp"
#include "os/thread.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::team::gather;
using transport::team::Note;

/// Bytes that all members together give or get in a round: the memory that the rank with the file needs, in
/// pinned memory and on the device of member 0.
constexpr std::int64_t round_bytes = std::int64_t{32} << 20U;
/// Bytes that the rank with the file reads before it tells the others that it goes on.
constexpr std::uint64_t checked_bytes = std::uint64_t{256} << 20U;

/// Carries out work on this rank, and has all ranks fail alike.
class InStep {
 public:
  InStep(Communicator& communicator, std::string_view function)
      : communicator_(communicator), function_(function) {}

  /// Calls `work`. Throws an Error on all ranks if it has thrown on one.
  template <class Work>
  void all(const Work& work) const {
    Failure mine;
    try {
      work();
    } catch (const Error& error) {
      mine = {
          .code = static_cast<int>(error.code()), .native = error.native_code(), .text = Note(error.what())};
    } catch (const std::exception&) {
      const backend::Escaped escaped = backend::Escaped::current();
      mine = {.code = static_cast<int>(escaped.code), .text = Note(escaped.what)};
    }
    const std::vector<Failure> failures = shared(mine);
    const auto found = std::ranges::find_if(failures, [](const Failure& each) { return each.code >= 0; });
    if (found == failures.end()) return;
    throw Error(static_cast<ErrorCode>(found->code), fmt::format("{}: {}", function_, found->text.string()),
                found->native);
  }
  /// Returns the plain value that the rank of member 0 has.
  template <class T>
  [[nodiscard]] T from_first(const T& mine) const {
    return shared(mine)[0];
  }

 private:
  struct Failure {
    int code = -1;
    int native = 0;
    Note text;
  };

  template <class T>
  [[nodiscard]] std::vector<T> shared(const T& mine) const {
    if (communicator_.rank_count() == 1) return {mine};
    TeamContext& context = CommunicatorAccess::context(communicator_);
    TeamCall call(context, Collective::all_gather, {});
    call.signature().set_purpose(function_);
    transport::team::TeamExchange exchange(context.team(), call.post_without_work());
    return gather(exchange, mine);
  }

  Communicator& communicator_;
  std::string_view function_;
};

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, reason);
}

void require_path(const std::string& path) {
  if (path.empty()) refuse("path is empty, expected the name of a file");
}

/// The parts of one buffer that travel in one round.
struct Round {
  std::size_t buffer;
  std::int64_t begin;  ///< within every shard, in elements
  std::int64_t count;
};

/// The shards of the local members, by buffer.
class Shards {
 public:
  Shards(Communicator& communicator, const OptimizerLayout& layout, std::span<const ParameterShard> shards)
      : communicator_(communicator), layout_(layout), shards_(shards) {}

  [[nodiscard]] bool has_file() const { return communicator_.first_member() == 0; }

  /// Calls `work(round, whole)` for each round. On the rank with the file, `whole` is a tensor on the device
  /// of member 0 for all members' parts; it is undefined elsewhere.
  template <class Work>
  void for_each_round(const InStep& in_step, const Work& work) const {
    for (std::size_t buffer = 0; buffer < layout_.buffers(); ++buffer) {
      const auto element = static_cast<std::int64_t>(size_of(layout_.dtype_of_buffer(buffer)));
      const std::int64_t most = std::max<std::int64_t>(round_bytes / element / members() / 16 * 16, 16);
      Tensor largest;
      in_step.all([&] {  // the device may have no memory for it, and then the others must not wait
        if (has_file()) largest = whole({buffer, 0, std::min(most, length())}, communicator_.devices()[0]);
      });
      for (std::int64_t begin = 0; begin < length(); begin += most) {
        const Round round{buffer, begin, std::min(most, length() - begin)};
        work(round, has_file() ? largest.narrow(0, 0, round.count * members()) : Tensor());
      }
    }
  }

  /// Returns the round's parts of the local members.
  [[nodiscard]] std::vector<Tensor> parts(const Round& round) const {
    std::vector<Tensor> parts;
    for (const ParameterShard& shard : shards_) {
      const Tensor& whole = round.buffer == 0 ? shard.parameters : shard.state[round.buffer - 1];
      parts.push_back(whole.narrow(0, round.begin, round.count));
    }
    return parts;
  }
  /// Makes a tensor for all members' parts.
  [[nodiscard]] Tensor whole(const Round& round, Device device) const {
    return empty({round.count * members()},
                 {.dtype = layout_.dtype_of_buffer(round.buffer),
                  .device = device,
                  .host_memory = device.is_host() ? HostMemory::pinned : HostMemory::pageable});
  }

  /// Calls `work(begin, bytes)` for each member's part of `whole`, a tensor on the host, as far as it is in
  /// the file; `begin` is its first element in the buffer.
  template <class Work>
  void for_each_part(const Round& round, const Tensor& whole, const Work& work) const {
    const std::size_t element = size_of(whole.dtype());
    auto* const data = static_cast<std::byte*>(whole.data());
    for (std::int64_t member = 0; member < members(); ++member) {
      const std::int64_t begin = member * length() + round.begin;
      const std::int64_t count = std::clamp<std::int64_t>(layout_.elements - begin, 0, round.count);
      const auto offset = static_cast<std::size_t>(member * round.count) * element;
      if (count > 0) work(begin, std::span(data + offset, static_cast<std::size_t>(count) * element));
    }
  }

 private:
  [[nodiscard]] std::int64_t members() const { return communicator_.member_count(); }
  [[nodiscard]] std::int64_t length() const { return shards_[0].parameters.numel(); }

  Communicator& communicator_;
  const OptimizerLayout& layout_;
  std::span<const ParameterShard> shards_;
};

/// Describes an error that a round has thrown on the rank with the file, which takes part in the other rounds
/// nevertheless.
class KeptError {
 public:
  template <class Work>
  void keep(const Work& work) {
    if (error_ != nullptr) return;
    try {
      work();
    } catch (const std::exception&) {
      error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

}  // namespace

void save_state(Communicator& communicator, const OptimizerLayout& layout,
                std::span<const ParameterShard> local_shards, const std::string& path,
                std::string_view extra) {
  const InStep in_step(communicator, "ShardedOptimizer::save");
  const Shards shards(communicator, layout, local_shards);
  std::optional<OptimizerFileWriter> file;
  in_step.all([&] {
    if (!shards.has_file()) return;
    require_path(path);
    if (extra.size() > most_extra_bytes)
      refuse(fmt::format("extra has {} bytes, expected {} at most", extra.size(), most_extra_bytes));
    file.emplace(path, layout, extra);
  });
  KeptError error;
  shards.for_each_round(in_step, [&](const Round& round, const Tensor& gathered) {
    communicator.gather(shards.parts(round), gathered, 0);
    if (!file) return;
    error.keep([&] {
      const Tensor on_host = shards.whole(round, Device::host());
      on_host.copy_(gathered);
      communicator.check();
      shards.for_each_part(round, on_host, [&](std::int64_t begin, std::span<const std::byte> bytes) {
        file->write(round.buffer, begin, bytes);
      });
    });
  });
  in_step.all([&] {
    error.rethrow();
    if (file) file->deliver();
  });
}

std::string load_state(Communicator& communicator, const OptimizerLayout& layout,
                       std::span<const ParameterShard> local_shards, const std::string& path) {
  const InStep in_step(communicator, "ShardedOptimizer::load");
  const Shards shards(communicator, layout, local_shards);
  std::optional<OptimizerFileReader> file;
  in_step.all([&] {
    if (!shards.has_file()) return;
    require_path(path);
    file.emplace(path, layout);
  });
  const std::uint64_t bytes = layout.begin_of_buffer(layout.buffers());
  for (std::uint64_t begin = 0; begin < bytes; begin += checked_bytes) {
    in_step.all([&] {
      if (file) file->check(begin, std::min(checked_bytes, bytes - begin));
    });
  }
  std::array<char, most_extra_bytes> extra{};
  std::uint64_t extra_bytes = 0;
  in_step.all([&] {
    if (!file) return;
    file->check_sum();
    extra_bytes = file->extra().copy(extra.data(), extra.size());
  });
  extra = in_step.from_first(extra);
  extra_bytes = in_step.from_first(extra_bytes);
  KeptError error;
  shards.for_each_round(in_step, [&](const Round& round, const Tensor& scattered) {
    if (file) {
      error.keep([&] {
        const Tensor on_host = shards.whole(round, Device::host());
        on_host.fill_(0);
        shards.for_each_part(round, on_host, [&](std::int64_t begin, std::span<std::byte> part) {
          file->read(round.buffer, begin, part);
        });
        scattered.copy_(on_host);
      });
    }
    communicator.scatter(scattered, shards.parts(round), 0);
  });
  in_step.all([&] {
    error.rethrow();
    if (file) file->check_sum();
  });
  return {extra.data(), extra_bytes};
}

}  // namespace tutti::collectives
