// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"

#include "support/timing.hpp"
#include "tutti/device.hpp"

#include <chrono>

namespace tutti::test {

testing::AssertionResult refuses(const std::function<void()>& call, ErrorCode code,
                                 const std::vector<std::string>& fragments) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != code) {
      return testing::AssertionFailure()
             << "code is " << name_of(error.code()) << ", expected " << name_of(code) << ": " << message;
    }
    return mentions(message, fragments);
  } catch (const std::exception& error) {
    return testing::AssertionFailure() << "not a tutti::Error: " << error.what();
  }
  return testing::AssertionFailure() << "nothing was thrown";
}

testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& fragments) {
  for (const std::string& fragment : fragments) {
    if (text.find(fragment) == std::string::npos)
      return testing::AssertionFailure() << "no \"" << fragment << "\" in: " << text;
  }
  return testing::AssertionSuccess();
}

std::string failure_of(int device, const std::function<void()>& call) {
  try {
    for (const Stopwatch watch; watch.elapsed() < std::chrono::seconds(20);) {
      call();
      synchronize(device);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing fails";
}

}  // namespace tutti::test
