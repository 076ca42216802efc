# oneDNN as quern_bench_onednn, or nothing. Not find_package(dnnl): the dnnl-config.cmake of Debian 12
# asks for OpenCL and fails.
find_path(QUERN_ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(QUERN_ONEDNN_LIBRARY dnnl)
mark_as_advanced(QUERN_ONEDNN_INCLUDE_DIR QUERN_ONEDNN_LIBRARY)
if(QUERN_ONEDNN_INCLUDE_DIR AND QUERN_ONEDNN_LIBRARY)
  add_library(quern_bench_onednn UNKNOWN IMPORTED)
  set_target_properties(quern_bench_onednn PROPERTIES
    IMPORTED_LOCATION ${QUERN_ONEDNN_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${QUERN_ONEDNN_INCLUDE_DIR})
else()
  message(STATUS "oneDNN not found: quern-bench is built without a peer")
endif()
