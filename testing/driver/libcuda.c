/* A stand-in of the CUDA driver for tests without a GPU: functions of the CUDA Driver API as it
 * documents them, which do no work. With STAND_IN_LOG in the environment each call that matters is
 * a line of that file. STAND_IN_ARCH is the compute capability, "90" by default; STAND_IN_FAIL
 * names a function that fails. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

typedef struct {
  int id;
  char pad[4];
  unsigned value[16];
} Attribute;

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned count;
} Config;

typedef struct {
  char name[256];
} Kernel;

static char context_, library_;

static FILE* log_file(void) {
  static FILE* file;
  const char* path = getenv("STAND_IN_LOG");
  if (!file && path) file = fopen(path, "a");
  return file;
}

#define LOG(...)                  \
  do {                            \
    FILE* file = log_file();      \
    if (file) {                   \
      fprintf(file, __VA_ARGS__); \
      fflush(file);               \
    }                             \
  } while (0)

static int result(const char* function) {
  const char* failing = getenv("STAND_IN_FAIL");
  return failing && strcmp(failing, function) == 0 ? 999 : 0;
}

API int cuInit(unsigned flags) { return (int)flags; }
API int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
API int cuDeviceGetCount(int* count) { return *count = 1, 0; }
API int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, ordinal ? 101 : 0; }
API int cuGetErrorString(int code, const char** text) {
  return *text = code ? "it was asked to fail" : "", 0;
}
API int cuGetErrorName(int code, const char** text) {
  return *text = code ? "CUDA_ERROR_UNKNOWN" : "", 0;
}

API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const char* arch = getenv("STAND_IN_ARCH");
  int number = arch ? atoi(arch) : 90;
  (void)device;
  *value = attribute == 75   ? number / 10
           : attribute == 76 ? number % 10
           : attribute == 97 ? 232448
           : attribute == 16 ? 5
                             : 1 << 20;
  return 0;
}

API int cuDevicePrimaryCtxRetain(void** context, int device) {
  return *context = &context_, device;
}
API int cuDevicePrimaryCtxRelease_v2(int device) { return device; }
API int cuCtxGetCurrent(void** context) { return *context = &context_, 0; }
API int cuCtxPushCurrent_v2(void* context) { return context != &context_; }
API int cuCtxPopCurrent_v2(void** context) { return *context = &context_, 0; }
API int cuCtxGetLimit(size_t* value, int limit) { return *value = 0, limit != 6; }
API int cuCtxSetLimit(int limit, size_t value) {
  LOG("limit %d %zu\n", limit, value);
  return 0;
}

API int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  *address = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address ? 0 : 2;
}
API int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return !*memory || flags > 1;
}
API int cuMemFreeHost(void* memory) {
  free(memory);
  return 0;
}
API int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  return memcpy((void*)(uintptr_t)to, from, bytes) == NULL;
}
API int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  return memcpy(to, (const void*)(uintptr_t)from, bytes) == NULL;
}

API int cuLibraryLoadData(void** library, const void* code, int* options, void** values,
                          unsigned count, int* more, void** more_values, unsigned more_count) {
  (void)options, (void)values, (void)more, (void)more_values;
  LOG("load %.3s\n", (const char*)code + 1);
  *library = &library_;
  return count || more_count ? 1 : result("cuLibraryLoadData");
}

API int cuLibraryUnload(void* library) {
  LOG("unload\n");
  return library != &library_;
}

API int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  Kernel* made =
      (Kernel*)calloc(1, sizeof(Kernel)); /* as the driver's, for the life of the library */
  (void)library;
  strncpy(made->name, name, sizeof(made->name) - 1);
  *kernel = made;
  return result("cuLibraryGetKernel");
}

API int cuKernelGetFunction(void** function, void* kernel) { return *function = kernel, 0; }
API int cuKernelGetAttribute(int* value, int attribute, void* kernel, int device) {
  (void)kernel, (void)device;
  return *value = 0, attribute != 1;
}
API int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  LOG("attribute %s %d %d\n", ((Kernel*)kernel)->name, attribute, value + device);
  return 0;
}
API int cuKernelGetParamInfo(void* kernel, size_t index, size_t* offset, size_t* size) {
  (void)kernel;
  return *offset = 8 * index, *size = 8, index < 2 ? 0 : 1;
}

/* Arguments are logged as 8 bytes each, and as the 32 first of a tensor map where they are one. */
API int cuLaunchKernelEx(const Config* config, void* function, void** args, void** extra) {
  const Kernel* kernel = (const Kernel*)function;
  const char* text = getenv("STAND_IN_ARGS");
  int count = text ? atoi(text) : 0, i;
  unsigned a;
  if (extra) return 1;
  if (log_file()) {
    LOG("launch %s grid %u %u %u block %u %u %u shared %u stream %p", kernel->name, config->grid[0],
        config->grid[1], config->grid[2], config->block[0], config->block[1], config->block[2],
        config->shared_bytes, config->stream);
    for (i = 0; i < count; ++i) {
      long long value;
      memcpy(&value, args[i], 8);
      LOG(" arg %lld", value);
    }
    for (a = 0; a < config->count; ++a)
      LOG(" attribute %d %u %u %u", config->attributes[a].id, config->attributes[a].value[0],
          config->attributes[a].value[1], config->attributes[a].value[2]);
    LOG("\n");
  }
  return result("cuLaunchKernelEx");
}

static void log_list(const char* name, const uint32_t* values, uint32_t count) {
  uint32_t i;
  LOG(" %s", name);
  for (i = 0; i < count; ++i) LOG(" %u", values[i]);
}

API int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address,
                               const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                               const uint32_t* steps, int interleave, int swizzle, int promotion,
                               int fill) {
  uint32_t i;
  if ((uintptr_t)map % 64) return 1;
  memset(map, 0, 128);
  memcpy(map, &address, 8);
  LOG("tiled type %d address %p dims", type, address);
  for (i = 0; i < rank; ++i) LOG(" %llu", (unsigned long long)dims[i]);
  LOG(" strides");
  for (i = 0; i + 1 < rank; ++i) LOG(" %llu", (unsigned long long)strides[i]);
  log_list("box", box, rank);
  log_list("steps", steps, rank);
  LOG(" modes %d %d %d %d\n", interleave, swizzle, promotion, fill);
  return 0;
}

API int cuTensorMapEncodeIm2col(void* map, int type, uint32_t rank, void* address,
                                const uint64_t* dims, const uint64_t* strides, const int* lower,
                                const int* upper, uint32_t channels, uint32_t pixels,
                                const uint32_t* steps, int interleave, int swizzle, int promotion,
                                int fill) {
  (void)dims, (void)strides, (void)steps;
  memset(map, 0, 128);
  LOG("im2col type %d rank %u address %p lower %d upper %d channels %u pixels %u modes %d %d %d "
      "%d\n",
      type, rank, address, lower[0], upper[0], channels, pixels, interleave, swizzle, promotion,
      fill);
  return 0;
}
