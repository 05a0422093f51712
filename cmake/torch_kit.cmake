# SPDX-License-Identifier: Apache-2.0
# What memoir.torch is compiled from where no torch is found to compile it for. Whoever installs a torch afterwards has it at
# the first import, with a compiler and no sources of memoir (python/memoir/torch/_compile.py):
#
#   memoir/torch/_kit/sources/    the few files that include PyTorch's headers
#                     include/    memoir's headers and nanobind's
#                     lib/        everything else, compiled
set(kit memoir/torch/_kit)
set(core ${PROJECT_SOURCE_DIR}/src/memoir)
file(GLOB kit_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/bindings/*torch* ${core}/remember/torch/*.cc ${core}/device/torch/*.cc)
install(FILES ${kit_sources} DESTINATION ${kit}/sources COMPONENT python_package)
install(DIRECTORY ${core} DESTINATION ${kit}/include COMPONENT python_package FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${NB_DIR}/include/ DESTINATION ${kit}/include COMPONENT python_package FILES_MATCHING PATTERN "*.h")
foreach(archive nanobind-static memoir_remember memoir_device memoir_policy memoir_heap memoir_predict memoir_plan
                memoir_arena memoir_trace memoir_base)
  add_dependencies(python_package ${archive})
  install(FILES $<TARGET_FILE:${archive}> DESTINATION ${kit}/lib COMPONENT python_package)
endforeach()
