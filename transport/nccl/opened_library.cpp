// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/opened_library.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tutti::transport::nccl {
namespace {

/// NCCL is to find its own functions first. That does nothing if the file has been loaded before, and the
/// sanitizers' libraries do not bear it: `bind_to_itself` does the rest.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int opening_flags = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int opening_flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

#if defined(__x86_64__)
constexpr bool names_function(std::uint64_t info) {
  const auto type = ELF64_R_TYPE(info);
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT || type == R_X86_64_64;
}
#elif defined(__aarch64__)
constexpr bool names_function(std::uint64_t info) {
  const auto type = ELF64_R_TYPE(info);
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT || type == R_AARCH64_ABS64;
}
#else
#error "the relocations of this processor are not known here"
#endif

/// A loaded file, as the loader has described it.
class LoadedFile {
 public:
  explicit LoadedFile(const link_map& map) : base_(map.l_addr) {
    for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) read(*entry);
  }

  /// A place in memory that holds the address of a function of the file's own.
  struct Place {
    ElfW(Addr) * at;
    ElfW(Addr) own;
  };

  /// Returns the places that hold other functions, of names that are NCCL's, than the file's own.
  [[nodiscard]] std::vector<Place> taken_places() const {
    std::vector<Place> places;
    for (const std::span<const ElfW(Rela)> list : {calls_, others_}) {
      for (const ElfW(Rela) & relocation : list) {
        if (!names_function(relocation.r_info)) continue;
        const ElfW(Sym)& symbol = symbols_[ELF64_R_SYM(relocation.r_info)];
        if (!is_own_function(symbol)) continue;
        const Place place{.at = reinterpret_cast<ElfW(Addr)*>(base_ + relocation.r_offset),
                          .own = base_ + symbol.st_value + static_cast<ElfW(Addr)>(relocation.r_addend)};
        if (*place.at != place.own) places.push_back(place);
      }
    }
    return places;
  }

 private:
  void read(const ElfW(Dyn) & entry) {
    switch (entry.d_tag) {
      case DT_SYMTAB:
        symbols_ = at<ElfW(Sym)>(entry);
        break;
      case DT_STRTAB:
        names_ = at<char>(entry);
        break;
      case DT_JMPREL:
        calls_ = {at<ElfW(Rela)>(entry), calls_.size()};
        break;
      case DT_PLTRELSZ:
        calls_ = {calls_.data(), entry.d_un.d_val / sizeof(ElfW(Rela))};
        break;
      case DT_RELA:
        others_ = {at<ElfW(Rela)>(entry), others_.size()};
        break;
      case DT_RELASZ:
        others_ = {others_.data(), entry.d_un.d_val / sizeof(ElfW(Rela))};
        break;
      default:
        break;
    }
  }

  /// Some loaders put addresses into the description, others leave offsets.
  template <class T>
  [[nodiscard]] const T* at(const ElfW(Dyn) & entry) const {
    const ElfW(Addr) value = entry.d_un.d_ptr;
    return reinterpret_cast<const T*>(value < base_ ? base_ + value : value);
  }

  [[nodiscard]] bool is_own_function(const ElfW(Sym) & symbol) const {
    const std::string_view name = names_ + symbol.st_name;
    return symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
           (name.starts_with("nccl") || name.starts_with("pnccl"));
  }

  ElfW(Addr) base_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  std::span<const ElfW(Rela)> calls_{};
  std::span<const ElfW(Rela)> others_{};
};

/// The pages of a file that the loader has made read-only once it had written the addresses there.
struct SealedPages {
  ElfW(Addr) base = 0;
  ElfW(Addr) begin = 0;
  std::size_t bytes = 0;

  /// Returns 0, or errno.
  [[nodiscard]] int protect(int protection) const noexcept {
    if (bytes == 0) return 0;
    return mprotect(reinterpret_cast<void*>(begin), bytes, protection) == 0 ? 0 : errno;
  }
};

int find_sealed_pages(dl_phdr_info* file, std::size_t, void* result) {
  auto& sealed = *static_cast<SealedPages*>(result);
  if (file->dlpi_addr != sealed.base) return 0;
  const auto page = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
  for (const ElfW(Phdr) & part : std::span(file->dlpi_phdr, file->dlpi_phnum)) {
    if (part.p_type != PT_GNU_RELRO) continue;
    const ElfW(Addr) begin = file->dlpi_addr + part.p_vaddr;
    sealed.begin = begin / page * page;
    sealed.bytes = (begin + part.p_memsz) / page * page - sealed.begin;
  }
  return 1;
}

/// Has the calls that a loaded file makes to functions of its own find its own, as if it had been linked so.
/// Returns an empty string, or why that is not possible.
std::string bind_to_itself(void* handle) {
  static std::mutex& one_at_a_time = *new std::mutex();
  const std::lock_guard lock(one_at_a_time);
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) return "the loader does not describe it";
  const std::vector<LoadedFile::Place> places = LoadedFile(*map).taken_places();
  if (places.empty()) return {};
  SealedPages sealed{.base = map->l_addr};
  static_cast<void>(dl_iterate_phdr(find_sealed_pages, &sealed));
  if (const int error = sealed.protect(PROT_READ | PROT_WRITE); error != 0)
    return fmt::format("its calls of its own functions cannot be kept to it: {}", strerror(error));
  // Other threads may be in such a call: they find one or the other.
  for (const LoadedFile::Place& place : places)
    std::atomic_ref(*place.at).store(place.own, std::memory_order_release);
  static_cast<void>(sealed.protect(PROT_READ));
  return {};
}

}  // namespace

OpenedLibrary open_library(const std::string& path) {
  void* const handle = dlopen(path.c_str(), opening_flags);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return {.problem = fmt::format("{} cannot be loaded ({})", path,
                                   reason != nullptr ? reason : "the loader gives no reason")};
  }
  if (const std::string problem = bind_to_itself(handle); !problem.empty())
    return {.problem = fmt::format("{} cannot be used: {}", path, problem)};
  return {.handle = handle};
}

}  // namespace tutti::transport::nccl
