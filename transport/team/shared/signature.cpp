// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/signature.hpp"

#include "jit/jit_combination.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::transport::team {
namespace {

/// "1, 2, 3", and ", ..." behind those that are shown if there are more.
template <class T>
std::string in_words(const std::vector<T>& shown, bool are_all) {
  return fmt::format("{}{}", fmt::join(shown, ", "), are_all ? "" : ", ...");
}

std::string factors_in_words(const Signature& signature) {
  std::vector<double> factors;
  for (const std::uint64_t word : signature.operation_words) {
    if (factors.size() < signature.operation_size) factors.push_back(std::bit_cast<double>(word));
  }
  const bool are_all = factors.size() == signature.operation_size;
  const std::string text = in_words(factors, are_all);
  if (signature.operation_size == 1) return "with factor " + text;
  if (are_all) return "with factors " + text;
  return fmt::format("with factors {} ({:08x})", text, signature.operation & 0xffffffffU);
}

/// The sizes of parts, or of a list's tensors, with element types that are not the first one's.
std::string sizes_in_words(const Signature& signature) {
  std::vector<std::string> shown;
  for (std::size_t i = signature.dims; i < std::min<std::size_t>(signature.size_count, Signature::most_sizes);
       ++i) {
    const auto dtype = static_cast<DType>(signature.sizes[i] >> Signature::type_shift);
    const std::uint64_t elements = signature.sizes[i] & ((std::uint64_t{1} << Signature::type_shift) - 1);
    const bool has_own_type = !signature.has_sizes && dtype != signature.dtype;
    shown.push_back(has_own_type ? fmt::format("{} {}", elements, tutti::name_of(dtype))
                                 : std::to_string(elements));
  }
  return in_words(shown, signature.size_count <= Signature::most_sizes);
}

/// "[2, 3]", of the dimensions whose sizes must agree.
std::string dimensions_in_words(const Signature& signature) {
  const std::vector<std::uint64_t> shown(signature.sizes.begin(), signature.sizes.begin() + signature.dims);
  return fmt::format("[{}]", fmt::join(shown, ", "));
}

std::string_view letters_of(const Signature& signature) {
  return {reinterpret_cast<const char*>(signature.operation_words.data()), signature.operation_size};
}

}  // namespace

void Signature::set_text(std::string_view shown, std::string_view text) noexcept {
  operation_size = static_cast<std::uint8_t>(std::min(shown.size(), sizeof(operation_words)));
  std::memcpy(operation_words.data(), shown.data(), operation_size);
  for (const char letter : text)
    operation = mix(operation, static_cast<std::uint64_t>(static_cast<unsigned char>(letter)));
}

void Signature::show_list(std::span<const Tensor> list) noexcept {
  hide_sizes();
  if (list.size() < 2) return;
  for (const Tensor& tensor : list.first(std::min(list.size(), most_sizes + 1)))
    show_tensor(static_cast<std::uint64_t>(tensor.numel()), tensor.dtype());
}

void Signature::show_parts(std::span<const std::int64_t> elements_of_parts) noexcept {
  has_sizes = true;
  hide_sizes();
  for (const std::int64_t size : elements_of_parts) show_size(static_cast<std::uint64_t>(size));
}

void Signature::set_alike(DType type, std::span<const std::int64_t> dimensions, int along) noexcept {
  dtype = type;
  dim = static_cast<std::int16_t>(along);
  size_count = 0;
  for (const std::int64_t size : dimensions) {
    add_to_shape(static_cast<std::uint64_t>(size));
    show_size(static_cast<std::uint64_t>(size));
  }
  dims = static_cast<std::uint8_t>(std::min(dimensions.size(), most_sizes));
}

void Signature::set_operation(const ReduceOp& reduction) {
  reduce_kind = reduction.kind();
  const std::vector<double>& factors = reduction.factors();
  operation_size = static_cast<std::uint8_t>(std::min(factors.size(), most_factors + 1));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto word = std::bit_cast<std::uint64_t>(factors[i]);
    if (i < most_factors) operation_words[i] = word;
    operation = mix(operation, word);
  }
  if (const JitCombination* const combination = ReduceOpAccess::combination(reduction))
    set_text(combination->name(), combination->source());
}

std::string operation_in_words(const Signature& signature) {
  const std::string text(tutti::name_of(signature.reduce_kind));
  if (signature.reduce_kind == ReduceKind::premul_sum) return text + " " + factors_in_words(signature);
  if (signature.reduce_kind != ReduceKind::compiled) return text;
  return fmt::format("{} {} (text {:08x})", text, letters_of(signature), signature.operation & 0xffffffffU);
}

std::string to_string(const Signature& signature) {
  if (signature.operands == CallOperands::messages)
    return fmt::format("{} {}", signature.tensors, signature.tensors == 1 ? "message" : "messages");
  const CollectiveTraits& traits = traits_of(signature.collective);
  std::string text(name_of(CollectiveForm(signature.collective, signature.operands == CallOperands::lists)));
  if (!moves_tensors(signature.collective)) {
    if (signature.operation_size == 0) return text;
    return fmt::format("{} of {} {}", letters_of(signature), tutti::name_of(signature.dtype),
                       dimensions_in_words(signature));
  }
  if (signature.has_sizes && signature.collective == Collective::all_to_all)
    return text + fmt::format(" of {} in parts of given sizes", tutti::name_of(signature.dtype));
  if (!traits.reduces && signature.operation_size > 0)
    return text + fmt::format(" for {}", letters_of(signature));
  text += fmt::format(" of {} {}", signature.elements, tutti::name_of(signature.dtype));
  if (traits.reduces) text += " by " + operation_in_words(signature);
  if (traits.has_own_sizes) text += fmt::format(" per unit of dimension {}", signature.dim);
  const bool has_shown = signature.size_count > signature.dims;
  if (signature.has_sizes)
    text += has_shown ? " in parts of sizes " + sizes_in_words(signature) : " in parts of given sizes";
  if (!traits.has_own_sizes && signature.dim != 0) text += fmt::format(" along dimension {}", signature.dim);
  if (signature.dims > 1) text += " of sizes " + dimensions_in_words(signature);
  if (signature.tensors != 1) text += fmt::format(" in {} tensors", signature.tensors);
  if (signature.tensors != 1 && has_shown) text += " of " + sizes_in_words(signature);
  if (signature.root >= 0) text += fmt::format(", root {}", signature.root);
  return text + fmt::format(" (shapes {:08x})", signature.shape & 0xffffffffU);
}

}  // namespace tutti::transport::team
