// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/graph.hpp"
#include "tutti/tensor.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace tutti {

/// Work on tensors of devices that can be captured: the same whatever the values are.
using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// How callables are captured.
struct GraphedOptions {
  int warmup_iterations = 3;  ///< calls before the capture, for what is made once; 0 or more
  GraphPoolHandle pool = {};  ///< to be shared with others
};

/// A function that replays a graph instead of computing. A cheap value: copies are the same one.
///
/// The results are the same tensors at each call, overwritten by the next: copy what is to stay. For one
/// thread at a time.
class TUTTI_EXPORT GraphedCallable {
 public:
  /// Copies `inputs` to where the graph reads them, unless they are there, and launches it, in the order of
  /// the current streams of the devices that it works on. Throws Error(invalid_argument), and does nothing,
  /// if one differs from its sample in sizes, element type or device, or there are more or fewer.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// Where the graph reads its inputs: who writes there saves the copies.
  [[nodiscard]] const std::vector<Tensor>& static_inputs() const noexcept;
  /// What calls return.
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

/// Captures `callable`, called with tensors like `samples`, which hold the same values: one at least, all on
/// devices; the graph is of the first one's device. It is called `warmup_iterations` times before, on other
/// streams than the current ones, and waited for. It is captured on these streams, one for each device of
/// samples.
///
/// There are no gradients here: a function that computes such is a callable like any other.
///
/// Throws Error(invalid_argument) for a sample that is undefined or on the host, for no samples and for a
/// negative number of iterations; what `Graph::capture` throws; and what the callable throws.
[[nodiscard]] TUTTI_EXPORT GraphedCallable make_graphed_callables(const TensorFunction& callable,
                                                                  const std::vector<Tensor>& samples,
                                                                  const GraphedOptions& options = {});
/// The same for several, with samples for each, that share one pool: they have to be called in this order, as
/// the layers of a model are. They are all warmed up before the first is captured.
[[nodiscard]] TUTTI_EXPORT std::vector<GraphedCallable> make_graphed_callables(
    const std::vector<TensorFunction>& callables, const std::vector<std::vector<Tensor>>& samples,
    const GraphedOptions& options = {});

}  // namespace tutti
