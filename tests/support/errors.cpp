#include "support/errors.hpp"

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
    for (const std::string& fragment : fragments) {
      if (message.find(fragment) == std::string::npos) {
        return testing::AssertionFailure() << "no \"" << fragment << "\" in: " << message;
      }
    }
    return testing::AssertionSuccess();
  } catch (const std::exception& error) {
    return testing::AssertionFailure() << "not a tutti::Error: " << error.what();
  }
  return testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace tutti::test
