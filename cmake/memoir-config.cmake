# SPDX-License-Identifier: Apache-2.0
# find_package(memoir) gives the components that are installed: plan, plan_c, static_tensors, malloc. COMPONENTS asks for some of them.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/memoir-base.cmake" OPTIONAL)  # of plan and static_tensors
foreach(component plan plan_c static_tensors malloc)
  if(EXISTS "${CMAKE_CURRENT_LIST_DIR}/memoir-${component}.cmake")
    include("${CMAKE_CURRENT_LIST_DIR}/memoir-${component}.cmake")
    set(memoir_${component}_FOUND TRUE)
  endif()
endforeach()
foreach(component IN LISTS memoir_FIND_COMPONENTS)
  if(memoir_FIND_REQUIRED_${component} AND NOT memoir_${component}_FOUND)
    set(memoir_FOUND FALSE)
    set(memoir_NOT_FOUND_MESSAGE "memoir is installed without ${component}: there are plan, plan_c, static_tensors and malloc")
  endif()
endforeach()
