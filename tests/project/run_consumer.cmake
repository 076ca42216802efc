# Builds and runs a program that uses quern the way MODE says:
#   install     installs the build tree BUILD_DIR, moves the prefix elsewhere, find_package from there
#   pkg_config  the same prefix, C and C++ programs built with what pkg-config says
#   shared      builds SOURCE_DIR as a shared library, looks at it, then as install and pkg_config
#   subproject  add_subdirectory of SOURCE_DIR, shared library
#   package     builds and installs what the preset `package` says: library and tools
# cmake -DMODE= -DSOURCE_DIR= -DBUILD_DIR= -DWORK_DIR= -DCC= -DCXX= -DCXX_FLAGS= -DWERROR= -DLAUNCHER=
#       -P run_consumer.cmake
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
      -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}"
      -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} ${ARGN})
  run(${CMAKE_COMMAND} --build ${build_dir})
endfunction()

# Where the library is built once more. ccache then has its objects from the preset `ci`, whose flags are
# these too, if the way from here to the sources is the same in relative paths, which is what it goes by
# where CCACHE_BASEDIR is set: so beside BUILD_DIR where that lies in the sources' build/, which git ignores.
cmake_path(GET BUILD_DIR PARENT_PATH LIBRARY_BUILD)
if(LIBRARY_BUILD STREQUAL "${SOURCE_DIR}/build")
  set(LIBRARY_BUILD ${BUILD_DIR}.${MODE}_consumer)
else()
  set(LIBRARY_BUILD ${WORK_DIR}/build)
endif()
set(LIBRARY_OPTIONS -DBUILD_SHARED_LIBS=ON -DQUERN_WERROR=${WERROR})

# Installs a build tree and moves the prefix elsewhere, so that a path that points back is found out.
function(install_and_move build_dir)
  run(${CMAKE_COMMAND} --install ${build_dir} --prefix ${WORK_DIR}/first)
  file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)
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
    set(expected "^1:quern [0-9.]+\nquern: unsupported: .*AVX-512")
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

