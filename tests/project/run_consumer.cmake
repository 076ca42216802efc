# Builds and runs a program that uses quern the way MODE says:
#   install     installs the build tree BUILD_DIR, moves the prefix elsewhere, find_package from there
#   subproject  add_subdirectory of SOURCE_DIR, shared library
# cmake -DMODE= -DSOURCE_DIR= -DBUILD_DIR= -DWORK_DIR= -DCXX= -DCXX_FLAGS= -DLAUNCHER= -P run_consumer.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT rc EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "exit ${rc} from: ${command}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

function(configure_and_build source_dir build_dir)
  run(${CMAKE_COMMAND} -S ${source_dir} -B ${build_dir} -G Ninja -DCMAKE_BUILD_TYPE=Release
      -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
      -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGN})
  run(${CMAKE_COMMAND} --build ${build_dir})
endfunction()

# The program prints its version and then either the product or, on a CPU without AVX-512, the Status
# that says why there is none. Expected values by hand: rows of A are {127, 0, 0, 127} / 127 and
# {0, 127, 0, 0} * 1 after quantization.
function(check_program program)
  execute_process(COMMAND ${program} RESULT_VARIABLE rc OUTPUT_VARIABLE output)
  file(READ /proc/cpuinfo cpuinfo)
  if(cpuinfo MATCHES "avx512_vnni")
    set(expected "^0:quern [0-9.]+\n5 0.5 -0.25\n254 63.5 0\n$")
  else()
    set(expected "^1:quern [0-9.]+\nquern: unsupported: .*avx512")
  endif()
  if(NOT "${rc}:${output}" MATCHES "${expected}")
    message(FATAL_ERROR "${program}, exit ${rc}, printed\n${output}\nwanted a match of ${expected}")
  endif()
  message(STATUS "${program} printed\n${output}")
endfunction()

# Nothing of the inside may reach a consumer: neither Xbyak nor the object libraries.
function(check_installed_files prefix)
  file(GLOB_RECURSE files ${prefix}/*.h ${prefix}/*.cmake)
  list(LENGTH files count)
  if(count LESS 15)
    message(FATAL_ERROR "only ${count} headers and CMake files below ${prefix}")
  endif()
  foreach(file IN LISTS files)
    file(STRINGS ${file} hits REGEX "xbyak|quern_jit|quern_ops|quern_warnings|[\"<]jit/|[\"<]ops/")
    file(STRINGS ${file} paths REGEX "${SOURCE_DIR}|${BUILD_DIR}")
    if(hits OR paths)
      message(FATAL_ERROR "${file} is installed and mentions the inside of quern: ${hits}${paths}")
    endif()
  endforeach()
endfunction()

# SameMinorVersion: 0.2 is another API, and the package must say no to a request for it.
function(check_version_is_refused prefix work_dir)
  file(WRITE ${work_dir}/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\nfind_package(quern 0.2 QUIET)\n"
    "if(quern_FOUND)\n  message(FATAL_ERROR \"0.2 was asked for and \${quern_VERSION} answered\")\nendif()\n")
  run(${CMAKE_COMMAND} -S ${work_dir} -B ${work_dir}/build -DCMAKE_PREFIX_PATH=${prefix}
      -DCMAKE_CXX_COMPILER=${CXX})
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
if(MODE STREQUAL "install")
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
  file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)
  check_installed_files(${WORK_DIR}/prefix)
  check_version_is_refused(${WORK_DIR}/prefix ${WORK_DIR}/version)
  configure_and_build(${CMAKE_CURRENT_LIST_DIR}/install_consumer ${WORK_DIR}/build
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
  check_program(${WORK_DIR}/build/consumer)
  run(${WORK_DIR}/build/reference_consumer)
elseif(MODE STREQUAL "subproject")
  configure_and_build(${CMAKE_CURRENT_LIST_DIR}/subproject_consumer ${WORK_DIR}/build
    -DQUERN_SOURCE_DIR=${SOURCE_DIR} -DBUILD_SHARED_LIBS=ON)
  check_program(${WORK_DIR}/build/consumer)
  run(${CMAKE_COMMAND} --install ${WORK_DIR}/build --prefix ${WORK_DIR}/prefix)
  file(GLOB_RECURSE installed ${WORK_DIR}/prefix/*)
  if(installed)
    message(FATAL_ERROR "as a subproject quern installed ${installed}")
  endif()
else()
  message(FATAL_ERROR "MODE is '${MODE}'; install and subproject are known")
endif()
