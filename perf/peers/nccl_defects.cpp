// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_defects.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::perf {
namespace {

/// The first one that has kernels for averages in windows.
constexpr int averages_in_windows = 23000;

bool is_summed_in_windows(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float16 || dtype == DType::bfloat16 ||
         dtype == DType::complex64;
}

/// How many of a call's tensors go by kernels of windows; others go as in registered buffers.
std::size_t tensors_by_windows(int version, const Operation& operation, const Case& what) {
  if (operation.has_unequal_parts()) return 0;
  const std::vector<TensorSpec> tensors = payload_tensors(what, operation.is_coalesced());
  if (operation.is(Collective::all_gather)) return tensors.size();
  if (!operation.is(Collective::all_reduce) && !operation.is(Collective::reduce_scatter)) return 0;
  const bool averages = what.reduce_kind == ReduceKind::avg && version >= averages_in_windows;
  if (what.reduce_kind != ReduceKind::sum && !averages) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      tensors, [](const TensorSpec& tensor) { return is_summed_in_windows(*tensor.dtype); }));
}

}  // namespace

bool loses_addresses_after_messages(int version) {
  return version >= 22300 && version < 22900;
}

std::string defect_of_windows(int version, const Operation& operation, const Case& what) {
  const std::size_t tensors = tensors_by_windows(version, operation, what);
  if (version >= 22800 && version < 22807 && tensors > 1)
    return "NCCL 2.28 before 2.28.7 mixes up the calls of a group in symmetric windows";
  // No version is known in which it has them.
  if (version >= averages_in_windows && tensors > 0 && what.reduce_kind == ReduceKind::avg &&
      operation.is(Collective::all_reduce))
    return "NCCL 2.30 and later has no kernel for averages of all_reduce in symmetric windows";
  return "";
}

}  // namespace tutti::perf
