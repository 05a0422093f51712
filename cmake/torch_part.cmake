# SPDX-License-Identifier: Apache-2.0
# The part of the Python package that is bound to PyTorch, once per folder of a torch (with include/ and version.py). PyTorch
# promises no ABI from one minor version to the next, so each gets a folder of its own, python/memoir/torch/_parts.py chooses:
#
#   memoir/torch/_built/2.13/_torch.cpython-312-x86_64-linux-gnu.so    what is called on CPUs
#                            libmemoir_cuda.so                         what PyTorch's CUDAPluggableAllocator loads

# Stand-ins for PyTorch's libraries: what links them needs libraries of these names when it is loaded, and by then Python has
# imported torch. So headers are all that a build needs of PyTorch.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/stand_in.cc CONTENT "")
foreach(library c10 torch_cpu)
  add_library(memoir_stand_in_${library} SHARED EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/stand_in.cc)
  set_target_properties(memoir_stand_in_${library} PROPERTIES OUTPUT_NAME ${library}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/stand_ins)
endforeach()

function(memoir_torch_part folder)
  file(STRINGS ${folder}/version.py version REGEX "^__version__")
  if(NOT version MATCHES "'(([0-9]+\\.[0-9]+)[^']*)'")
    message(FATAL_ERROR "${folder}/version.py does not say which torch this is")
  endif()
  set(minor ${CMAKE_MATCH_2})
  message(STATUS "memoir: building for torch ${CMAKE_MATCH_1}")

  nanobind_add_module(_torch_${minor} NB_STATIC bindings/_torch.cpp bindings/torch_calls.cpp bindings/torch_call_shape.cpp
                      ${PROJECT_SOURCE_DIR}/src/memoir/remember/torch/allocator.cc)
  target_link_libraries(_torch_${minor} PRIVATE memoir_remember)
  set_target_properties(_torch_${minor} PROPERTIES OUTPUT_NAME _torch)

  set(door ${PROJECT_SOURCE_DIR}/src/memoir/device/torch)  # needs neither CUDA nor the CUDA build of PyTorch
  add_library(memoir_cuda_${minor} SHARED ${door}/pluggable.cc ${door}/sites.cc ${door}/throw_c10.cc)
  target_link_libraries(memoir_cuda_${minor} PRIVATE memoir_device)
  set_target_properties(memoir_cuda_${minor} PROPERTIES OUTPUT_NAME memoir_cuda)

  foreach(part _torch_${minor} memoir_cuda_${minor})
    target_include_directories(${part} SYSTEM PRIVATE ${folder}/include)
    target_link_options(${part} PRIVATE LINKER:--no-as-needed)
    target_link_libraries(${part} PRIVATE memoir_stand_in_c10 memoir_stand_in_torch_cpu)
    set_target_properties(${part} PROPERTIES SKIP_BUILD_RPATH ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/torch/${minor})
    memoir_python_package(memoir/torch/_built/${minor} ${part})
  endforeach()
endfunction()