# Tests and the emulator of AMX instructions stay out of what users get.
function(check_installed_symbols prefix)
  file(GLOB_RECURSE libraries ${prefix}/*.a ${prefix}/*.so ${prefix}/bin/*)
  if(NOT libraries)
    message(FATAL_ERROR "no library below ${prefix}")
  endif()
  foreach(library IN LISTS libraries)
    run(nm -C ${library})
    # What refuses --emulate-amx in a tool without the emulator.
    string(REGEX REPLACE "quern::(v0::)?smoke::emulate_amx\\(\\)" "" output "${output}")
    string(REGEX MATCH "[^\n]*(testing::|quern::(v0::)?test::|[Ee]mulat|amx_emu|GOMP_)[^\n]*" hit "${output}")
    if(hit OR NOT output MATCHES "quern::")
      message(FATAL_ERROR "${library} is installed and holds '${hit}', or nothing of quern")
    endif()
  endforeach()
endfunction()

# The tools that users get are there and start; what belongs to the build tree is not.
function(check_installed_tools prefix)
  file(GLOB tools RELATIVE ${prefix}/bin ${prefix}/bin/*)
  foreach(tool quern-bench quern-report quern-smoke)
    if(NOT tool IN_LIST tools)
      message(FATAL_ERROR "${tool} is not installed; what is: ${tools}")
    endif()
    run(${prefix}/bin/${tool} --help)
  endforeach()
  if("quern-amx-selftest" IN_LIST tools)
    message(FATAL_ERROR "quern-amx-selftest is installed, and holds the emulator")
  endif()
endfunction()

# SameMinorVersion: 0.2 is another API, and the package must say no to a request for it.
function(check_version_is_refused prefix work_dir)
  file(WRITE ${work_dir}/CMakeLists.txt
    "cmake_minimum_required(VERSION 3.16)\nproject(p CXX)\nfind_package(quern 0.2 QUIET)\n"
    "if(quern_FOUND)\n  message(FATAL_ERROR \"0.2 was asked for and \${quern_VERSION} answered\")\nendif()\n")
  run(${CMAKE_COMMAND} -S ${work_dir} -B ${work_dir}/build -DCMAKE_PREFIX_PATH=${prefix}
      -DCMAKE_CXX_COMPILER=${CXX})
endfunction()

# One program in C and one in C++ with the flags that pkg-config prints; KIND is static or shared.
function(check_pkg_config prefix kind)
  find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
  file(GLOB_RECURSE pc ${prefix}/*quern.pc)
  file(STRINGS ${pc} paths REGEX "${SOURCE_DIR}|${BUILD_DIR}|${WORK_DIR}/first")
  if(NOT pc OR paths)
    message(FATAL_ERROR "quern.pc below ${prefix}: '${pc}', with paths of this machine: ${paths}")
  endif()
  cmake_path(GET pc PARENT_PATH pc_dir)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  set(switches --cflags --libs)
  if(kind STREQUAL "static")
    list(PREPEND switches --static)
  endif()
  run(${PKG_CONFIG} --exact-version=${VERSION} quern)
  run(${PKG_CONFIG} ${switches} quern)
  separate_arguments(flags UNIX_COMMAND "${output}")
  cmake_path(GET pc_dir PARENT_PATH lib_dir)
  set(ENV{LD_LIBRARY_PATH} ${lib_dir})
  set(warnings -Wall -Wextra -Wpedantic -Werror)
  run(${CC} -std=c99 ${warnings} ${CMAKE_CURRENT_LIST_DIR}/install_consumer/main.c -o ${WORK_DIR}/c_program
      ${flags})
  check_program(${WORK_DIR}/c_program)
  run(${CXX} -std=c++17 ${warnings} ${CMAKE_CURRENT_LIST_DIR}/install_consumer/main.cc
      -o ${WORK_DIR}/cxx_program ${flags})
  check_program(${WORK_DIR}/cxx_program)
endfunction()

function(check_shared_library prefix)
  file(GLOB_RECURSE library ${prefix}/*libquern.so)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" abi ${VERSION})
  foreach(name libquern.so.${abi} libquern.so.${VERSION})
    cmake_path(REPLACE_FILENAME library ${name} OUTPUT_VARIABLE alias)
    if(NOT EXISTS ${alias})
      message(FATAL_ERROR "${alias} is not installed")
    endif()
  endforeach()
  run(bash ${CMAKE_CURRENT_LIST_DIR}/exported_symbols_test.sh ${library} libquern.so.${abi}
      ${CMAKE_CURRENT_LIST_DIR}/exported_symbols.txt)
  message(STATUS "${output}")
endfunction()

file(REMOVE_RECURSE ${WORK_DIR} ${LIBRARY_BUILD})
file(MAKE_DIRECTORY ${WORK_DIR})
if(MODE STREQUAL "install")
  install_and_move(${BUILD_DIR})
  check_installed_files(${WORK_DIR}/prefix)
  check_installed_symbols(${WORK_DIR}/prefix)
  check_version_is_refused(${WORK_DIR}/prefix ${WORK_DIR}/version)
  configure_and_build(${CMAKE_CURRENT_LIST_DIR}/install_consumer ${WORK_DIR}/build
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
  check_program(${WORK_DIR}/build/consumer)
  run(${WORK_DIR}/build/reference_consumer)
elseif(MODE STREQUAL "pkg_config")
  install_and_move(${BUILD_DIR})
  check_pkg_config(${WORK_DIR}/prefix ${KIND})
elseif(MODE STREQUAL "shared")
  # A directory of two levels, as on Debian: the way back to the prefix is longer then.
  configure_and_build(${SOURCE_DIR} ${LIBRARY_BUILD} ${LIBRARY_OPTIONS}
    -DCMAKE_INSTALL_LIBDIR=lib/some-linux -DQUERN_BUILD_TESTS=OFF -DQUERN_BUILD_BENCH=OFF
    -DQUERN_BUILD_SMOKE=OFF)
  install_and_move(${LIBRARY_BUILD})
  check_installed_files(${WORK_DIR}/prefix)
  check_installed_symbols(${WORK_DIR}/prefix)
  check_shared_library(${WORK_DIR}/prefix)
  check_pkg_config(${WORK_DIR}/prefix shared)
  configure_and_build(${CMAKE_CURRENT_LIST_DIR}/install_consumer ${WORK_DIR}/consumer
    -Dquern_DIR=${WORK_DIR}/prefix/lib/some-linux/cmake/quern)
  check_program(${WORK_DIR}/consumer/consumer)
elseif(MODE STREQUAL "package")
  # The preset itself, so that one that links the emulator is found out.
  run(${CMAKE_COMMAND} -S ${SOURCE_DIR} --preset package -B ${LIBRARY_BUILD} -DCMAKE_C_COMPILER=${CC}
      -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
  run(${CMAKE_COMMAND} --build ${LIBRARY_BUILD})
  install_and_move(${LIBRARY_BUILD})
  check_installed_files(${WORK_DIR}/prefix)
  check_installed_symbols(${WORK_DIR}/prefix)
  check_installed_tools(${WORK_DIR}/prefix)
elseif(MODE STREQUAL "subproject")
  configure_and_build(${CMAKE_CURRENT_LIST_DIR}/subproject_consumer ${LIBRARY_BUILD} ${LIBRARY_OPTIONS}
    -DQUERN_SOURCE_DIR=${SOURCE_DIR})
  check_program(${LIBRARY_BUILD}/consumer)
  run(${CMAKE_COMMAND} --install ${LIBRARY_BUILD} --prefix ${WORK_DIR}/prefix)
  file(GLOB_RECURSE installed ${WORK_DIR}/prefix/*)
  if(installed)
    message(FATAL_ERROR "as a subproject quern installed ${installed}")
  endif()
else()
  message(FATAL_ERROR "MODE is '${MODE}', which is none of those above")
endif()
file(REMOVE_RECURSE ${LIBRARY_BUILD})
