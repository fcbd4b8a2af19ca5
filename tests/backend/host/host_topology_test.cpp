// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "support/environment.hpp"
#include "support/mutations.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

namespace tutti::virtual_devices {
namespace {

using backend::error_message;
using testing::AllOf;
using testing::HasSubstr;

class VirtualTopology : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"TUTTI_VIRTUAL_DEVICES", "TUTTI_VIRTUAL_TOPOLOGY", "TUTTI_VIRTUAL_MEMORY"})
      unsetenv(name);
    std::filesystem::remove(path_);
  }

  const std::string& file(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }

  std::string refusal_of(const std::string& text) {
    return error_message(ErrorCode::invalid_argument,
                         [&] { (void)VirtualMachine::from_topology(file(text)); });
  }

  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("tutti-topology-" + std::to_string(getpid()) + ".json"))
          .string();
};

TEST_F(VirtualTopology, PresetsDescribeTheirLinks) {
  using enum VirtualLink;
  const auto island = VirtualMachine::from_topology("island", 3);
  EXPECT_EQ(island.device_count, 3);
  EXPECT_EQ(island.name, "island");
  EXPECT_EQ(island.links[0][2], nvlink);
  const auto islands = VirtualMachine::from_topology("two-islands", 4);
  EXPECT_EQ(islands.links[0], (std::vector{none, nvlink, none, none}));
  EXPECT_EQ(islands.links[3], (std::vector{none, none, nvlink, none}));
  EXPECT_EQ(VirtualMachine::from_topology("pcie", 2).links[0][1], none);
  EXPECT_EQ(VirtualMachine::from_topology("pcie-p2p", 2).links[0][1], pcie);
  EXPECT_EQ(VirtualMachine::from_topology("island").device_count, 8);
}

TEST_F(VirtualTopology, FilesDescribeMachines) {
  using enum VirtualLink;
  const auto machine = VirtualMachine::from_topology(file(
      R"({"name": "odd", "devices": 3, "memory": "512M",
          "links": [["self", "nvlink", "pcie"], ["nvlink", "self", "none"], ["pcie", "none", "self"]]})"));
  EXPECT_EQ(machine.name, "odd");
  EXPECT_EQ(machine.device_count, 3);
  EXPECT_EQ(machine.memory_bytes, std::size_t{512} << 20);
  EXPECT_EQ(machine.links[0], (std::vector{none, nvlink, pcie}));
  EXPECT_EQ(machine.links[1], (std::vector{nvlink, none, none}));
  EXPECT_EQ(VirtualMachine::from_topology(file(R"({"devices": 2, "memory": 4096})")).memory_bytes, 4096U);
  EXPECT_EQ(
      VirtualMachine::from_topology(file(R"({"links": [["self", "none"], ["none", "self"]]})")).device_count,
      2);
}

TEST_F(VirtualTopology, RefusalsNameTheFileAndTheField) {
  const auto names = [this](const char* field) { return AllOf(HasSubstr(path_), HasSubstr(field)); };
  EXPECT_THAT(refusal_of("{"), names("not valid JSON"));
  EXPECT_THAT(refusal_of("[]"), names("JSON object"));
  EXPECT_THAT(refusal_of("{}"), names("'devices'"));
  EXPECT_THAT(refusal_of(R"({"devices": 0})"), names("'devices'"));
  EXPECT_THAT(refusal_of(R"({"devices": 1025})"), names("'devices'"));
  EXPECT_THAT(refusal_of(R"({"devices": 99999999999999999999})"), names("'devices'"));
  EXPECT_THAT(refusal_of(R"({"devices": "2"})"), names("'devices'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2.5})"), names("'devices'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "name": 3})"), names("'name'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "memory": "lots"})"), names("'memory'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "memory": 0})"), names("'memory'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "memory": -1})"), names("'memory'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "memory": "99999999999999999G"})"), names("'memory'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "link": []})"), names("\"link\""));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "links": []})"), names("'links'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "links": [["self"], ["none", "self"]]})"), names("'links[0]'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "links": [["self", "none"], ["none", "none"]]})"),
              names("'links[1][1]'"));
  EXPECT_THAT(refusal_of(R"({"devices": 2, "links": [["self", "warp"], ["none", "self"]]})"),
              AllOf(names("'links[0][1]'"), HasSubstr("warp")));
}

