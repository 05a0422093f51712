# SPDX-License-Identifier: Apache-2.0
# The planners for other projects (examples/planner uses them):
#
#   find_package(memoir REQUIRED)
#   target_link_libraries(your_compiler PRIVATE memoir::plan)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS memoir_base memoir_trace memoir_plan EXPORT memoir_targets COMPONENT planners)
foreach(folder base trace plan)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/memoir/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/memoir COMPONENT planners
          FILES_MATCHING PATTERN "*.h")
endforeach()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/memoir)
install(EXPORT memoir_targets NAMESPACE memoir:: DESTINATION ${package} FILE memoir-targets.cmake COMPONENT planners)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/memoir-config.cmake @ONLY CONTENT [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/memoir-targets.cmake")
]])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/memoir-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/memoir-config.cmake ${PROJECT_BINARY_DIR}/memoir-config-version.cmake
        DESTINATION ${package} COMPONENT planners)
