// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

/// Kernels of a program that trains beside the library's own.
namespace tutti::test {

/// Fills `out` with small numbers that depend on `seed`.
void fill_with_numbers(__nv_bfloat16* out, std::int64_t count, std::uint32_t seed, cudaStream_t stream);

/// Adds the rows of `matrix` (`rows` times `columns`) into `out`. Every block adds some of them; the block
/// that finishes last adds what the others have stored in `partial`, which has `blocks_of_column_sums` rows.
/// `done` is a counter, 0 before and after.
void add_rows(const __nv_bfloat16* matrix, std::int64_t rows, std::int64_t columns, __nv_bfloat16* out,
              float* partial, std::uint32_t* done, cudaStream_t stream);
inline constexpr unsigned blocks_of_column_sums = 264;

/// Counts the elements of `result` that are not the average of `own` and `peer`, to the bit, in `wrong[0]`,
/// and keeps the number of one of them in `wrong[1]`.
void count_wrong_averages(const __nv_bfloat16* result, const __nv_bfloat16* own, const __nv_bfloat16* peer,
                          std::int64_t count, unsigned long long* wrong, cudaStream_t stream);

}  // namespace tutti::test
