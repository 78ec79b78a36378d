/* A stand-in of AMD's HIP runtime for tests without a GPU: functions of the HIP Runtime API as it
 * documents them, which do no work and note each call. What begins with stand_in is for the test:
 * the notes, line by line; the name of a function that fails from now on; how many arguments
 * kernels have. It has two devices. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { kSuccess = 0, kInvalidDevice = 101, kNoBinaryForGpu = 209, kUnknown = 999 };

typedef struct {
  int device;
} Module;
typedef struct {
  char name[64];
  int device;
} Function;

static char notes_[1 << 16];
static char failing_[64];
static int device_, arguments_;
static Module modules_[16];
static Function functions_[16];
static int module_count_, function_count_;

#define NOTE(...)                                                    \
  do {                                                               \
    size_t length = strlen(notes_);                                  \
    snprintf(notes_ + length, sizeof(notes_) - length, __VA_ARGS__); \
  } while (0)

API const char* stand_in_notes(void) { return notes_; }
API void stand_in_reset(int arguments) {
  notes_[0] = failing_[0] = 0;
  device_ = module_count_ = function_count_ = 0;
  arguments_ = arguments;
}
API void stand_in_fail(const char* function) { strncpy(failing_, function, sizeof(failing_) - 1); }

static int result(const char* function, int error) {
  return strcmp(failing_, function) == 0 ? error : kSuccess;
}

API int hipInit(unsigned flags) { return flags ? kUnknown : result("hipInit", kUnknown); }
API const char* hipGetErrorName(int error) {
  return error == kNoBinaryForGpu ? "hipErrorNoBinaryForGpu" : "hipErrorUnknown";
}
API const char* hipGetErrorString(int error) {
  return error == kNoBinaryForGpu ? "no kernel image is available" : "it was asked to fail";
}

API int hipGetDevice(int* device) {
  *device = device_;
  return result("hipGetDevice", kUnknown);
}
API int hipSetDevice(int device) {
  if (device < 0 || device > 1) return kInvalidDevice;
  NOTE("device %d\n", device);
  device_ = device;
  return result("hipSetDevice", kUnknown);
}

API int hipModuleLoadData(void** module, const void* image) {
  NOTE("load %.3s on %d\n", (const char*)image + 1, device_);
  modules_[module_count_].device = device_;
  *module = &modules_[module_count_++];
  return result("hipModuleLoadData", kNoBinaryForGpu);
}
API int hipModuleGetFunction(void** function, void* module, const char* name) {
  Function* made = &functions_[function_count_++];
  NOTE("function %s\n", name);
  strncpy(made->name, name, sizeof(made->name) - 1);
  made->device = ((Module*)module)->device;
  *function = made;
  return result("hipModuleGetFunction", kUnknown);
}
API int hipModuleLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, void* stream, void** kernel_params,
                              void** extra) {
  const Function* f = (const Function*)function;
  if (extra || f->device != device_) return kInvalidDevice;
  NOTE("launch %s grid %u %u %u block %u %u %u shared %u stream %#lx args", f->name, grid_x, grid_y,
       grid_z, block_x, block_y, block_z, shared_bytes, (unsigned long)(uintptr_t)stream);
  for (int i = 0; i < arguments_; ++i) NOTE(" %lld", *(const long long*)kernel_params[i]);
  NOTE("\n");
  return result("hipModuleLaunchKernel", kUnknown);
}
