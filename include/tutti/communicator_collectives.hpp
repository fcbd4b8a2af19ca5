// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/export.hpp"
#include "tutti/list_of.hpp"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

class Communicator;
struct CommunicatorAccess;

/// A process's operands, and so its results: the tensor of its one member, or a tensor for each local member.
template <class T>
concept MemberTensors = std::same_as<T, Tensor> || std::same_as<T, std::vector<Tensor>>;
/// The operands and results of a coalesced call: the list of the one member, or a list for each local member.
template <class T>
concept MemberLists =
    std::same_as<T, std::vector<Tensor>> || std::same_as<T, std::vector<std::vector<Tensor>>>;

/// The collectives of a `Communicator`, which derives from this class and documents the rules for all of
/// them. Programs do not make objects of this class.
class TUTTI_EXPORT CommunicatorCollectives {
 public:
  CommunicatorCollectives(const CommunicatorCollectives&) = delete;
  CommunicatorCollectives& operator=(const CommunicatorCollectives&) = delete;

  /// Copies the root's tensor into all others.
  void broadcast(TensorList tensors, int root, StreamList streams = {});
  /// Copies the root's `tensor`, which others need not give, into every `out`; the root's may be `tensor`.
  /// Ranks may mix the two forms.
  void broadcast(const Tensor& tensor, TensorList out, int root, StreamList streams = {});
  /// Broadcasts many tensors as one operation; `tensors[i]` and `out[i]` are those of local member i. If all
  /// ranks give lists without tensors, the coalesced calls do nothing; but they are calls, which all ranks
  /// make.
  void broadcast_coalesced(TensorLists tensors, int root, StreamList streams = {});
  void broadcast_coalesced(TensorList tensors, TensorLists out, int root, StreamList streams = {});
  /// Combines all members' inputs element by element into the root's `out`. Other members' outputs are
  /// ignored, and a process without the root may give none. `out` may be the root's input. All ranks give the
  /// same operation with the same factors: one, or one for each member. Also throws Error(invalid_argument)
  /// for an operation that the element type does not support. Cost: that of a sum.
  void reduce(TensorList inputs, TensorList out, const ReduceOp& op, int root, StreamList streams = {});
  void reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op, int root,
                        StreamList streams = {});
  /// Reduces by `ReduceOp::sum`.
  void reduce(TensorList inputs, TensorList out, int root, StreamList streams = {}) {
    reduce(inputs, out, ReduceOp::sum, root, streams);
  }
  void reduce_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams = {}) {
    reduce_coalesced(inputs, out, ReduceOp::sum, root, streams);
  }
  /// Reduces by `ReduceOp::sum`. The forms that end in `_add` are other names of the same calls: ranks may
  /// mix them, and messages, traces and plans say `reduce`.
  void reduce_add(TensorList inputs, TensorList out, int root, StreamList streams = {}) {
    reduce(inputs, out, ReduceOp::sum, root, streams);
  }
  void reduce_add_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams = {}) {
    reduce_coalesced(inputs, out, ReduceOp::sum, root, streams);
  }
  /// Combines all members' inputs as `reduce` does, into every `out`, which may be that member's input.
  void all_reduce(TensorList inputs, TensorList out, const ReduceOp& op = ReduceOp::sum,
                  StreamList streams = {});
  void all_reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op = ReduceOp::sum,
                            StreamList streams = {});
  /// All-reduces by `ReduceOp::sum`.
  void all_reduce_add(TensorList inputs, TensorList out, StreamList streams = {}) {
    all_reduce(inputs, out, ReduceOp::sum, streams);
  }
  void all_reduce_add_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {}) {
    all_reduce_coalesced(inputs, out, ReduceOp::sum, streams);
  }
  /// Concatenates all members' inputs, which are equally long and taken as flat, in order of members, into
  /// every `out`. An input may be its own part of its member's `out`.
  void all_gather(TensorList inputs, TensorList out, StreamList streams = {});
  /// Gathers many tensors as one operation: out[i][t] becomes the concatenation of all inputs[m][t].
  void all_gather_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {});
  /// Combines all members' inputs, taken as flat, and cuts the result into equal parts, one per member; every
  /// `out` gets that member's part, and has as many elements. An `out` may be its own part of its member's
  /// input.
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op = ReduceOp::sum,
                      StreamList streams = {});
  /// Reduces and scatters by `ReduceOp::sum`.
  void reduce_scatter_add(TensorList inputs, TensorList out, StreamList streams = {}) {
    reduce_scatter(inputs, out, ReduceOp::sum, streams);
  }
  /// Reduces and scatters many tensors, each of which is cut, as one operation.
  void reduce_scatter_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op = ReduceOp::sum,
                                StreamList streams = {});

  // Parts of unequal lengths, and exchanges of all with all. Sizes are numbers of elements, or lengths along
  // a dimension; 0 too.
  /// Gathers inputs of unequal lengths: member m's input has `sizes[m]` elements, and every `out` has as many
  /// as all of them. All ranks give the sizes of all members. Cost: as with equal parts; NCCL has no call for
  /// this and makes a broadcast for each part. If members read one another's memory, large inputs that do not
  /// begin at a multiple of 16 bytes are copied first; a part in place may begin anywhere.
  void all_gather(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes, StreamList streams = {});
  /// Makes empty braces mean no streams.
  void all_gather(TensorList inputs, TensorList out, std::initializer_list<Stream> streams) {
    all_gather(inputs, out, StreamList(streams));
  }
  /// Joins the inputs along dimension `dim` (negative counts from the end), the same on all ranks: member m's
  /// input has size `sizes[m]` there, every `out` has the sum of the sizes, and all other dimensions are
  /// equal. Cost: as above along the first dimension, or if all dimensions before `dim` have size 1. Along
  /// other dimensions, every `out` is assembled from a copy that holds one part behind the other, which takes
  /// as much memory again and a copy within the device; then no input may be a part of an `out`.
  template <std::integral Dim>
  void all_gather(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes, Dim dim,
                  StreamList streams = {}) {
    gather_along(inputs, out, sizes, static_cast<int>(dim), streams);
  }
  /// Reduces and scatters into parts of unequal lengths: member m's `out` has `sizes[m]` elements. NCCL makes
  /// a reduce for each part.
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op, ListOf<std::int64_t> sizes,
                      StreamList streams = {});
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op,
                      std::initializer_list<Stream> streams) {
    reduce_scatter(inputs, out, op, StreamList(streams));
  }
  /// Cuts the result along dimension `dim`: member m's `out` has size `sizes[m]` there. Along dimensions
  /// other than the first, every input is copied first, part by part.
  template <std::integral Dim>
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op, ListOf<std::int64_t> sizes,
                      Dim dim, StreamList streams = {}) {
    reduce_scatter_along(inputs, out, op, sizes, static_cast<int>(dim), streams);
  }
  /// Cuts every input, taken as flat, into equal parts, one for each member: part j of member i's input
  /// becomes part i of member j's `out`, which has as many elements. An `out` may be its member's input. The
  /// input is then copied first if others read it in place or NCCL carries the call, which takes as much
  /// memory again.
  void all_to_all(TensorList inputs, TensorList out, StreamList streams = {});
  /// Exchanges the parts of many tensors, each of which is cut, as one operation.
  void all_to_all_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {});
  /// Exchanges parts of unequal lengths, without gaps between them: `input_sizes[i][m]` elements of local
  /// member i's input go to member m, and `out_sizes[i][m]` elements of its `out` come from member m. An
  /// `out` that is as long as the input may be the input, which is copied unless all sizes are equal. The
  /// sizes of other ranks' members need not be known: the call returns when all ranks have made it. If two
  /// members disagree on the size of a part, the communicator ends with Error(invalid_argument) before
  /// anything moves; if both belong to one process, the call is refused like one with other bad arguments.
  /// Cost: unless all sizes are equal, a plan is made for these sizes, and kept for later calls.
  void all_to_all(TensorList inputs, TensorList out, ListOf<std::vector<std::int64_t>> input_sizes,
                  ListOf<std::vector<std::int64_t>> out_sizes, StreamList streams = {});

  /// Cuts the root's `tensor` along `dim` (negative counts from the end): member i gets the part that its
  /// `out` has room for. Processes without the root give an undefined tensor.
  void scatter(const Tensor& tensor, TensorList out, int root, int dim = 0, StreamList streams = {});
  /// Joins all members' tensors along `dim` in the root's `out`. Tensors without dimensions are joined to a
  /// vector with an element for each, as by `tutti::gather`.
  void gather(TensorList tensors, const Tensor& out, int root, int dim = 0, StreamList streams = {});

  /// Makes work that is queued later on these streams, on all ranks, run after all work that was queued on
  /// any of them before. Like the other calls, it returns without waiting.
  void barrier(StreamList streams = {});

  // With returned results. On the current streams, the calls above with outputs that they make: dense, of the
  // inputs' element types. `inputs` are a tensor or a vector, as the results are then (`MemberTensors`); of
  // coalesced calls a list or a vector of lists. Ranks may mix these forms and those above, but for
  // `broadcast`, `broadcast_coalesced`, `scatter` and `gather`. Errors are those of the calls above. Of
  // messages only `Communicator::sendrecv` has such a form: who receives alone would not know sizes and type,
  // which only the sender has.

  /// Returns tensors like the inputs.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_reduce_add(const Operands& inputs) {
    return all_reduce(inputs);
  }
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_reduce(const Operands& inputs, const ReduceOp& op = ReduceOp::sum) {
    return results(Collective::all_reduce, op, inputs);
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_reduce_add_coalesced(const Operands& inputs) {
    return all_reduce_coalesced(inputs);
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_reduce_coalesced(const Operands& inputs, const ReduceOp& op = ReduceOp::sum) {
    return lists_of_results(Collective::all_reduce, op, inputs);
  }
  /// Returns the inputs joined along the first dimension; tensors without dimensions are joined to a vector
  /// with an element for each member.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_gather(const Operands& inputs) {
    return results(Collective::all_gather, ReduceOp::sum, inputs);
  }
  /// Returns flat tensors, of inputs of unequal lengths.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_gather(const Operands& inputs, const std::vector<std::int64_t>& sizes) {
    return only<Operands>(made(each(inputs), sizes, std::nullopt));
  }
  /// Returns the inputs joined along `dim`.
  template <MemberTensors Operands, std::integral Dim>
  [[nodiscard]] Operands all_gather(const Operands& inputs, const std::vector<std::int64_t>& sizes, Dim dim) {
    return only<Operands>(made(each(inputs), sizes, static_cast<int>(dim)));
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_gather_coalesced(const Operands& inputs) {
    return lists_of_results(Collective::all_gather, ReduceOp::sum, inputs);
  }
  /// Returns parts along the first dimension, whose size is a multiple of the number of members.
  template <MemberTensors Operands>
  [[nodiscard]] Operands reduce_scatter_add(const Operands& inputs) {
    return reduce_scatter(inputs);
  }
  template <MemberTensors Operands>
  [[nodiscard]] Operands reduce_scatter(const Operands& inputs, const ReduceOp& op = ReduceOp::sum) {
    return results(Collective::reduce_scatter, op, inputs);
  }
  /// Returns flat parts of unequal lengths.
  template <MemberTensors Operands>
  [[nodiscard]] Operands reduce_scatter(const Operands& inputs, const ReduceOp& op,
                                        const std::vector<std::int64_t>& sizes) {
    return only<Operands>(made(op, each(inputs), sizes, std::nullopt));
  }
  /// Returns parts along `dim`.
  template <MemberTensors Operands, std::integral Dim>
  [[nodiscard]] Operands reduce_scatter(const Operands& inputs, const ReduceOp& op,
                                        const std::vector<std::int64_t>& sizes, Dim dim) {
    return only<Operands>(made(op, each(inputs), sizes, static_cast<int>(dim)));
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands reduce_scatter_coalesced(const Operands& inputs,
                                                  const ReduceOp& op = ReduceOp::sum) {
    return lists_of_results(Collective::reduce_scatter, op, inputs);
  }
  /// Returns tensors like the inputs, which are cut into equal parts.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_to_all(const Operands& inputs) {
    return results(Collective::all_to_all, ReduceOp::sum, inputs);
  }
  /// Returns flat tensors, of parts of unequal lengths.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_to_all(const Operands& inputs, ListOf<std::vector<std::int64_t>> input_sizes,
                                    ListOf<std::vector<std::int64_t>> out_sizes) {
    return only<Operands>(made(each(inputs), input_sizes, out_sizes));
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_to_all_coalesced(const Operands& inputs) {
    return lists_of_results(Collective::all_to_all, ReduceOp::sum, inputs);
  }
  /// Returns a tensor like the root's input. Processes without the root get an undefined tensor, or no
  /// tensors.
  template <MemberTensors Operands, std::integral Root>
  [[nodiscard]] Tensor reduce_add(const Operands& inputs, Root root) {
    return reduce(inputs, ReduceOp::sum, static_cast<int>(root));
  }
  template <MemberTensors Operands>
  [[nodiscard]] Tensor reduce(const Operands& inputs, const ReduceOp& op, int root) {
    return result_of_root(Collective::reduce, op, each(inputs), root);
  }
  template <MemberLists Operands, std::integral Root>
  [[nodiscard]] std::vector<Tensor> reduce_add_coalesced(const Operands& inputs, Root root) {
    return reduce_coalesced(inputs, ReduceOp::sum, static_cast<int>(root));
  }
  template <MemberLists Operands>
  [[nodiscard]] std::vector<Tensor> reduce_coalesced(const Operands& inputs, const ReduceOp& op, int root) {
    return results_of_root(Collective::reduce, op, lists(inputs), root);
  }
  /// Returns a copy of the root's `tensor` for each local member. Processes without the root give an
  /// undefined tensor, or none: all learn the sizes from the root, for which the host waits until all ranks
  /// have made the call. The same holds for `scatter` and `gather`. None of these can be captured:
  /// Error(unsupported).
  template <std::same_as<Tensor> Operand, std::integral Root>
  [[nodiscard]] std::vector<Tensor> broadcast(const Operand& tensor, Root root) {
    return broadcast_with_sizes(tensor, static_cast<int>(root));
  }
  template <std::same_as<std::vector<Tensor>> Operands, std::integral Root>
  [[nodiscard]] std::vector<std::vector<Tensor>> broadcast_coalesced(const Operands& tensors, Root root) {
    return broadcast_coalesced_with_sizes(tensors, static_cast<int>(root));
  }
  /// Returns one part for each local member. Part m is member m's: ceil(size / members) along `dim` each, the
  /// last smaller, empty ones where nothing is left, as those of `tutti::scatter`.
  template <std::same_as<Tensor> Operand, std::integral Root>
  [[nodiscard]] std::vector<Tensor> scatter(const Operand& tensor, Root root, int dim = 0) {
    return scatter_with_sizes(tensor, static_cast<int>(root), dim);
  }
  /// Returns the joined tensor at the root, and an undefined one in processes without it.
  template <MemberTensors Operands, std::integral Root>
  [[nodiscard]] Tensor gather(const Operands& tensors, Root root, int dim = 0) {
    return gather_with_sizes(each(tensors), static_cast<int>(root), dim);
  }

 private:
  friend class Communicator;
  friend struct CommunicatorAccess;
  class Impl;
  CommunicatorCollectives() noexcept;  ///< empty
  explicit CommunicatorCollectives(std::unique_ptr<Impl> impl) noexcept;
  CommunicatorCollectives(CommunicatorCollectives&&) noexcept;
  CommunicatorCollectives& operator=(CommunicatorCollectives&&) noexcept;
  ~CommunicatorCollectives();

  /// Returns the communicator's parts. Throws Error(invalid_argument) if it is empty.
  [[nodiscard]] Impl& impl() const;

  static TensorList each(const Tensor& tensor) { return std::span(&tensor, 1); }
  static TensorList each(const std::vector<Tensor>& tensors) { return tensors; }
  static TensorLists lists(const std::vector<Tensor>& list) { return std::span(&list, 1); }
  static TensorLists lists(const std::vector<std::vector<Tensor>>& lists) { return lists; }
  /// Returns all results, or the only one.
  template <class Operands, class Made>
  static Operands only(std::vector<Made> all) {
    if constexpr (std::same_as<Operands, Made>) {
      return std::move(all.front());
    } else {
      return all;
    }
  }
  template <class Operands>
  Operands results(Collective collective, const ReduceOp& op, const Operands& inputs) {
    return only<Operands>(made(collective, op, each(inputs)));
  }
  template <class Operands>
  Operands lists_of_results(Collective collective, const ReduceOp& op, const Operands& inputs) {
    return only<Operands>(made(collective, op, lists(inputs)));
  }
  std::vector<Tensor> made(Collective collective, const ReduceOp& op, TensorList inputs);
  std::vector<std::vector<Tensor>> made(Collective collective, const ReduceOp& op, TensorLists inputs);
  void gather_along(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes, int dim,
                    StreamList streams);
  void reduce_scatter_along(TensorList inputs, TensorList out, const ReduceOp& op, ListOf<std::int64_t> sizes,
                            int dim, StreamList streams);
  std::vector<Tensor> made(TensorList inputs, const std::vector<std::int64_t>& sizes, std::optional<int> dim);
  std::vector<Tensor> made(const ReduceOp& op, TensorList inputs, const std::vector<std::int64_t>& sizes,
                           std::optional<int> dim);
  std::vector<Tensor> made(TensorList inputs, ListOf<std::vector<std::int64_t>> input_sizes,
                           ListOf<std::vector<std::int64_t>> out_sizes);
  Tensor result_of_root(Collective collective, const ReduceOp& op, TensorList inputs, int root);
  std::vector<Tensor> results_of_root(Collective collective, const ReduceOp& op, TensorLists inputs,
                                      int root);
  std::vector<Tensor> broadcast_with_sizes(const Tensor& tensor, int root);
  std::vector<std::vector<Tensor>> broadcast_coalesced_with_sizes(const std::vector<Tensor>& tensors,
                                                                  int root);
  std::vector<Tensor> scatter_with_sizes(const Tensor& tensor, int root, int dim);
  Tensor gather_with_sizes(TensorList tensors, int root, int dim);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
