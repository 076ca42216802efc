# Each installed header compiles alone, twice in a row, as C++17 without a warning; the C API as C99 too.
# cmake -DSOURCE_DIR= -DGENERATED_DIR= -DWORK_DIR= -DCC= -DCXX= -P public_headers_test.cmake
cmake_minimum_required(VERSION 3.25)
file(GLOB c_headers RELATIVE ${SOURCE_DIR}/ops/include ${SOURCE_DIR}/ops/include/quern/c/*.h
  ${SOURCE_DIR}/ops/include/quern/c_api.h)
file(GLOB headers RELATIVE ${SOURCE_DIR}/ops/include ${SOURCE_DIR}/ops/include/quern/*.h
  ${SOURCE_DIR}/ops/include/quern/c/*.h)
file(GLOB reference_headers RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/reference/*.h)
list(APPEND headers quern/version.h ${reference_headers})
list(LENGTH headers count)
if(count LESS 15)
  message(FATAL_ERROR "only ${count} headers below ${SOURCE_DIR}: wrong directory?")
endif()

set(includes -I${SOURCE_DIR} -I${SOURCE_DIR}/ops/include -I${GENERATED_DIR})
set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only)
set(failed 0)
file(MAKE_DIRECTORY ${WORK_DIR})
foreach(header IN LISTS headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  set(source ${WORK_DIR}/${name}.cc)
  file(WRITE ${source} "#include \"${header}\"\n#include \"${header}\"\nint main() {}\n")
  set(openmp "")
  if(header MATCHES "openmp")
    set(openmp -fopenmp)  # without it the header says that it needs it
  endif()
  execute_process(COMMAND ${CXX} -std=c++17 ${warnings} ${openmp} ${includes} ${source}
    RESULT_VARIABLE rc ERROR_VARIABLE errors)
  if(NOT rc EQUAL 0)
    message(SEND_ERROR "${header} does not compile on its own as C++17:\n${errors}")
    math(EXPR failed "${failed} + 1")
  endif()
endforeach()

foreach(header IN LISTS c_headers)
  string(MAKE_C_IDENTIFIER ${header} name)
  set(source ${WORK_DIR}/${name}.c)
  file(WRITE ${source} "#include \"${header}\"\n#include \"${header}\"\nint main(void) { return 0; }\n")
  foreach(standard c99 c17)
    execute_process(COMMAND ${CC} -std=${standard} ${warnings} ${includes} ${source}
      RESULT_VARIABLE rc ERROR_VARIABLE errors)
    if(NOT rc EQUAL 0)
      message(SEND_ERROR "${header} does not compile on its own as ${standard}:\n${errors}")
      math(EXPR failed "${failed} + 1")
    endif()
  endforeach()
endforeach()
message(STATUS "${count} installed headers, ${failed} failed")
