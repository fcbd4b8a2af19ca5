# SPDX-License-Identifier: Apache-2.0
# Writes the manual page and the completion scripts of the tutti-perf in `program` into `folder`.
file(MAKE_DIRECTORY ${folder})
function(page name)
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_FILE ${folder}/${name} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
page(tutti-perf.1 --man)
page(tutti-perf.bash --completion bash)
page(_tutti-perf --completion zsh)
