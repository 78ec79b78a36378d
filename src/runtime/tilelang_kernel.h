/* Kernels that tilelang has exported, called from C or C++ without Python.
 *
 * Needs the CUDA driver alone, which is opened when a kernel is loaded. One source file defines
 * TILELANG_KERNEL_IMPLEMENTATION before it includes this; on Linux it links with -ldl.
 *
 *   tl_kernel* kernel;
 *   char message[TL_MESSAGE_BYTES];
 *   if (tl_kernel_load("scale.tlk", 0, NULL, &kernel, message)) die(message);
 *   const int64_t shape[] = {rows, 64};
 *   tl_argument args[] = {tl_float(a, 32, 2, shape), tl_number(3.0), tl_float(c, 32, 2, shape)};
 *   if (tl_kernel_launch(kernel, args, 3, stream, message)) die(message);
 *
 * A launch passes all parameters of the kernel in their order: outputs and workspaces too, which
 * tl_kernel_shape gives the shapes of. It checks as Python's call does, and nothing runs after an
 * error. A kernel may be launched by several threads at once. Docs: docs/shipping.md.
 */
#ifndef TILELANG_KERNEL_H
#define TILELANG_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TL_MESSAGE_BYTES 512

typedef enum {
  TL_OK = 0,
  TL_BAD_FILE,     /* no kernel file, damaged, cut off or of a newer format; or it cannot be read */
  TL_BAD_ARGUMENT, /* the arguments of a call do not fit the kernel */
  TL_NO_VARIANT,   /* the file has no binary that the GPU runs */
  TL_DRIVER,       /* the driver is missing or has refused something */
  TL_NO_MEMORY
} tl_status;

typedef enum { TL_INPUT = 0, TL_OUTPUT = 1, TL_WORKSPACE = 2 } tl_role;

/* Device memory. The element type is DLPack's: code (0 int, 1 uint, 2 float, 4 bfloat, 6 bool),
 * bits, lanes. Strides are in elements; NULL stands for a contiguous row-major tensor. */
typedef struct {
  void* data;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* strides;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} tl_tensor;

/* One argument: the tensor of a tensor parameter, `integer` of an integer scalar, a pointer's
 * address or the bits of a 16-bit float, `number` of a 32- or 64-bit float. */
typedef struct {
  tl_tensor tensor;
  int64_t integer;
  double number;
} tl_argument;

typedef struct tl_kernel tl_kernel;

/* Loads the newest binary of a file that `device` runs. `driver` is the library of the driver, NULL
 * for the system's. `message`, TL_MESSAGE_BYTES long, gets the text of an error. */
tl_status tl_kernel_load(const char* path, int device, const char* driver, tl_kernel** kernel,
                         char* message);

/* Launches on a stream of the device's primary context (a CUstream; NULL is the default stream). */
tl_status tl_kernel_launch(const tl_kernel* kernel, const tl_argument* args, int count,
                           void* stream, char* message);

/* The extents that parameter `index` has to have in a call with these arguments, of which those of
 * inputs are read. */
tl_status tl_kernel_shape(const tl_kernel* kernel, const tl_argument* args, int count, int index,
                          int64_t* shape, char* message);

int tl_kernel_params(const tl_kernel* kernel);
tl_role tl_kernel_role(const tl_kernel* kernel, int index);
int tl_kernel_rank(const tl_kernel* kernel, int index); /* of a tensor; -1 for others */

/* Frees a kernel whose work is complete. */
void tl_kernel_free(tl_kernel* kernel);

/* Arguments, for short. */
static inline tl_argument tl_of(void* data, int code, int bits, int ndim, const int64_t* shape) {
  tl_argument argument = {{data, ndim, shape, NULL, (uint8_t)code, (uint8_t)bits, 1}, 0, 0};
  return argument;
}
static inline tl_argument tl_int(void* data, int bits, int ndim, const int64_t* shape) {
  return tl_of(data, 0, bits, ndim, shape);
}
static inline tl_argument tl_float(void* data, int bits, int ndim, const int64_t* shape) {
  return tl_of(data, 2, bits, ndim, shape);
}
static inline tl_argument tl_bfloat(void* data, int ndim, const int64_t* shape) {
  return tl_of(data, 4, 16, ndim, shape);
}
static inline tl_argument tl_integer(int64_t value) {
  tl_argument argument = {{NULL, 0, NULL, NULL, 0, 0, 0}, value, 0};
  return argument;
}
static inline tl_argument tl_number(double value) {
  tl_argument argument = {{NULL, 0, NULL, NULL, 0, 0, 0}, 0, value};
  return argument;
}

#ifdef __cplusplus
}
#endif
#endif

#ifdef TILELANG_KERNEL_IMPLEMENTATION
#include "tilelang_kernel_impl.h"
#endif
