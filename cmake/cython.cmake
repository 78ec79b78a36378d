# cython_add_stable_module(NAME SOURCE): the extension module NAME.abi3.so from a Cython source and the *.pxi beside it, against
# Python 3.10's limited API (https://docs.python.org/3/c-api/stable.html). It is translated to C++, so that one
# compiler is enough.
function(cython_add_stable_module NAME SOURCE)
  set(PYX ${CMAKE_CURRENT_SOURCE_DIR}/${SOURCE})
  get_filename_component(PYX_DIR ${PYX} DIRECTORY)
  file(GLOB INCLUDED CONFIGURE_DEPENDS ${PYX_DIR}/*.pxi)
  set(GENERATED ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.cc)
  add_custom_command(
    OUTPUT ${GENERATED}
    COMMAND ${Python_EXECUTABLE} -m cython -3 --cplus -Werror --output-file ${GENERATED} ${PYX}
    DEPENDS ${PYX} ${INCLUDED}
    VERBATIM)
  python_add_library(${NAME} MODULE USE_SABI 3.10 WITH_SOABI ${GENERATED})
endfunction()
