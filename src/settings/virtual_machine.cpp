// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_backend.hpp"
#include "base/quoted_text.hpp"
#include "settings/environment.hpp"
#include "settings/file_text.hpp"
#include "tutti/error.hpp"
#include "tutti/virtual_devices.hpp"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

/// Parses descriptions of virtual machines: presets, JSON files and the environment.
namespace tutti::virtual_devices {

namespace {

using nlohmann::json;

constexpr int max_devices = backend::most_virtual_devices;
constexpr int default_devices = 8;
constexpr std::size_t longest_name = 255;    ///< messages tell of it
constexpr std::size_t longest_reason = 160;  ///< why a file is not JSON

[[noreturn]] void refuse(std::string_view where, const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", where, reason));
}

void check_device_count(std::string_view where, int count) {
  if (count >= 1 && count <= max_devices) return;
  refuse(where, fmt::format("{} devices; expected 1 to {}", count, max_devices));
}

/// Gives all pairs of different devices the link `link_of(device, peer)`.
template <class LinkOf>
std::vector<std::vector<VirtualLink>> make_links(int device_count, LinkOf link_of) {
  const auto n = static_cast<std::size_t>(device_count);
  std::vector<std::vector<VirtualLink>> links(n, std::vector<VirtualLink>(n, VirtualLink::none));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      if (i != j) links[i][j] = link_of(i, j);
    }
  }
  return links;
}

std::optional<VirtualMachine> make_preset(std::string_view name, int device_count) {
  VirtualMachine machine;
  machine.name = name;
  machine.device_count = device_count;
  const std::size_t half = (static_cast<std::size_t>(device_count) + 1) / 2;
  if (name == "island") {
    machine.links = make_links(device_count, [](auto, auto) { return VirtualLink::nvlink; });
  } else if (name == "two-islands") {
    machine.links = make_links(device_count, [half](std::size_t i, std::size_t j) {
      return (i < half) == (j < half) ? VirtualLink::nvlink : VirtualLink::none;
    });
  } else if (name == "pcie") {
    machine.links = make_links(device_count, [](auto, auto) { return VirtualLink::none; });
  } else if (name == "pcie-p2p") {
    machine.links = make_links(device_count, [](auto, auto) { return VirtualLink::pcie; });
  } else {
    return std::nullopt;
  }
  return machine;
}

/// Formats a value for messages: one line of bounded length, whatever the file holds.
std::string shown(const json& value) {
  constexpr std::size_t longest = 60;
  if (value.is_structured()) return fmt::format("an {} of {}", value.type_name(), value.size());
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > longest) text.replace(longest, std::string::npos, "...");
  return text;
}

/// Reads one topology file. Every error names the file and the field.
class TopologyFile {
 public:
  explicit TopologyFile(std::string path) : path_(std::move(path)) {
    const FileText file = read_named_file(path_);
    if (!file.text) {
      refuse(fmt::format("topology '{}'", quoted_text(path_, longest_name)),
             fmt::format("neither a preset (island, two-islands, pcie, pcie-p2p) nor a readable file ({})",
                         file.complaint));
    }
    try {
      document_ = json::parse(*file.text);
    } catch (const json::exception& error) {
      // The message repeats the last token, of any length.
      refuse(fmt::format("topology file '{}'", path_),
             fmt::format("not valid JSON: {}", quoted_text(error.what(), longest_reason)));
    }
    if (!document_.is_object()) refuse(fmt::format("topology file '{}'", path_), "expected a JSON object");
  }

  [[nodiscard]] VirtualMachine read() const {
    for (const auto& [key, value] : document_.items()) {
      if (key != "name" && key != "devices" && key != "memory" && key != "links") {
        refuse(fmt::format("topology file '{}'", path_),
               fmt::format("unknown field {}; expected name, devices, memory, links", shown(key)));
      }
    }
    VirtualMachine machine;
    machine.name = read_name();
    machine.device_count = read_device_count();
    machine.memory_bytes = read_memory(machine.memory_bytes);
    machine.links = read_links(machine.device_count);
    return machine;
  }

 private:
  [[noreturn]] void fail(std::string_view field, const std::string& reason) const {
    refuse(fmt::format("topology file '{}', field '{}'", path_, field), reason);
  }

