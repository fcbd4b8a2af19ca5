// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::nccl {

/// A number that no result has.
inline constexpr int unused_result = 15;
/// Contains what `ncclGetErrorString` says in libtutti_nccl.so, which has NCCL's names and is not NCCL.
inline constexpr std::string_view mark_of_tutti = "tutti: not a result of this interface";

/// Returns the paths where NCCL's library may be while the loader's `libnccl.so.2` is tutti's own: in
/// `NCCL_HOME`, in the package of the process's Python (beside libraries that it has loaded, in its virtual
/// environment, or where it is installed), and among the system's libraries. Only files that exist.
[[nodiscard]] std::vector<std::string> library_paths();

}  // namespace tutti::transport::nccl
