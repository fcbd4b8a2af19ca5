/* SPDX-License-Identifier: Apache-2.0 */
/* Stands where NCCL is installed, as far as programs of the tests look: it says that it is another version.
 */

int ncclGetVersion(int* version) {
  *version = 10000;
  return 0;
}
int ncclCommInitRank(void) {
  return 3;
}
