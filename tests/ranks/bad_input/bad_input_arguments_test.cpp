// SPDX-License-Identifier: Apache-2.0
#include "ranks/bad_input/bad_call.hpp"
#include "ranks/bad_input/methods.hpp"
#include "tutti/stream.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Every method of a communicator with a wrong root, wrong streams, or lists of the wrong length, and
/// communicators of wrong options.
namespace tutti::test::ranks {
namespace {

std::vector<BadCall> wrong_roots() {
  std::vector<BadCall> calls;
  for (const Method& method : methods()) {
    if (method.root < 0) continue;
    for (const int root : {-1, 2, 65536}) {
      calls.push_back({fmt::format("{}_{}", method.name, root < 0 ? "negative" : std::to_string(root)),
                       [=](Scene& scene) -> CommunicatorCall {
                         return [=, operands = method.operands(scene)](Communicator& communicator) {
                           method.call(communicator, operands, root, {});
                         };
                       },
                       {method.function + ": ", fmt::format("root is {}, expected 0 to 1", root)}});
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorRoots, wrong_roots);

struct WrongStreams {
  std::string name;
  std::vector<int> devices;
  std::vector<std::string> message;
};

std::vector<Stream> streams_on(const std::vector<int>& devices) {
  std::vector<Stream> streams;
  for (const int device : devices) streams.emplace_back(device);
  return streams;
}

std::vector<BadCall> wrong_streams() {
  const std::vector<WrongStreams> kinds{
      {"TooFew", {0}, {"streams has 1 entries", "local member, 2"}},
      {"TooMany", {0, 1, 1}, {"streams has 3 entries", "local member, 2"}},
      {"OfAnotherDevice", {0, 0}, {"streams[1]", "device 0", "expected one of device:1"}},
      {"InAnotherOrder", {1, 0}, {"streams[0]", "device 1", "expected one of device:0"}},
  };
  std::vector<BadCall> calls;
  for (const WrongStreams& wrong : kinds) {
    const auto message = [&wrong](const std::string& function) {
      std::vector<std::string> fragments{function + ": "};
      fragments.insert(fragments.end(), wrong.message.begin(), wrong.message.end());
      return fragments;
    };
    calls.push_back({"barrier_" + wrong.name,
                     [devices = wrong.devices](Scene&) -> CommunicatorCall {
                       return [streams = streams_on(devices)](Communicator& communicator) {
                         communicator.barrier(streams);
                       };
                     },
                     message("barrier")});
    for (const Method& method : methods()) {
      calls.push_back({method.name + "_" + wrong.name,
                       [method, devices = wrong.devices](Scene& scene) -> CommunicatorCall {
                         return [method, operands = method.operands(scene),
                                 streams = streams_on(devices)](Communicator& communicator) {
                           method.call(communicator, operands, method.root, streams);
                         };
                       },
                       message(method.function)});
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorStreams, wrong_streams);

std::vector<BadCall> lists_of_wrong_lengths() {
  std::vector<BadCall> calls;
  for (const Method& method : methods()) {
    for (const MemberList& list : method.lists) {
      for (const std::size_t length : {0U, 1U, 3U}) {
        calls.push_back({fmt::format("{}_{}_of_{}", method.name, list.argument, length),
                         [=](Scene& scene) -> CommunicatorCall {
                           Operands operands = method.operands(scene);
                           std::vector<Row>& rows = operands.*list.side;
                           const Row last = rows.back();
                           rows.resize(length, last);
                           return [=](Communicator& communicator) {
                             method.call(communicator, operands, method.root, {});
                           };
                         },
                         {method.function + ": ", fmt::format("{} has {} entries", list.argument, length),
                          "expected one per local member, 2"}});
      }
    }
  }
  return calls;
}
TUTTI_BAD_CALL_SUITE(CommunicatorLists, lists_of_wrong_lengths);

BadInput options(const char* name, std::function<CommunicatorOptions()> make,
                 std::vector<std::string> message) {
  message.emplace_back("Communicator: ");
  return {name,
          [=](Scene&) -> std::function<void()> { return [=] { const Communicator communicator(make()); }; },
          std::move(message)};
}

std::vector<BadInput> wrong_options() {
  using Options = CommunicatorOptions;
  return {
      options("Host",
              [] {
                return Options{.devices = {0, Device::host()}};
              },
              {"options.devices[1]", "host", "0 to #last"}),
      options("UnknownDevice",
              [] {
                return Options{.devices = {1, device_count()}};
              },
              {"options.devices[1]", "#count", "0 to #last"}),
      options("DeviceNamedTwice",
              [] {
                return Options{.devices = {1, 0, 1}};
              },
              {"options.devices[2]", "device:1", "listed before"}),
      options("NoTime", [] { return Options{.timeout = std::chrono::milliseconds(0)}; },
              {"options.timeout is 0 ms", "expected more than 0"}),
      options("NegativeTime", [] { return Options{.timeout = std::chrono::milliseconds(-1)}; },
              {"options.timeout is -1 ms", "expected more than 0"}),
      options("NoPatience", [] { return Options{.patience = std::chrono::milliseconds(0)}; },
              {"options.patience is 0 ms", "expected more than 0"}),
      options("SmallWindow", [] { return Options{.window_bytes = 524'287}; },
              {"options.window_bytes is 524287", "expected 524288 to 1073741824"}),
      options("LargeWindow", [] { return Options{.window_bytes = 1'073'741'825}; },
              {"options.window_bytes is 1073741825", "expected 524288 to 1073741824"}),
  };
}
TUTTI_BAD_INPUT_SUITE(CommunicatorWithOptions, wrong_options);

}  // namespace
}  // namespace tutti::test::ranks