TEST_F(VirtualTopology, RefusalsAreShortWhateverTheFileHolds) {
  const auto depth = static_cast<std::size_t>(test::scaled(1'000'000));
  for (const std::string& value : {std::string(depth, '[') + std::string(depth, ']'),
                                   '"' + std::string(depth, 'x') + '"', std::string(R"("two\nlines")")}) {
    for (const char* format : {R"({"devices": 2, "memory": VALUE})", R"({"devices": VALUE})",
                               R"({"links": [["self", VALUE], ["none", "self"]]})"}) {
      std::string text = format;
      text.replace(text.find("VALUE"), 5, value);
      const std::string message = refusal_of(text);
      EXPECT_LT(message.size(), path_.size() + 200);
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  }
  EXPECT_THAT(refusal_of(R"({"devices": 2, "two\nlines": 1})"), HasSubstr(R"("two\nlines")"));
}

TEST_F(VirtualTopology, AFileWithoutDevicesIsRefused) {
  EXPECT_THAT(refusal_of(R"({"links": []})"), AllOf(HasSubstr("'links'"), HasSubstr("1 to 1024 rows")));
  EXPECT_THAT(refusal_of(R"({"devices": 0, "links": []})"), HasSubstr("'devices'"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("'devices': missing"));
  std::string rows = "[]";
  for (int i = 0; i < 1024; ++i) rows += ",[]";
  EXPECT_THAT(refusal_of(R"({"links": [)" + rows + "]}"), AllOf(HasSubstr("'links'"), HasSubstr("1025")));
}

TEST_F(VirtualTopology, RefusalsRepeatNoLongTexts) {
  const std::string word(100'000, 'x');
  const std::vector<std::string> texts{word,
                                       '"' + word,
                                       R"({"links": )" + word,
                                       R"({"name": ")" + word + R"(", "devices": 1})",
                                       R"({")" + word + R"(": 1})",
                                       R"({"devices": ")" + word + R"("})"};
  for (const std::string& text : texts) {
    const std::string refusal = refusal_of(text);
    EXPECT_THAT(refusal, HasSubstr(path_));
    EXPECT_LT(refusal.size(), path_.size() + 400) << refusal.substr(0, 1000);
    EXPECT_EQ(refusal.find('\n'), std::string::npos);
  }
  EXPECT_LT(
      error_message(ErrorCode::invalid_argument, [&] { (void)VirtualMachine::from_topology(word); }).size(),
      400U);
}

TEST_F(VirtualTopology, TakesOrRefusesWhateverAFileHolds) {
  const std::string original =
      R"({"name": "odd", "devices": 3, "memory": "512M", "links": [["self", "nvlink", "pcie"], )"
      R"(["nvlink", "self", "none"], ["pcie", "none", "self"]]})";
  const auto words = test::with_strange_numbers(
      {"\"", "[", "]", "{", "}", ",", ":", "null", "true", "\"self\"", "\"devices\"", "\\u00"});
  test::Random random(1);
  int taken = 0;
  int refused = 0;
  const std::int64_t files = test::scaled(5'000);
  for (std::int64_t i = 0; i < files && !HasFailure(); ++i) {
    const std::string text = test::mutated(original, random, words);
    SCOPED_TRACE(text);
    try {
      const auto machine = VirtualMachine::from_topology(file(text));
      EXPECT_EQ(backend::make_host_backend(machine).backend->device_count(), machine.device_count);
      ++taken;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(path_));
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(taken, files / 400);
  EXPECT_GT(refused, files / 5);
}

TEST_F(VirtualTopology, RefusesWhatIsNeitherPresetNorFile) {
  EXPECT_THAT(
      error_message(ErrorCode::invalid_argument, [] { (void)VirtualMachine::from_topology("archipelago"); }),
      AllOf(HasSubstr("archipelago"), HasSubstr("two-islands")));
  EXPECT_THAT(
      error_message(ErrorCode::invalid_argument, [] { (void)VirtualMachine::from_topology("island", 0); }),
      AllOf(HasSubstr("from_topology"), HasSubstr("0")));
}

TEST_F(VirtualTopology, ComesFromTheEnvironment) {
  EXPECT_EQ(VirtualMachine::from_environment().device_count, 8);
  setenv("TUTTI_VIRTUAL_DEVICES", "5", 1);
  setenv("TUTTI_VIRTUAL_TOPOLOGY", "pcie-p2p", 1);
  setenv("TUTTI_VIRTUAL_MEMORY", "3M", 1);
  const auto machine = VirtualMachine::from_environment();
  EXPECT_EQ(machine.device_count, 5);
  EXPECT_EQ(machine.name, "pcie-p2p");
  EXPECT_EQ(machine.memory_bytes, std::size_t{3} << 20);
  setenv("TUTTI_VIRTUAL_TOPOLOGY", file(R"({"devices": 2})").c_str(), 1);
  EXPECT_THAT(error_message(ErrorCode::invalid_argument, [] { (void)VirtualMachine::from_environment(); }),
              HasSubstr("TUTTI_VIRTUAL_DEVICES"));
  unsetenv("TUTTI_VIRTUAL_DEVICES");
  EXPECT_EQ(VirtualMachine::from_environment().device_count, 2);
}

TEST_F(VirtualTopology, MachinesThatContradictThemselvesDoNotBoot) {
  const auto refusal_of = [](const VirtualMachine& machine) {
    return error_message(ErrorCode::invalid_argument, [&] { (void)backend::make_host_backend(machine); });
  };
  VirtualMachine machine;
  machine.device_count = 2;
  machine.links.resize(1);
  EXPECT_THAT(refusal_of(machine), HasSubstr("1 rows of links for 2 devices"));
  machine.links = {{VirtualLink::none, VirtualLink::none}, {VirtualLink::none}};
  EXPECT_THAT(refusal_of(machine), HasSubstr("links[1] has 1 entries for 2 devices"));
  machine.links[1].push_back(VirtualLink::none);
  EXPECT_EQ(backend::make_host_backend(machine).backend->device_count(), 2) << "without contradictions";
  machine = {};
  machine.device_count = -1;
  EXPECT_THAT(refusal_of(machine), HasSubstr("-1 devices"));
  machine = {};
  machine.memory_bytes = 0;
  EXPECT_THAT(refusal_of(machine), HasSubstr("devices without memory"));
}

TEST_F(VirtualTopology, PropertiesTellWhatAVirtualDeviceIs) {
  VirtualMachine machine;
  machine.device_count = 2;
  machine.memory_bytes = 1 << 20;
  const auto host = backend::make_host_backend(machine);
  EXPECT_EQ(host.backend->kind(), BackendKind::host);
  EXPECT_EQ(host.backend->device_count(), 2);
  EXPECT_EQ(host.backend->properties(1).name, "virtual device");
  EXPECT_EQ(host.backend->properties(1).total_memory, 1U << 20);
  EXPECT_EQ(host.backend->stream_priority_range(0), std::pair(0, -5));
}

}  // namespace
}  // namespace tutti::virtual_devices
