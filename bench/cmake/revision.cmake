# cmake -DSOURCE=<dir> -DOUTPUT=<header> -P revision.cmake: writes the git revision, marked when the
# tree differs from it. The header is only touched when the text changes, so nothing is rebuilt for it.
set(revision unknown)
find_program(git_program git)
if(git_program)
  execute_process(COMMAND ${git_program} -C ${SOURCE} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(revision ${text})
    execute_process(COMMAND ${git_program} -C ${SOURCE} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND revision "+changes")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once\n\n#define QUERN_BENCH_REVISION \"${revision}\"\n")
