# Each installed header compiles alone, twice in a row, as C++17 without a warning.
# cmake -DSOURCE_DIR= -DGENERATED_DIR= -DWORK_DIR= -DCXX= -P public_headers_test.cmake
cmake_minimum_required(VERSION 3.25)
file(GLOB headers RELATIVE ${SOURCE_DIR}/ops/include ${SOURCE_DIR}/ops/include/quern/*.h)
file(GLOB reference_headers RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/reference/*.h)
list(APPEND headers quern/version.h ${reference_headers})
list(LENGTH headers count)
if(count LESS 15)
  message(FATAL_ERROR "only ${count} headers below ${SOURCE_DIR}: wrong directory?")
endif()

set(failed 0)
file(MAKE_DIRECTORY ${WORK_DIR})
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  set(source ${WORK_DIR}/${name}.cc)
  file(WRITE ${source} "#include \"${header}\"\n#include \"${header}\"\nint main() {}\n")
  execute_process(
    COMMAND ${CXX} -std=c++17 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only
      -I${SOURCE_DIR} -I${SOURCE_DIR}/ops/include -I${GENERATED_DIR} ${source}
    RESULT_VARIABLE rc ERROR_VARIABLE errors)
  if(NOT rc EQUAL 0)
    message(SEND_ERROR "${header} does not compile on its own as C++17:\n${errors}")
    math(EXPR failed "${failed} + 1")
  endif()
endforeach()
message(STATUS "${count} installed headers, ${failed} failed")
