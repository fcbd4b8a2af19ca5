// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/clipping.hpp"

#include "backend/norm_calls.hpp"
#include "backend/numbers/norm.hpp"
#include "collectives/training/member_lists.hpp"
#include "device/runtime.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

namespace tutti::collectives {
namespace {

using backend::NormPiece;
using backend::StreamRef;

/// A gradient's elements as real numbers.
struct RealElements {
  DType dtype;
  std::int64_t per_element;
};

RealElements real_elements(DType dtype) {
  switch (dtype) {
    case DType::complex64:
      return {DType::float32, 2};
    case DType::complex128:
      return {DType::float64, 2};
    default:
      return {dtype, 1};
  }
}

bool is_measurable(DType dtype) {
  return backend::visit_real(real_elements(dtype).dtype, false, []<class T>() { return true; });
}

/// Pieces of memory by element type.
class Pieces {
 public:
  void add(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    const RealElements real = real_elements(tensor.dtype());
    auto* const data = static_cast<std::byte*>(tensor.data());
    pieces_[real.dtype].push_back(
        {.address = data + static_cast<std::size_t>(begin) * size_of(tensor.dtype()),
         .count = static_cast<std::uint64_t>(count * real.per_element)});
  }
  [[nodiscard]] std::int64_t tiles() const {
    std::uint64_t tiles = 0;
    for_each([&](const backend::NormPieces& each) { tiles += tiles_of(each); });
    return static_cast<std::int64_t>(tiles);
  }
  /// Calls `work` for the pieces of each element type.
  template <class Work>
  void for_each(const Work& work) const {
    for (const auto& [dtype, pieces] : pieces_) work(backend::NormPieces{.dtype = dtype, .pieces = pieces});
  }
  [[nodiscard]] static std::uint64_t tiles_of(const backend::NormPieces& task) {
    std::uint64_t tiles = 0;
    for (const NormPiece& piece : task.pieces) tiles += backend::norm_tiles(task.dtype, piece.count);
    return tiles;
  }

 private:
  std::map<DType, std::vector<NormPiece>> pieces_;
};

/// One local member's work, on the current stream of its device.
class MemberNorm {
 public:
  MemberNorm(Runtime& runtime, Device device)
      : calls_(dynamic_cast<backend::NormCalls&>(runtime.backend())),
        stream_(current_stream_ref(runtime, device.index())),
        device_(device) {}

  /// Queues the sum of all squares. The result has one element.
  [[nodiscard]] Tensor square_sum(std::span<const ElementRange> ranges) const {
    Pieces pieces;
    for (const ElementRange& range : ranges) {
      pieces.add(range.tensor, range.begin, range.count);
      keep(range.tensor);
    }
    const Tensor sums = numbers(pieces.tiles());
    auto* next = static_cast<double*>(sums.data());
    pieces.for_each([&](const backend::NormPieces& task) {
      calls_.square_sums(stream_, task, next);
      next += Pieces::tiles_of(task);
    });
    const Tensor total = numbers(1);
    calls_.norm_of_sums(stream_, task_of(sums, total));
    return total;
  }

  /// Queues the computation of the norm and the factor.
  [[nodiscard]] Tensor norm_and_factor(const Tensor& sums, double max_norm) const {
    const Tensor result = numbers(2);
    backend::NormOfSums task = task_of(sums, result);
    task.is_last = true;
    task.max_norm = max_norm;
    calls_.norm_of_sums(stream_, task);
    return result;
  }

  void scale(std::span<const Tensor> gradients, const Tensor& norm_and_factor) const {
    Pieces pieces;
    std::vector<std::pair<Tensor, Tensor>> copies;
    for (const Tensor& gradient : gradients) {
      const Tensor dense = gradient.layout()->is_dense() ? gradient : gradient.contiguous();
      if (!gradient.layout()->is_dense()) copies.emplace_back(gradient, dense);
      pieces.add(dense, 0, dense.numel());
      keep(gradient);
    }
    const double* const factor = static_cast<const double*>(norm_and_factor.data()) + 1;
    pieces.for_each([&](const backend::NormPieces& task) { calls_.scale(stream_, task, factor); });
    for (const auto& [gradient, copy] : copies) {
      gradient.copy_(copy);
      keep_if_captured(copy, device_);
    }
  }

  [[nodiscard]] Tensor numbers(std::int64_t count) const {
    const Tensor tensor = empty({count}, {.dtype = DType::float64, .device = device_});
    keep_if_captured(tensor, device_);
    return tensor;
  }

