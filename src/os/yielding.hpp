// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::backend {

/// Yields the processor for a thread that polls before it sleeps. Returns false, without yielding, if the
/// thread should sleep now.
///
/// On a crowded machine, a thread that yields comes back after another program's time slice, which takes
/// milliseconds, while a thread that sleeps is woken when there is something to do. So this returns false for
/// a while once long yields of the calling thread have taken 10 ms more than a tenth of the time.
[[nodiscard]] bool yield_unless_crowded() noexcept;

}  // namespace tutti::backend
