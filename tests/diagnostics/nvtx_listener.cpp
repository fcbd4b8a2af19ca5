// SPDX-License-Identifier: Apache-2.0
// A tool that listens to NVTX, as NVTX_INJECTION64_PATH names one: it keeps what it is told, a line each.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include <nvtx3/nvToolsExt.h>

namespace {

std::mutex mutex;
std::string heard;
/// A domain is known by its address; there is one.
struct nvtxDomainRegistration_st* const only_domain =
    reinterpret_cast<struct nvtxDomainRegistration_st*>(&heard);
std::string domain_name;

void hear(const std::string& line) {
  const std::lock_guard lock(mutex);
  heard += line + '\n';
}

void NVTX_API hear_mark(const char* message) {
  hear(std::string("mark ") + message);
}
int NVTX_API hear_push(const char* message) {
  hear(std::string("push ") + message);
  return 0;
}
int NVTX_API hear_pop() {
  hear("pop");
  return 0;
}
nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  domain_name = name;
  return only_domain;
}
int NVTX_API hear_domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  if (domain != only_domain || event->version != NVTX_VERSION ||
      event->messageType != NVTX_MESSAGE_TYPE_ASCII ||
      event->payloadType != NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) {
    hear("something else");
    return -1;
  }
  hear(domain_name + " push " + event->message.ascii + " | " + std::to_string(event->payload.ullValue));
  return 0;
}
int NVTX_API hear_domain_pop(nvtxDomainHandle_t domain) {
  hear(domain == only_domain ? domain_name + " pop" : "something else");
  return 0;
}

template <class Function>
void take_over(NvtxFunctionTable table, unsigned int size, unsigned int id, Function* function) {
  if (id < size) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" {

// NOLINTNEXTLINE(readability-identifier-naming): the name that NVTX looks for
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable core = nullptr;
  NvtxFunctionTable domains = nullptr;
  unsigned int core_size = 0;
  unsigned int domains_size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &core_size) == 0 ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &domains, &domains_size) == 0) {
    return 0;
  }
  take_over(core, core_size, NVTX_CBID_CORE_MarkA, hear_mark);
  take_over(core, core_size, NVTX_CBID_CORE_RangePushA, hear_push);
  take_over(core, core_size, NVTX_CBID_CORE_RangePop, hear_pop);
  take_over(domains, domains_size, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  take_over(domains, domains_size, NVTX_CBID_CORE2_DomainRangePushEx, hear_domain_push);
  take_over(domains, domains_size, NVTX_CBID_CORE2_DomainRangePop, hear_domain_pop);
  return 1;
}

/// Takes the first `size` bytes, or fewer, of what has been heard into `text`; returns how many.
__attribute__((visibility("default"))) std::size_t listener_take(char* text, std::size_t size) {
  const std::lock_guard lock(mutex);
  const std::size_t length = heard.copy(text, size);
  heard.erase(0, length);
  return length;
}

}  // extern "C"