 private:
  [[nodiscard]] static backend::NormOfSums task_of(const Tensor& sums, const Tensor& result) {
    return {.sums = static_cast<const double*>(sums.data()),
            .count = static_cast<std::uint64_t>(sums.numel()),
            .result = static_cast<double*>(result.data())};
  }

  /// The memory, which may be another stream's, is not reused before the work is done.
  void keep(const Tensor& tensor) const { tensor.record_stream(current_stream(device_)); }

  backend::NormCalls& calls_;
  StreamRef stream_;
  Device device_;
};

void require_finite(Communicator& communicator, const Arguments& arguments, const Tensor& norm) {
  const auto value = norm.item<double>();
  communicator.check();  // without the other ranks, the number means nothing
  if (!std::isfinite(value))
    arguments.fail("the norm of the gradients is {}, expected a finite one (clip.error_if_nonfinite)", value);
}

std::vector<MemberNorm> member_norms(const Communicator& communicator, Runtime& runtime) {
  std::vector<MemberNorm> norms;
  for (const Device device : communicator.devices()) norms.emplace_back(runtime, device);
  return norms;
}

/// Gathers the members' sums on all of them.
std::vector<Tensor> gathered(Communicator& communicator, std::span<const MemberNorm> norms,
                             std::vector<Tensor> sums) {
  if (communicator.member_count() == 1) return sums;
  std::vector<Tensor> all;
  for (const MemberNorm& norm : norms) all.push_back(norm.numbers(communicator.member_count()));
  communicator.all_gather(sums, all);
  return all;
}

}  // namespace

void check_clip(const Arguments& arguments, const Communicator& communicator, const GradientClip& clip,
                std::span<const Tensor> gradients, std::string_view argument) {
  if (!(clip.max_norm >= 0)) arguments.fail("clip.max_norm is {}, expected 0 or more", clip.max_norm);
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    if (!is_measurable(gradients[t].dtype())) {
      arguments.fail("{} has element type {}, expected a floating-point or complex type",
                     Name(argument, 0, t), name_of(gradients[t].dtype()));
    }
  }
  if (clip.error_if_nonfinite) require_uncaptured(arguments, communicator);
}

std::vector<ElementRange> measured_share(std::span<const Tensor> gradients, int member, int members) {
  const auto elements_of_tile = [](const Tensor& gradient) {
    const RealElements real = real_elements(gradient.dtype());
    return static_cast<std::int64_t>(backend::norm_tile_elements(real.dtype)) / real.per_element;
  };
  const auto tiles_of = [&](const Tensor& gradient) {
    const std::int64_t elements = elements_of_tile(gradient);
    return (gradient.numel() + elements - 1) / elements;
  };
  std::int64_t tiles = 0;
  for (const Tensor& gradient : gradients) tiles += tiles_of(gradient);
  const std::int64_t begin = tiles * member / members;
  const std::int64_t end = tiles * (member + 1) / members;
  std::vector<ElementRange> share;
  std::int64_t first = 0;
  for (const Tensor& gradient : gradients) {
    const std::int64_t next = first + tiles_of(gradient);
    const std::int64_t from = std::max(begin, first) - first;
    const std::int64_t to = std::min(end, next) - first;
    first = next;
    if (from >= to) continue;
    const std::int64_t elements = elements_of_tile(gradient);
    const std::int64_t last = std::min(to * elements, gradient.numel());
    // The order of the elements is that of their indices, as strides may differ between members.
    share.push_back({gradient.contiguous(), from * elements, last - from * elements});
    if (!gradient.is_contiguous()) keep_if_captured(share.back().tensor, gradient.device());
  }
  return share;
}

Tensor clip_norm(Communicator& communicator, const Arguments& arguments,
                 std::span<const ClippedGradients> members, const GradientClip& clip) {
  const std::vector<MemberNorm> norms = member_norms(communicator, arguments.runtime());
  std::vector<Tensor> sums;
  for (std::size_t local = 0; local < members.size(); ++local)
    sums.push_back(norms[local].square_sum(members[local].measured));
  const std::vector<Tensor> all = gathered(communicator, norms, std::move(sums));
  std::vector<Tensor> results;
  for (std::size_t local = 0; local < members.size(); ++local)
    results.push_back(norms[local].norm_and_factor(all[local], clip.max_norm));
  const Tensor norm = results[0].narrow(0, 0, 1).view({});
  if (clip.error_if_nonfinite) require_finite(communicator, arguments, norm);
  if (std::isinf(clip.max_norm)) return norm;
  for (std::size_t local = 0; local < members.size(); ++local)
    norms[local].scale(members[local].scaled, results[local]);
  return norm;
}

}  // namespace tutti::collectives
