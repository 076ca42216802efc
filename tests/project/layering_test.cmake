# Who may include whom, and a few rules that a compiler does not check. Reports every violation.
# cmake -DSOURCE_DIR= -P layering_test.cmake     (layering_selftest.cmake shows that each rule bites)
cmake_minimum_required(VERSION 3.25)

set(violations "")
macro(violation file text)
  string(APPEND violations "  ${file}: ${text}\n")
endmacro()

# ---- Includes. For each directory: which of our own headers, which libraries, which system headers not.
set(vocabulary "quern/(dtype|epilogue|export|int4_weights|int8_activations|isa|span|status|tensor_view)\\.h$")
set(our_headers "^(jit|ops|reference|bench|tests|model_smoke|quern)/")
set(library_headers
  "^(xbyak/|Zydis/|hwy/|fmt/|CLI/|nlohmann/|benchmark/|gtest/|gmock/|pcre2|utf8proc|dnnl|oneapi/)")
set(thread_headers "^(thread|future|condition_variable|barrier|latch|pthread\\.h|omp\\.h|tbb/.*)$")

# The pools themselves; and the kernel cache, where a second caller waits for the first one's generation.
set(may_use_threads "^ops/thread_[a-z_]*\\.(h|cc)\\||^jit/kernel_cache\\.cc\\|condition_variable$")
# And the adapter for programs that bring OpenMP themselves.
string(APPEND may_use_threads "|^ops/include/quern/openmp_pool\\.h\\|omp\\.h$")

set(jit_ours "^(jit/|${vocabulary})")
set(jit_libraries "^(xbyak/|Zydis/)")
set(jit_not "${thread_headers}")
set(ops_ours "^(ops/|jit/|quern/)")
set(ops_libraries "^nlohmann/")  # only in tuning_db.cc, see below
set(ops_not "${thread_headers}")  # except in the thread pools, see below
set(public_ours "^quern/")
set(public_libraries "^$")
set(public_not "${thread_headers}")
set(reference_ours "^(reference/|quern/)")
set(reference_libraries "^$")
set(reference_not "${thread_headers}")
set(model_smoke_ours "^(model_smoke/|quern/|reference/)")
set(model_smoke_libraries "^(hwy/|fmt/|CLI/|nlohmann/|pcre2|utf8proc)")
set(model_smoke_not "^omp\\.h$")
set(bench_ours "^(bench/|quern/|jit/|ops/|reference/|tests/support/)")
set(bench_libraries "^(benchmark/|fmt/|CLI/|nlohmann/|dnnl|oneapi/|Zydis/)")  # the last in one file, see below
set(bench_not "^$")
set(tests_ours "${our_headers}")
set(tests_libraries "^(gtest/|gmock/|xbyak/|Zydis/|hwy/|fmt/|nlohmann/|dnnl|oneapi/)")
set(tests_not "^$")

function(check_include group file header)
  if("${file} ${header}" STREQUAL "model_smoke/emulation.cc tests/support/emulate_amx.h")
    # The one door through which tools of the build tree reach the AMX emulator.
  elseif(header MATCHES "${our_headers}")
    if(NOT header MATCHES "${${group}_ours}")
      violation(${file} "includes ${header}, which ${group} may not see")
    elseif(group STREQUAL "model_smoke" AND header MATCHES "^reference/" AND NOT file MATCHES "reference")
      violation(${file} "includes ${header}; in model_smoke only the files of the reference backend may")
    endif()
  elseif(header MATCHES "${library_headers}")
    if(NOT header MATCHES "${${group}_libraries}")
      violation(${file} "includes ${header}, a library that is not for ${group}")
    elseif(header MATCHES "^nlohmann/" AND group STREQUAL "ops" AND NOT file MATCHES "^ops/tuning_db")
      violation(${file} "includes ${header}; in ops only tuning_db.cc may")
    elseif(header MATCHES "^xbyak/" AND group STREQUAL "jit"
           AND NOT file MATCHES "^jit/(generator\\.h|regs\\.h|emit/.*|[^/]*\\.cc)$")
      violation(${file} "includes ${header}; kernel headers show nothing of Xbyak")
    elseif(header MATCHES "^xbyak/" AND group STREQUAL "tests"
           AND NOT file MATCHES "^tests/(jit/|support/amx_(code\\.h|[a-z_]*_test\\.cc)$)")
      violation(${file} "includes ${header}; of the tests only tests/jit and those of the AMX emulator may")
    elseif(header MATCHES "^Zydis/" AND group STREQUAL "bench" AND NOT file STREQUAL "bench/static_decode.cc")
      violation(${file} "includes ${header}; in bench only static_decode.cc may")
    elseif(header MATCHES "^hwy/" AND group STREQUAL "tests" AND NOT file MATCHES "^tests/model_smoke/")
      violation(${file} "includes ${header}; of the tests only tests/model_smoke may")
    endif()
  elseif(header MATCHES "${${group}_not}" AND NOT "${file}|${header}" MATCHES "${may_use_threads}")
    violation(${file} "includes <${header}>: threads come from ThreadPool only")
  endif()
  set(violations "${violations}" PARENT_SCOPE)
endfunction()

