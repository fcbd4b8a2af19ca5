# SPDX-License-Identifier: Apache-2.0
# Writes the manual page `output`, which is the help of `program`, tutti-perf.
execute_process(COMMAND ${program} --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\\" "\\e" help "${help}")
string(REPLACE "-" "\\-" help "${help}")
string(REGEX REPLACE "\n([.'])" "\n\\\\&\\1" help "${help}") # which would begin a request of roff's
file(
  WRITE ${output}
  ".TH TUTTI\\-PERF 1\n.SH NAME\ntutti\\-perf \\- checks and measures tutti's collectives\n.SH DESCRIPTION\n.nf\n${help}"
)
