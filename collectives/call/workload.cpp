// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/workload.hpp"

#include "collectives/call/cut.hpp"
#include "tutti/reduce_types.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::collectives {
namespace {

/// A device has less memory, and a plan of much more would take minutes.
constexpr std::size_t most_bytes = std::size_t{1} << 38U;

void check(const Arguments& arguments, const Workload& workload) {
  if (!is_known(workload.collective) || !moves_tensors(workload.collective)) {
    arguments.fail("collective is {}, expected one that moves tensors",
                   is_known(workload.collective) ? std::string(name_of(workload.collective))
                                                 : std::to_string(static_cast<int>(workload.collective)));
  }
  arguments.enumerator(workload.reduce_kind, ReduceKind::compiled, "reduce_kind");
  arguments.enumerator(workload.dtype, all_dtypes.back(), "dtype");
  for (const DType dtype : workload.tensor_dtypes)
    arguments.enumerator(dtype, all_dtypes.back(), "tensor_dtypes");
  arguments.tensor_dtypes(workload.tensor_dtypes.size(), workload.tensor_bytes.size());
  arguments.tensor_bytes(workload.tensor_bytes.size(), workload.collective);
  if (workload.dim != 0 && workload.dim != 1) arguments.fail("dim is {}, expected 0 or 1", workload.dim);
  if (workload.tensor_bytes.empty() && workload.bytes > most_bytes)
    arguments.fail("bytes is {}, expected {} at most", workload.bytes, most_bytes);
  std::size_t left = most_bytes;
  for (const std::size_t bytes : workload.tensor_bytes) {
    if (bytes > left)
      arguments.fail("tensor_bytes add up to more than {}, expected at most that", most_bytes);
    left -= bytes;
  }
}

/// A tensor of one row, or of many that are cut along their lengths, as `scatter` cuts them without sizes.
void add_cut(Request& request, const Workload& workload, std::size_t members) {
  constexpr std::uint64_t rows_along_dimension_1 = 256;
  const std::uint64_t width = size_of(workload.dtype);
  const std::uint64_t rows = workload.dim == 0 ? 1 : rows_along_dimension_1;
  const std::uint64_t length = workload.bytes / (width * rows);
  CutOperands& cut = request.cut();
  cut.rows = rows;
  cut.row_bytes = length * width;
  std::uint64_t offset = 0;
  for (const std::int64_t chunk : equal_chunks(static_cast<std::int64_t>(length), members)) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(chunk) * width;
    cut.parts.push_back({offset, bytes});
    offset += bytes;
  }
}

}  // namespace

Request request_of(const Arguments& arguments, const Workload& workload, std::size_t members) {
  check(arguments, workload);
  const CollectiveTraits& traits = traits_of(workload.collective);
  Request request(workload.collective,
                  name_of(CollectiveForm(workload.collective, !workload.tensor_bytes.empty())));
  if (traits.reduces) request.reduced().kind = workload.reduce_kind;
  if (traits.has_own_sizes) {
    add_cut(request, workload, members);
    return request;
  }
  std::vector<std::size_t> sizes = workload.tensor_bytes;
  if (sizes.empty()) sizes = {workload.bytes};
  request.columns = sizes.size();
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    const DType dtype = workload.tensor_dtypes.empty() ? workload.dtype : workload.tensor_dtypes[t];
    if (traits.reduces && !has_operation(dtype, workload.reduce_kind)) {
      arguments.fail("reduce_kind is {}, expected one that {} supports", name_of(workload.reduce_kind),
                     name_of(dtype));
    }
    std::uint64_t elements = sizes[t] / size_of(dtype);
    if (moves_parts(workload.collective)) {
      // An input is a part, or a whole.
      const bool has_wholes = traits.output == CollectiveOutput::part;
      elements = has_wholes ? elements - elements % members : elements / members;
    }
    request.add_column(elements, dtype);
  }
  return request;
}

}  // namespace tutti::collectives
