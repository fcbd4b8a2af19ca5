// SPDX-License-Identifier: Apache-2.0
// Who waits for whom: calls return at once and follow the streams that are current, so that a program which
// keeps to them waits for nothing itself.

#include "tutti/tutti.hpp"

#include <iostream>

int main() {
  // A stream of its own on each of two devices, current in this thread until the guards go.
  const tutti::Stream on_0(tutti::Device(0));
  const tutti::Stream on_1(tutti::Device(1));
  const tutti::StreamGuard guard_0(on_0);
  const tutti::StreamGuard guard_1(on_1);

  const tutti::Tensor source = tutti::zeros({1 << 20}, {.device = 0});
  const tutti::Tensor copy = tutti::empty({1 << 20}, {.device = 1});
  source.fill_(7);                   // queued on on_0
  tutti::broadcast(source, {copy});  // reads after the fill, has written for what comes next on on_1
  source.fill_(8);                   // queued behind the read: `copy` stays 7

  // Another stream of device 1 knows nothing of this, until it waits.
  const tutti::Stream side(tutti::Device(1));
  side.wait_stream(on_1);
  {
    const tutti::StreamGuard guard(side);
    std::cout << "the copy on device 1 is " << copy.to_vector<float>().back() << '\n';  // waits for `side`
  }

  // An event marks a point of a stream, for streams and for the host.
  const tutti::Event filled = on_0.record_event();
  filled.synchronize();
  std::cout << "the source is " << source.to_vector<float>().back() << ", and nothing waited for device 1\n";
}
