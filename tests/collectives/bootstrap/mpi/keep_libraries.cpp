// SPDX-License-Identifier: Apache-2.0
// For programs under a sanitizer. MPI unloads its plugins when it is finalised; what they leave allocated
// could not be told from the program's own leaks afterwards. So nothing is unloaded, and lsan.supp knows the
// plugins by name.

extern "C" __attribute__((visibility("default"))) int dlclose(void* /*handle*/) {
  return 0;
}