# ---- Rules on the text, comments stripped. Each: name, files it looks at, files it leaves out, pattern.
set(rules getenv volatile string_label path_join isa_if printing)
set(getenv_in "^(jit|ops|reference|model_smoke|bench)/")
set(getenv_except "^(ops/environment|bench/peer_process)\\.cc$")  # the second hands it on to its child
set(getenv_pattern "getenv *\\(|[^a-z_]environ[^a-z_m]")
set(getenv_text "reads the environment; only ops/environment.cc does")
set(volatile_in "^(jit|ops|reference|model_smoke|bench)/")
set(volatile_except "^$")
set(volatile_pattern "[^a-z_]volatile[^a-z_]")
set(volatile_text "uses volatile; between threads use std::atomic, in signal handlers sig_atomic_t")
set(string_label_in "^jit/")
set(string_label_except "^$")
set(string_label_pattern
  "[^A-Za-z0-9_](L|jmp|je|jne|jz|jnz|jl|jle|jg|jge|ja|jae|jb|jbe|jc|jnc|js|jns|inLocalLabel|outLocalLabel) *\\( *\"")
set(string_label_text "names a label with a string; labels are Xbyak::Label")
set(path_join_in "^model_smoke/")
set(path_join_except "^model_smoke/(model_dir|host_info)\\.(h|cc)$")  # the second reads /proc and /sys
set(path_join_pattern
  "openat *\\(|std::filesystem|\\+ *\"/|\"/\" *\\+|\\+ *'/'|'/' *\\+|\\+= *['\"]/|push_back\\('/'\\)")
set(path_join_text "joins paths; only model_dir does, so that no name in a checkpoint leads out of it")
set(isa_if_in "^(jit|ops|reference|model_smoke|bench)/")
set(isa_if_except "^$")
set(isa_if_pattern "# *(if|ifdef|elif)[^\n]*__(AVX|SSE|AMX|FMA|F16C)")
set(isa_if_text "asks the compiler for the ISA; the generators and Highway choose at run time")
set(printing_in "^(jit|ops|reference)/")
set(printing_except "^ops/verbose\\.cc$")
set(printing_pattern "std::(cout|cerr|clog)|[^a-z_](f?printf|f?puts|perror|putchar) *\\(")
set(printing_text "prints; library text goes through the verbose sink")

function(check_text file text)
  foreach(rule IN LISTS rules)
    if(file MATCHES "${${rule}_in}" AND NOT file MATCHES "${${rule}_except}"
       AND "${text}" MATCHES "${${rule}_pattern}")
      violation(${file} "${${rule}_text} (found: ${CMAKE_MATCH_0})")
    endif()
  endforeach()
  set(violations "${violations}" PARENT_SCOPE)
endfunction()

# ---- The walk.
file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR}
  ${SOURCE_DIR}/jit/*.h ${SOURCE_DIR}/jit/*.cc ${SOURCE_DIR}/ops/*.h ${SOURCE_DIR}/ops/*.cc
  ${SOURCE_DIR}/reference/*.h ${SOURCE_DIR}/reference/*.cc ${SOURCE_DIR}/bench/*.h ${SOURCE_DIR}/bench/*.cc
  ${SOURCE_DIR}/model_smoke/*.h ${SOURCE_DIR}/model_smoke/*.cc ${SOURCE_DIR}/tests/*.h ${SOURCE_DIR}/tests/*.cc)
foreach(file IN LISTS files)
  if(file MATCHES "^ops/include/")
    set(group public)
  else()
    string(REGEX REPLACE "/.*" "" group "${file}")
  endif()
  file(STRINGS ${SOURCE_DIR}/${file} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]*)[>\"].*" "\\1" header "${line}")
    check_include(${group} ${file} "${header}")
  endforeach()
  file(READ ${SOURCE_DIR}/${file} text)
  string(REGEX REPLACE "//[^\n]*" "" text "\n${text}")
  # "asm volatile" is an instruction barrier and sig_atomic_t needs the word; neither synchronises threads.
  string(REGEX REPLACE "asm[_ ]*volatile|volatile (std::)?sig_atomic_t" "" text "${text}")
  check_text(${file} "${text}")
endforeach()

file(GLOB_RECURSE build_files RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/jit/CMakeLists.txt
  ${SOURCE_DIR}/ops/CMakeLists.txt ${SOURCE_DIR}/reference/CMakeLists.txt ${SOURCE_DIR}/bench/CMakeLists.txt
  ${SOURCE_DIR}/model_smoke/CMakeLists.txt ${SOURCE_DIR}/CMakeLists.txt ${SOURCE_DIR}/CMakePresets.json)
foreach(file IN LISTS build_files)
  file(READ ${SOURCE_DIR}/${file} text)
  string(REGEX REPLACE "#[^\n]*" "" text "${text}")
  if(text MATCHES "-m(arch|tune|avx|amx|fma|sse)[^ \n]*")
    violation(${file} "sets ${CMAKE_MATCH_0}; objects hold baseline instructions only")
  endif()
endforeach()

list(LENGTH files count)
if(violations)
  message(FATAL_ERROR "layering, ${count} files:\n${violations}")
endif()
message(STATUS "layering: ${count} files keep the rules")
