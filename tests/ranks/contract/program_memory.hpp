// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::test::ranks {

/// Makes tensors of this process lie in blocks that the program allocates itself, if `TUTTI_TEST_MEMORY` says
/// so, by the names of `perf::MemoryChoice`. Call it before anything is allocated.
void use_program_memory();

}  // namespace tutti::test::ranks
