// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/pieces.hpp"

namespace tutti::transport {

std::vector<std::vector<Slice>> split_evenly(std::span<const std::uint64_t> sizes, std::size_t parts,
                                             std::uint64_t alignment) {
  std::uint64_t total = 0;
  for (const std::uint64_t size : sizes) total += size;

  std::vector<std::vector<Slice>> result(parts);
  std::uint64_t start = 0;  // of the current item, in the concatenation of all
  std::size_t part = 0;
  for (std::size_t item = 0; item < sizes.size(); ++item) {
    std::uint64_t begin = 0;
    while (begin < sizes[item]) {
      // total * (part + 1) / parts, without the product that could overflow.
      const std::uint64_t limit = total / parts * (part + 1) + total % parts * (part + 1) / parts;
      const std::uint64_t wanted = limit > start ? (limit - start) / alignment * alignment : 0;
      const bool is_last = part + 1 == parts;
      const std::uint64_t end = is_last ? sizes[item] : std::min(wanted, sizes[item]);
      if (end > begin) {
        result[part].push_back({item, begin, end});
        begin = end;
      }
      if (begin < sizes[item]) ++part;
    }
    start += sizes[item];
  }
  return result;
}

}  // namespace tutti::transport
