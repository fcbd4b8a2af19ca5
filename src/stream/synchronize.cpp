// SPDX-License-Identifier: Apache-2.0
#include "device/blocking_call.hpp"
#include "device/capture_gate.hpp"
#include "device/current_device.hpp"
#include "device/ended_work.hpp"
#include "device/host_waits.hpp"
#include "stream/late_releases.hpp"
#include "tutti/device.hpp"

namespace tutti {

void synchronize(Device device) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "synchronize");
  const BlockingCall blocks("synchronize");
  runtime.part<LateReleases>().release();
  {
    const CaptureGate::Wait wait(runtime.part<CaptureGate>());
    runtime.backend().synchronize_device(index);
  }
  HostWaits::count_one();
  runtime.part<EndedWork>().report(index);
}

}  // namespace tutti
