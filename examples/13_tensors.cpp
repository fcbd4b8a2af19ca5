// SPDX-License-Identifier: Apache-2.0
// Tensors: values and memory of the program's go in and out, views share memory, copies convert and cross
// devices, and DLPack hands memory to other libraries and takes it from them.

#include "tutti/tutti.hpp"

#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

int main() {
  const tutti::Tensor table = tutti::tensor({{1.0F, 2.0F, 3.0F}, {4.0F, 5.0F, 6.0F}}, {.device = 0});
  const tutti::Tensor column = table.narrow(1, 1, 1);  // no copy: the second column
  column.fill_(0);
  std::cout << "the table: " << table << '\n';

  // To another device and another type at once; what is not laid out plainly is copied all the same.
  const tutti::Tensor turned =
      tutti::empty({3, 2}, {.dtype = tutti::DType::int32, .device = tutti::device_count() - 1});
  turned.copy_(table.transpose(0, 1));
  std::cout << "turned, as integers: " << turned << '\n';
  if (turned.to_vector<std::int32_t>() != std::vector<std::int32_t>{1, 4, 0, 0, 3, 6}) return 1;

  // Memory of the program's own as a tensor, without a copy, and values out into such memory.
  std::vector<float> mine(6);
  tutti::from_blob(mine.data(), {2, 3}).copy_(table);
  table.transpose(0, 1).copy_to(std::span(mine));
  if (mine != std::vector<float>{1, 4, 0, 0, 3, 6}) return 1;

  // Operations that mix devices are refused, unless they are copies.
  try {
    tutti::broadcast(table, {tutti::empty({2, 3}, {.device = tutti::Device::host()})});
  } catch (const tutti::Error& error) {
    std::cout << error.what() << '\n';
  }

  // Out by DLPack and in again, as another library would take it: the same memory.
  const tutti::Tensor shared = tutti::from_dlpack(tutti::to_dlpack(table));
  shared.fill_(7);
  std::cout << "written through DLPack: " << table << '\n';
  return table.to_vector<float>() == std::vector<float>(6, 7.0F) ? 0 : 1;
}
