# Defines tvm_ffi::header and tvm_ffi::shared from the apache-tvm-ffi wheel of the Python in use.
execute_process(
  COMMAND ${Python_EXECUTABLE} -m tvm_ffi.config --cmakedir
  OUTPUT_VARIABLE tvm_ffi_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE tvm_ffi_STATUS)
if(NOT tvm_ffi_STATUS EQUAL 0)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no tvm_ffi; repair: ${Python_EXECUTABLE} -m pip install apache-tvm-ffi")
endif()
find_package(tvm_ffi CONFIG REQUIRED)