  [[nodiscard]] const json* find(const char* field) const {
    const auto found = document_.find(field);
    return found == document_.end() ? nullptr : &*found;
  }

  [[nodiscard]] std::string read_name() const {
    const json* name = find("name");
    if (name == nullptr) return path_;
    if (!name->is_string()) fail("name", fmt::format("expected a string, got {}", shown(*name)));
    std::string text = name->get<std::string>();
    if (text.size() > longest_name) {
      fail("name",
           fmt::format("expected at most {} bytes, got {}: {}", longest_name, text.size(), shown(*name)));
    }
    return text;
  }

  [[nodiscard]] int read_device_count() const {
    const json* devices = find("devices");
    const json* links = find("links");
    if (devices == nullptr && links != nullptr && links->is_array()) {
      if (links->empty() || links->size() > max_devices) {
        fail("links", fmt::format("expected an array of 1 to {} rows, one per device, got {}", max_devices,
                                  shown(*links)));
      }
      return static_cast<int>(links->size());
    }
    if (devices == nullptr) fail("devices", "missing");
    if (!devices->is_number_integer())
      fail("devices", fmt::format("expected an integer, got {}", shown(*devices)));
    const bool in_range = *devices >= 1 && *devices <= max_devices;
    if (!in_range) fail("devices", fmt::format("expected 1 to {}, got {}", max_devices, shown(*devices)));
    return devices->get<int>();
  }

  [[nodiscard]] std::size_t read_memory(std::size_t default_bytes) const {
    const json* memory = find("memory");
    if (memory == nullptr) return default_bytes;
    std::optional<std::size_t> bytes;
    if (memory->is_number_unsigned()) bytes = memory->get<std::size_t>();
    if (memory->is_string()) bytes = parse_bytes(memory->get<std::string>());
    if (bytes.value_or(0) == 0) {
      fail("memory", fmt::format("expected bytes, or a string such as \"512M\", got {}", shown(*memory)));
    }
    return *bytes;
  }

  [[nodiscard]] std::vector<std::vector<VirtualLink>> read_links(int device_count) const {
    const json* links = find("links");
    if (links == nullptr) return {};
    const auto n = static_cast<std::size_t>(device_count);
    if (!links->is_array() || links->size() != n) {
      fail("links", fmt::format("expected an array of {} rows, one per device", n));
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (!(*links)[i].is_array() || (*links)[i].size() != n) {
        fail(fmt::format("links[{}]", i), fmt::format("expected an array of {} entries", n));
      }
      if ((*links)[i][i] != "self") fail(fmt::format("links[{}][{}]", i, i), "expected \"self\"");
    }
    return make_links(device_count, [&](std::size_t i, std::size_t j) {
      const json& link = (*links)[i][j];
      if (link == "nvlink") return VirtualLink::nvlink;
      if (link == "pcie") return VirtualLink::pcie;
      if (link == "none") return VirtualLink::none;
      fail(fmt::format("links[{}][{}]", i, j),
           fmt::format("expected \"nvlink\", \"pcie\" or \"none\", got {}", shown(link)));
    });
  }

  std::string path_;
  json document_;
};

}  // namespace

VirtualMachine VirtualMachine::from_topology(std::string_view preset_or_path, int device_count) {
  check_device_count("VirtualMachine::from_topology", device_count);
  if (auto preset = make_preset(preset_or_path, device_count)) return *std::move(preset);
  return TopologyFile(std::string(preset_or_path)).read();
}

VirtualMachine VirtualMachine::from_environment() {
  const Environment environment = Environment::read();
  const std::string topology = environment.virtual_topology.value_or("island");
  const int device_count = environment.virtual_devices.value_or(default_devices);
  VirtualMachine machine = [&] {
    try {
      return from_topology(topology, device_count);
    } catch (const Error& error) {
      refuse("TUTTI_VIRTUAL_TOPOLOGY", error.what());
    }
  }();
  if (environment.virtual_devices.has_value() && machine.device_count != device_count) {
    refuse("TUTTI_VIRTUAL_DEVICES", fmt::format("asks for {} devices, but topology '{}' has {}", device_count,
                                                topology, machine.device_count));
  }
  machine.memory_bytes = environment.virtual_memory.value_or(machine.memory_bytes);
  return machine;
}

}  // namespace tutti::virtual_devices
