// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "tutti/collectives.hpp"
#include "tutti/tensor.hpp"

#include <list>
#include <span>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// Returns true if both layouts are dense and order their elements alike, so that equal indices have equal
/// byte offsets.
[[nodiscard]] bool same_order(const Layout& a, const Layout& b);

/// Chooses what happens to operands whose layout the plan cannot use.
enum class PackingPolicy : std::uint8_t {
  copy,    ///< through a dense temporary, on the tensor's own device
  refuse,  ///< Error(invalid_argument): a persistent collective is bound to the caller's buffers
};

/// The devices and streams that take part in a call: the current streams of these tensors' devices and of
/// these devices, and these streams.
struct Participants {
  TensorList inputs = {};
  TensorList outputs = {};
  TensorLists rows = {};
  DeviceList devices = {};
  StreamList streams = {};
};

/// Makes dense stand-ins for operands that are strided or in another order, and pinned stand-ins for pageable
/// memory. Stand-ins live as long as this object; after that, the caching allocator keeps their memory in
/// stream order. It does the same with the operands' own memory, which the copies use.
///
/// A launch's capture does not contain the copies: while one of the call's streams is being captured, an
/// operand that needs a stand-in is refused with Error(unsupported). The streams are not queried before.
class Packing {
 public:
  /// The lists among `participants` outlive this object.
  Packing(const Arguments& arguments, PackingPolicy policy, const Participants& participants = {})
      : arguments_(arguments), policy_(policy), participants_(participants) {}

  /// Returns `input`, or a copy of it in the order of `layout` (same sizes, dense), which is pinned if the
  /// input is on the host. References that these functions return live as long as this object or the tensor
  /// given.
  [[nodiscard]] const Tensor& input(const Tensor& input, const Layout& layout, const Name& name);
  /// Returns `output`, or a stand-in in the order of `layout` that `unpack` copies back on `stream` of the
  /// output's device.
  [[nodiscard]] const Tensor& output(const Tensor& output, const Layout& layout, const Name& name,
                                     const Stream& stream);
  /// Returns `output`, which is on the host, or a pinned stand-in if it is pageable or in another order.
  [[nodiscard]] const Tensor& host_output(const Tensor& output, const Layout& layout, const Name& name);
  /// Throws Error(unsupported) if `output` would, in a call that is being captured. Makes no stand-in.
  void check_output(const Tensor& output, const Layout& layout, const Name& name, const Stream& stream);
  /// Queues the copies from stand-ins to outputs.
  void unpack();
  /// Returns true if `unpack` has something to do.
  [[nodiscard]] bool has_outputs() const noexcept { return !outputs_.empty(); }

 private:
  struct Output {
    Tensor output;
    Tensor stand_in;
    Stream stream;
  };

  [[noreturn]] void refuse(const Tensor& tensor, const Layout& layout, const Name& name) const;
  /// Allows a copy on `stream`, unless the call is being captured.
  void refuse_in_capture(const Tensor& tensor, const Layout& layout, const Name& name,
                         backend::StreamRef stream);
  void refuse_pageable_in_capture(const Name& name, backend::StreamRef stream);
  [[nodiscard]] bool is_captured(backend::StreamRef stream) const;

  const Arguments& arguments_;
  PackingPolicy policy_;
  Participants participants_;
  bool is_eager_ = false;  // known not to be captured

  std::list<Tensor> inputs_;  // grow without moving what was handed out, and cost nothing while empty
  std::list<Output> outputs_;
};

/// Returns the contiguous or channels-last layout of the same sizes and element type: `layout` itself if it
/// has that format.
[[nodiscard]] LayoutPtr layout_in(const Layout& layout, MemoryFormat format);

/// The layouts of a coalesced call's columns. Those of the caller's tensors outlive the call and are not
/// counted, which for thousands would cost as much as the rest of it.
class ColumnLayouts {
 public:
  explicit ColumnLayouts(std::size_t columns) { layouts_.reserve(columns); }
  void add(const Layout& of_a_tensor) { layouts_.push_back(&of_a_tensor); }
  void add_new(LayoutPtr made) {
    layouts_.push_back(made.get());
    made_.push_back(std::move(made));
  }
  [[nodiscard]] const Layout& operator[](std::size_t column) const { return *layouts_[column]; }
  [[nodiscard]] std::span<const Layout* const> all() const noexcept { return layouts_; }

 private:
  std::vector<const Layout*> layouts_;
  std::vector<LayoutPtr> made_;
};

/// A dense tensor seen along one dimension: `rows` rows of `size(dim)` slabs of `slab_bytes` bytes.
struct Cut {
  std::uint64_t rows = 1;
  std::uint64_t slab_bytes = 0;
};
[[nodiscard]] Cut cut_along(const Layout& layout, int dim);
/// Cuts a contiguous tensor in the same way.
[[nodiscard]] Cut cut_along(std::span<const std::int64_t> sizes, DType dtype, int dim);

/// Returns a dense layout with other sizes, its dimensions in `layout`'s order in memory.
[[nodiscard]] LayoutPtr resized_in_order(const Layout& layout, std::span<const std::int64_t> sizes);

}  // namespace tutti::collectives
