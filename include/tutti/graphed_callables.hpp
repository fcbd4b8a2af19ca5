// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/graph.hpp"
#include "tutti/tensor.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace tutti {

/// A function on device tensors that can be captured: it queues the same work whatever the values are.
using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Options of `make_graphed_callables`.
struct GraphedOptions {
  int warmup_iterations =
      3;  ///< calls before the capture, which allow for one-time initialisation; 0 or more
  GraphPoolHandle pool = {};  ///< private pool to share with other graphs
};

/// A function that replays a graph instead of computing. A cheap value: copies are the same one.
///
/// Every call returns the same tensors, whose values the next call overwrites: copy what is to be kept. One
/// thread may use it at a time.
class TUTTI_EXPORT GraphedCallable {
 public:
  /// Copies `inputs` to the graph's own inputs, unless they are these, and launches the graph, ordered with
  /// the current streams of the devices that it works on. Throws Error(invalid_argument), and does nothing,
  /// if an input differs from its sample in sizes, element type or device, or the number of inputs differs.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// Returns the tensors from which the graph reads its inputs. Writing into them directly saves the copies.
  [[nodiscard]] const std::vector<Tensor>& static_inputs() const noexcept;
  /// Returns the tensors that every call returns.
  [[nodiscard]] const std::vector<Tensor>& static_outputs() const noexcept;
  [[nodiscard]] GraphPoolHandle pool() const;

 private:
  class Impl;
  explicit GraphedCallable(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
  friend TUTTI_EXPORT std::vector<GraphedCallable> make_graphed_callables(
      const std::vector<TensorFunction>& callables, const std::vector<std::vector<Tensor>>& samples,
      const GraphedOptions& options);
  std::shared_ptr<const Impl> impl_;
};

/// Captures `callable`, called with copies of `samples`: at least one tensor, all on devices; the graph
/// belongs to the first one's device. Before, `callable` is called `warmup_iterations` times on other streams
/// than the current ones, one per device of the samples, and its work is waited for. The capture uses the
/// same streams.
///
/// Gradients are not treated specially: a function that computes them is a callable like any other.
///
/// Throws Error(invalid_argument) for a sample that is undefined or on the host, for no samples and for a
/// negative number of iterations; what `Graph::capture` throws; and what the callable throws.
[[nodiscard]] TUTTI_EXPORT GraphedCallable make_graphed_callables(const TensorFunction& callable,
                                                                  const std::vector<Tensor>& samples,
                                                                  const GraphedOptions& options = {});
/// Does the same for several callables, with samples for each, that share one pool. They have to be called in
/// this order, as the layers of a model are. All are warmed up before the first is captured.
[[nodiscard]] TUTTI_EXPORT std::vector<GraphedCallable> make_graphed_callables(
    const std::vector<TensorFunction>& callables, const std::vector<std::vector<Tensor>>& samples,
    const GraphedOptions& options = {});

}  // namespace tutti
