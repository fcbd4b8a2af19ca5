// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/nvlink.hpp"

#include "backend/cuda/nvml.hpp"

#include <cstdlib>

namespace tutti::backend::cuda {
namespace {

struct NvmlPciInfo {
  char legacy_bus_id[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];
};
constexpr unsigned most_links = 18;
constexpr int device_type_switch = 2;

class NvLinks {
 public:
  NvLinks() {
    const DriverLibrary& nvml = session_.driver_library();
    nvml.load(link_state_, "nvmlDeviceGetNvLinkState");
    nvml.load(remote_, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    nvml.load(remote_type_, "nvmlDeviceGetNvLinkRemoteDeviceType");
  }
  [[nodiscard]] bool is_ready() const {
    return session_.is_open() && link_state_ != nullptr && remote_ != nullptr;
  }

  /// The bus ids at the far ends of the active links of a GPU.
  [[nodiscard]] std::vector<std::string> far_ends(const std::string& bus_id) const {
    std::vector<std::string> ends;
    for_each_link(bus_id, [&](NvmlDevice device, unsigned link) {
      NvmlPciInfo remote{};
      // The switch may be hidden in virtual machines: then the bus id stays empty, and matches no GPU.
      static_cast<void>(remote_(device, link, &remote));
      ends.emplace_back(remote.bus_id);
    });
    return ends;
  }
  [[nodiscard]] bool leads_to_switches(const std::string& bus_id) const {
    unsigned links = 0;
    unsigned to_switches = 0;
    for_each_link(bus_id, [&](NvmlDevice device, unsigned link) {
      int type = -1;
      ++links;
      if (remote_type_ != nullptr && remote_type_(device, link, &type) == nvml_success)
        to_switches += type == device_type_switch ? 1U : 0U;
    });
    return links > 0 && to_switches == links;
  }

 private:
  /// Calls `visitor(device, link)` for the active links of a GPU.
  template <class Visitor>
  void for_each_link(const std::string& bus_id, const Visitor& visitor) const {
    NvmlDevice device = nullptr;
    if (session_.find(bus_id, device) != nvml_success) return;
    for (unsigned link = 0; link < most_links; ++link) {
      int is_active = 0;
      if (link_state_(device, link, &is_active) == nvml_success && is_active != 0) visitor(device, link);
    }
  }
  NvmlSession session_;
  int (*link_state_)(NvmlDevice, unsigned, int*) = nullptr;
  int (*remote_)(NvmlDevice, unsigned, NvmlPciInfo*) = nullptr;
  int (*remote_type_)(NvmlDevice, unsigned, int*) = nullptr;
};

/// CUDA prints a domain of four digits, NVML one of eight; both are hexadecimal, in upper or lower case.
bool same_bus_id(const std::string& a, const std::string& b) {
  const auto parse = [](const std::string& text) {
    char* rest = nullptr;
    const unsigned long domain = std::strtoul(text.c_str(), &rest, 16);
    const unsigned long bus = *rest == ':' ? std::strtoul(rest + 1, &rest, 16) : 0;
    const unsigned long device = *rest == ':' ? std::strtoul(rest + 1, &rest, 16) : 0;
    return domain << 16U | bus << 8U | device;
  };
  return parse(a) == parse(b);
}

}  // namespace

std::vector<std::vector<int>> nvlink_lanes(const std::vector<std::string>& pci_bus_ids) {
  const std::size_t count = pci_bus_ids.size();
  std::vector<std::vector<int>> lanes(count, std::vector<int>(count, 0));
  const NvLinks nvml;
  if (!nvml.is_ready()) return lanes;
  for (std::size_t device = 0; device < count; ++device) {
    for (const std::string& end : nvml.far_ends(pci_bus_ids[device])) {
      bool ends_at_a_gpu = false;
      for (std::size_t peer = 0; peer < count; ++peer) {
        if (!same_bus_id(end, pci_bus_ids[peer])) continue;
        ++lanes[device][peer];
        ends_at_a_gpu = true;
      }
      if (ends_at_a_gpu) continue;
      // A link to a switch leads to every GPU behind it.
      for (std::size_t peer = 0; peer < count; ++peer) {
        if (peer != device) ++lanes[device][peer];
      }
    }
  }
  return lanes;
}

bool nvlink_leads_to_switches(const std::string& pci_bus_id) {
  const NvLinks nvml;
  return nvml.is_ready() && nvml.leads_to_switches(pci_bus_id);
}

}  // namespace tutti::backend::cuda
