// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>
#include <cstdint>

/// Sets the floating-point environment in which the library computes: rounding to nearest, subnormal numbers
/// kept, no traps. A new thread inherits the environment of the thread that starts it, and programs change
/// theirs with `fesetround` or with code compiled for speed (`-ffast-math`).
namespace tutti::backend {

/// Holds those settings of the calling thread's floating-point environment that affect results. Each function
/// takes some nanoseconds.
class FloatingPointEnvironment {
 public:
  [[nodiscard]] static FloatingPointEnvironment current() noexcept;
  void use() const noexcept;
  /// Returns whether results are those of the default environment.
  [[nodiscard]] bool is_default() const noexcept;
  /// Returns a copy whose result-affecting settings are the default ones.
  [[nodiscard]] FloatingPointEnvironment as_default() const noexcept;

 private:
#if defined(__x86_64__)
  // Of the vector units, from bit 6: subnormal operands are zero; six traps masked; two bits of rounding;
  // subnormal results are zero. Of the old unit, which `long double` uses: six traps masked; two bits of
  // precision; two of rounding.
  static constexpr std::uint32_t decisive = 0xffc0;
  static constexpr std::uint32_t by_default = 0x1f80;
  static constexpr std::uint16_t decisive_of_old = 0x0f3f;
  static constexpr std::uint16_t by_default_of_old = 0x033f;
  std::uint32_t control_ = by_default;
  std::uint16_t control_of_old_ = by_default_of_old;
#elif defined(__aarch64__)
  std::uint64_t control_ = 0;
#else
  std::fenv_t state_{};
  bool is_default_ = false;
#endif
};

/// Puts the calling thread into the default environment for the scope's lifetime, and restores the previous
/// one afterwards.
///
/// The arithmetic has to be behind a call that is not inlined: compilers assume that it does not depend on
/// the environment, and may move it out of the scope.
class FloatingPointScope {
 public:
  FloatingPointScope() noexcept : before_(FloatingPointEnvironment::current()) {
    if (!before_.is_default()) before_.as_default().use();
  }
  FloatingPointScope(const FloatingPointScope&) = delete;
  FloatingPointScope& operator=(const FloatingPointScope&) = delete;
  ~FloatingPointScope() {
    if (!before_.is_default()) before_.use();
  }

 private:
  const FloatingPointEnvironment before_;
};

/// Puts the calling thread, which is one of the library's own, into the default environment for good.
inline void use_default_floating_point() noexcept {
  const FloatingPointEnvironment now = FloatingPointEnvironment::current();
  if (!now.is_default()) now.as_default().use();
}

#if defined(__x86_64__)

inline FloatingPointEnvironment FloatingPointEnvironment::current() noexcept {
  FloatingPointEnvironment result;
  asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(result.control_), "=m"(result.control_of_old_)::"memory");
  return result;
}
inline void FloatingPointEnvironment::use() const noexcept {
  asm volatile("ldmxcsr %0\n\tfldcw %1" ::"m"(control_), "m"(control_of_old_) : "memory");
}
inline bool FloatingPointEnvironment::is_default() const noexcept {
  return (control_ & decisive) == by_default && (control_of_old_ & decisive_of_old) == by_default_of_old;
}
inline FloatingPointEnvironment FloatingPointEnvironment::as_default() const noexcept {
  FloatingPointEnvironment result;
  result.control_ = (control_ & ~decisive) | by_default;
  result.control_of_old_ =
      static_cast<std::uint16_t>((control_of_old_ & ~decisive_of_old) | by_default_of_old);
  return result;
}

#elif defined(__aarch64__)

inline FloatingPointEnvironment FloatingPointEnvironment::current() noexcept {
  FloatingPointEnvironment result;
  asm volatile("mrs %0, fpcr" : "=r"(result.control_)::"memory");
  return result;
}
inline void FloatingPointEnvironment::use() const noexcept {
  asm volatile("msr fpcr, %0" ::"r"(control_) : "memory");
}
inline bool FloatingPointEnvironment::is_default() const noexcept {
  return control_ == 0;
}
inline FloatingPointEnvironment FloatingPointEnvironment::as_default() const noexcept {
  return {};
}

#else

inline FloatingPointEnvironment FloatingPointEnvironment::current() noexcept {
  FloatingPointEnvironment result;
  std::fegetenv(&result.state_);
  return result;
}
inline void FloatingPointEnvironment::use() const noexcept {
  std::fesetenv(is_default_ ? FE_DFL_ENV : &state_);
}
inline bool FloatingPointEnvironment::is_default() const noexcept {
  return is_default_;  // unknown for an environment that has been read
}
inline FloatingPointEnvironment FloatingPointEnvironment::as_default() const noexcept {
  FloatingPointEnvironment result;
  result.is_default_ = true;
  return result;
}

#endif

}  // namespace tutti::backend
