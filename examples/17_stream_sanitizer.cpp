// SPDX-License-Identifier: Apache-2.0
// A race between two streams, found: the stream sanitizer follows all that the library queues, and reports
// two accesses that nothing orders, whether or not they happened to run in a good order this time.

#include "tutti/tutti.hpp"

#include <iostream>

int main() {
  namespace sanitizer = tutti::stream_sanitizer;
  sanitizer::enable(sanitizer::Mode::error);  // before the first use of a device

  const tutti::Stream compute(tutti::Device(0));
  const tutti::Stream copies(tutti::Device(0));
  const tutti::Tensor result = tutti::zeros({1 << 20}, {.device = 0});
  const tutti::Tensor copy = tutti::zeros({1 << 20}, {.device = 0});
  tutti::synchronize(0);

  const auto produce = [&] {
    const tutti::StreamGuard guard(compute);
    result.fill_(1);
  };
  const auto consume = [&] {
    const tutti::StreamGuard guard(copies);
    copy.copy_(result);
  };

  produce();
  try {
    consume();
    std::cout << "the race was not found\n";
    return 1;
  } catch (const tutti::Error& error) {
    std::cout << "found: " << error.what() << "\n\n";  // and nothing was queued
  }

  copies.wait_stream(compute);  // what was missing
  consume();
  tutti::synchronize(0);
  const float last = copy.to_vector<float>().back();
  std::cout << "in order: the copy ends with " << last << ", races so far: " << sanitizer::report_count()
            << '\n';
  return last == 1 && sanitizer::report_count() == 1 ? 0 : 1;
}
