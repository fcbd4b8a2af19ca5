# SPDX-License-Identifier: Apache-2.0
# tutti-perf with its manual page, and the scripts that draw and compare what it measures, as commands.
install(TARGETS tutti-perf RUNTIME COMPONENT tools)
set_target_properties(tutti-perf PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON) # MPI may be anywhere
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_BINDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE tutti_bindir)
if(tutti_type STREQUAL SHARED_LIBRARY)
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE tutti_rpath)
  cmake_path(RELATIVE_PATH tutti_rpath BASE_DIRECTORY ${tutti_bindir})
  set_target_properties(tutti-perf PROPERTIES INSTALL_RPATH "\$ORIGIN/${tutti_rpath}")
endif()

install(FILES ${PROJECT_BINARY_DIR}/perf/tutti-perf.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
# Scripts find what they import beside themselves; the commands are links to them.
set(tutti_scripts ${CMAKE_INSTALL_DATADIR}/tutti/perf)
install(
  PROGRAMS perf/compare/report.py perf/compare/compare_torch.py perf/compare/compare_builds.py
  DESTINATION ${tutti_scripts}
  COMPONENT tools
)
install(FILES perf/compare/command.py DESTINATION ${tutti_scripts} COMPONENT tools)
install(DIRECTORY perf/compare/reporting DESTINATION ${tutti_scripts} COMPONENT tools PATTERN __pycache__ EXCLUDE)
cmake_path(ABSOLUTE_PATH tutti_scripts BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE tutti_scripts_dir)
cmake_path(RELATIVE_PATH tutti_scripts_dir BASE_DIRECTORY ${tutti_bindir})
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/commands)
foreach(script report compare_torch compare_builds)
  string(REPLACE _ - command tutti-perf-${script})
  file(CREATE_LINK ${tutti_scripts_dir}/${script}.py ${PROJECT_BINARY_DIR}/commands/${command} SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/commands/${command} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endforeach()
