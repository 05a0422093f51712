# SPDX-License-Identifier: Apache-2.0
# What other projects link, as four components that need nothing of each other:
#
#   find_package(memoir REQUIRED COMPONENTS plan)              memoir::plan             memoir-plan.pc
#   find_package(memoir REQUIRED COMPONENTS plan_c)            memoir::plan_c           memoir-plan-c.pc
#                                                              memoir::plan_c_static    memoir-plan-c-static.pc
#   find_package(memoir REQUIRED COMPONENTS static_tensors)    memoir::static_tensors   memoir-static-tensors.pc
#   find_package(memoir REQUIRED COMPONENTS malloc)            memoir::malloc           memoir-malloc.pc
#                                                              memoir::malloc_static    memoir-malloc-static.pc
#
# `cmake --build B --target memoir_plan` and `cmake --install B --component plan` build and install one of them alone.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(memoir_components plan plan_c static_tensors)
set(memoir_package ${CMAKE_INSTALL_LIBDIR}/cmake/memoir)
set(memoir_headers ${CMAKE_INSTALL_INCLUDEDIR}/memoir)

install(TARGETS memoir_base EXPORT memoir_base COMPONENT plan)
install(TARGETS memoir_base COMPONENT static_tensors)
install(TARGETS memoir_trace memoir_plan EXPORT memoir_plan COMPONENT plan)
install(TARGETS memoir_static_tensors EXPORT memoir_static_tensors COMPONENT static_tensors)

install(TARGETS memoir_plan_c memoir_plan_c_static EXPORT memoir_plan_c COMPONENT plan_c)

if(TARGET memoir_malloc)
  list(APPEND memoir_components malloc)
  install(TARGETS memoir_malloc memoir_malloc_static EXPORT memoir_malloc COMPONENT malloc)
  install(TARGETS memoir_model COMPONENT malloc)
endif()

# The core is built only where something is linked with it, and an installation is not: a build of everything has all components.
add_custom_target(components ALL DEPENDS memoir_plan memoir_plan_c memoir_plan_c_static memoir_static_tensors)
if(TARGET memoir_malloc)
  add_dependencies(components memoir_malloc memoir_malloc_static memoir_model)
endif()

# Headers: of a planner whole rooms, of the static tensors what theirs include.
set(core ${PROJECT_SOURCE_DIR}/src/memoir)
install(DIRECTORY ${core}/base ${core}/trace ${core}/plan DESTINATION ${memoir_headers} COMPONENT plan FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${core}/base DESTINATION ${memoir_headers} COMPONENT static_tensors FILES_MATCHING PATTERN "*.h")
foreach(header arena/arena arena/granule_set arena/host_arena heap/heap heap/index/block_row heap/index/offset_table
               heap/index/size_index heap/index/treap heap/plain/static_tensors_heap static_tensors/static_tensors)
  get_filename_component(room ${header} DIRECTORY)
  install(FILES ${core}/${header}.h DESTINATION ${memoir_headers}/${room} COMPONENT static_tensors)
endforeach()
install(FILES ${core}/plan/c/memoir_plan.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT plan_c)
install(FILES ${core}/static_tensors/c/memoir_static_tensors.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT static_tensors)

# For CMake.
configure_file(${CMAKE_CURRENT_LIST_DIR}/memoir-config.cmake ${PROJECT_BINARY_DIR}/memoir-config.cmake COPYONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/memoir-config-version.cmake COMPATIBILITY SameMinorVersion)

# For pkg-config. A prefix may move: paths are counted from the file.
file(RELATIVE_PATH prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" prefix ${prefix})
function(memoir_pkg_config name description libraries)
  list(TRANSFORM libraries PREPEND -l)
  list(JOIN libraries " " libraries)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: @name@
Description: @description@
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} @libraries@ -l@memoir_cxx_library@ -lm -ldl -pthread
]])
endfunction()
memoir_pkg_config(memoir-plan "memoir's planners: a place in memory for every buffer (C++20)" "memoir_plan;memoir_trace;memoir_base")
memoir_pkg_config(memoir-static-tensors "memoir's static tensors: host memory without malloc (C, C++20)"
                  "memoir_static_tensors;memoir_base")

# The planner for C is one library, as a shared one with nothing else to name.
foreach(kind plan-c plan-c-static)
  set(libraries "-lmemoir_plan_c")
  if(kind STREQUAL plan-c-static)
    set(libraries "-l:libmemoir_plan_c.a -l${memoir_cxx_library} -lm -pthread")
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/memoir-${kind}.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: memoir-@kind@
Description: memoir's planner for C: a place in memory for every buffer
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} @libraries@
]])
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/memoir-plan-c-static.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT plan_c)

# The malloc needs no header. From an archive it is taken whether the program calls malloc or only its libraries do.
foreach(kind malloc malloc-static)
  set(libraries "-lmemoir_malloc")
  if(kind STREQUAL malloc-static)
    set(libraries "-Wl,-u,malloc -Wl,-u,_Znwm -l:libmemoir_malloc.a -pthread -ldl")
  endif()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/memoir-${kind}.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@

Name: memoir-@kind@
Description: memoir's malloc, which gives memory back when load falls
Version: @PROJECT_VERSION@
Libs: -L${libdir} @libraries@
]])
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/memoir-malloc-static.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT malloc)

install(EXPORT memoir_base NAMESPACE memoir:: DESTINATION ${memoir_package} FILE memoir-base.cmake COMPONENT plan)
# CMake 3.25 refuses an export that two components install: the other one copies what was made for the first.
install(CODE "file(GLOB_RECURSE made \"${PROJECT_BINARY_DIR}/CMakeFiles/Export/*/memoir-base*.cmake\")
get_filename_component(to \"${memoir_package}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
file(INSTALL \${made} DESTINATION \"\${to}\")" COMPONENT static_tensors)

foreach(component IN LISTS memoir_components)
  install(EXPORT memoir_${component} NAMESPACE memoir:: DESTINATION ${memoir_package} FILE memoir-${component}.cmake COMPONENT ${component})
  install(FILES ${PROJECT_BINARY_DIR}/memoir-config.cmake ${PROJECT_BINARY_DIR}/memoir-config-version.cmake
          DESTINATION ${memoir_package} COMPONENT ${component})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/memoir COMPONENT ${component})
  string(REPLACE _ - name memoir-${component})
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component})
endforeach()
