// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/norm_kernels.hpp"
#include "backend/host/machine.hpp"
#include "backend/numbers/norm.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

/// Norms of the virtual machine (`NormCalls`).
namespace tutti::backend::host {
namespace {

/// Pieces that outlive the call which queues them.
struct KeptPieces {
  explicit KeptPieces(const NormPieces& task)
      : dtype(task.dtype), pieces(task.pieces.begin(), task.pieces.end()) {}

  [[nodiscard]] std::size_t bytes_of(const NormPiece& piece) const { return piece.count * size_of(dtype); }
  [[nodiscard]] std::uint64_t tiles() const {
    std::uint64_t tiles = 0;
    for (const NormPiece& piece : pieces) tiles += norm_tiles(dtype, piece.count);
    return tiles;
  }

  DType dtype;
  std::vector<NormPiece> pieces;
};

void require_real(const char* operation, DType dtype) {
  if (visit_real(dtype, false, []<class T>() { return true; })) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: dtype {}; expected a real floating-point type", operation, name_of(dtype)));
}

}  // namespace

void Machine::square_sums(StreamRef stream, const NormPieces& task, double* sums) {
  require_real("square_sums", task.dtype);
  enqueue_kernel(stream, "square_sums", [kept = KeptPieces(task), sums](Translation& translation) {
    std::vector<const std::byte*> elements;
    for (const NormPiece& piece : kept.pieces)
      elements.push_back(translation.read(piece.address, kept.bytes_of(piece)));
    auto* next = reinterpret_cast<double*>(
        translation.write(reinterpret_cast<std::byte*>(sums), kept.tiles() * sizeof(double)));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      square_sums_of_piece(kept.dtype, elements[i], kept.pieces[i].count, next);
      next += norm_tiles(kept.dtype, kept.pieces[i].count);
    }
  });
}

void Machine::norm_of_sums(StreamRef stream, const NormOfSums& task) {
  enqueue_kernel(stream, "norm_of_sums", [task](Translation& translation) {
    const auto* const sums = reinterpret_cast<const double*>(
        translation.read(reinterpret_cast<const std::byte*>(task.sums), task.count * sizeof(double)));
    auto* const result = reinterpret_cast<double*>(translation.write(
        reinterpret_cast<std::byte*>(task.result), (task.is_last ? 2 : 1) * sizeof(double)));
    const double total = total_of({sums, task.count});
    result[0] = task.is_last ? std::sqrt(total) : total;
    if (task.is_last) result[1] = clip_factor(result[0], task.max_norm);
  });
}

void Machine::scale(StreamRef stream, const NormPieces& task, const double* factor) {
  require_real("scale", task.dtype);
  enqueue_kernel(stream, "scale", [kept = KeptPieces(task), factor](Translation& translation) {
    double value = 0;
    std::memcpy(&value, translation.read(reinterpret_cast<const std::byte*>(factor), sizeof(value)),
                sizeof(value));
    std::vector<std::byte*> elements;
    for (const NormPiece& piece : kept.pieces)
      elements.push_back(translation.write(piece.address, kept.bytes_of(piece)));
    for (std::size_t i = 0; value != 1 && i < elements.size(); ++i)
      scale_piece(kept.dtype, elements[i], kept.pieces[i].count, value);
  });
}

}  // namespace tutti::backend::host
