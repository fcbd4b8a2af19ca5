// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tutti::backend {

/// For threads that look again and again before they sleep: lets others run meanwhile.
///
/// On a crowded machine who yields comes back after a time slice of another program's, of milliseconds, while
/// who sleeps is woken when there is something to do. So false, for a while, without yielding, once this
/// thread's long yields have taken 10 ms beyond a tenth of the time: then it is time to sleep.
[[nodiscard]] bool yield_unless_crowded() noexcept;

}  // namespace tutti::backend
