// SPDX-License-Identifier: Apache-2.0
#include "backend/host/compiler.hpp"
#include "backend/host/machine.hpp"

#include <cstdint>
#include <utility>
#include <vector>

/// Kernels of the virtual machine that are compiled at run time.
namespace tutti::backend::host {
namespace {

class HostCode final : public CompiledCode {
 public:
  using Entry = void (*)(const void* parameters);
  explicit HostCode(Entry code_entry) : entry(code_entry) {}

  const Entry entry;
};

}  // namespace

std::shared_ptr<const CompiledCode> Machine::compile(int /*device*/, const CodeText& code) {
  return std::make_shared<const HostCode>(reinterpret_cast<HostCode::Entry>(compile_with_system(code)));
}

void Machine::run_code(StreamRef stream, const std::shared_ptr<const CompiledCode>& code,
                       const CodeRun& run) {
  enqueue_kernel(stream, "compiled kernel",
                 [entry = static_cast<const HostCode&>(*code).entry,
                  words = std::vector(run.parameters.begin(), run.parameters.end()),
                  memory = std::vector(run.memory.begin(), run.memory.end())](Translation& translation) {
                   std::vector<std::uint64_t> located = words;
                   // The source is read first: writes count as coming from there.
                   for (const bool is_written : {false, true}) {
                     for (const CodeMemory& one : memory) {
                       if (one.is_written != is_written) continue;
                       auto* const address = reinterpret_cast<std::byte*>(words[one.word]);
                       located[one.word] =
                           reinterpret_cast<std::uint64_t>(is_written ? translation.write(address, one.bytes)
                                                                      : translation.read(address, one.bytes));
                     }
                   }
                   entry(located.data());
                 });
}

}  // namespace tutti::backend::host
