// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Clipping of gradients, for `GradientBuckets::clip_norm` and `ShardedOptimizer::step`.
namespace tutti {

/// Limits the norm of all gradients together: the square root of the sum of the squares of all elements of
/// all gradients, each counted once however many members hold it. The same on all ranks.
///
/// As torch's `clip_grad_norm_` does, clipping multiplies all gradients by max_norm / (norm + 1e-6) if that
/// is less than 1, and otherwise leaves them as they are. Gradients of norm NaN thus become NaN; if the norm
/// is infinite, finite elements become 0, and infinite ones NaN.
///
/// Squares are computed and added in float64, in an order that depends only on the gradients' sizes, element
/// types and the number of members: all members find the same norm, bit for bit, and the same in every run.
/// The norm of float64 gradients overflows to infinity above about 1e154.
struct GradientClip {
  double max_norm = 1.0;  ///< not negative; infinity only measures the norm
  /// Throws Error(invalid_argument) on all ranks, and leaves the gradients as they are, if the norm is
  /// infinite or NaN. The host then waits for the norm, and the call cannot be captured.
  bool error_if_nonfinite = false;
};

}  // namespace tutti
