/* The functions of tilelang_kernel.h: launching and loading. The formats are those of
 * tilelang/runtime/file.py and calls.py. */
#ifndef TILELANG_KERNEL_IMPL_H
#define TILELANG_KERNEL_IMPL_H

#include "tilelang_kernel_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Launching. */

static unsigned tl_attributes(const tl_call* call, const tl_launch* launch, tl_attribute* out) {
  unsigned count = 0;
  int i;
  memset(out, 0, 4 * sizeof(*out));
  if (launch->window >= 0 && call->kernel->window_limit) {
    const tl_tensor* tensor = &call->args[launch->window].tensor;
    size_t bytes = tl_bytes(tensor), limit = call->kernel->window_limit;
    if (bytes) {
      out[count].id = 1; /* CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW */
      out[count].value.window.base = tensor->data;
      out[count].value.window.bytes = bytes < limit ? bytes : limit;
      out[count].value.window.hit_ratio = (float)launch->hit_ratio;
      out[count++].value.window.hit = 2; /* CU_ACCESS_PROPERTY_PERSISTING */
    }
  }
  if (launch->cluster[0] != 1 || launch->cluster[1] != 1 || launch->cluster[2] != 1) {
    out[count].id = 4; /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */
    for (i = 0; i < 3; ++i) out[count].value.dims[i] = launch->cluster[i];
    ++count;
  }
  if (launch->cooperative) {
    out[count].id = 2; /* CU_LAUNCH_ATTRIBUTE_COOPERATIVE */
    out[count++].value.flag = 1;
  }
  if (launch->dependent) {
    out[count].id = 6; /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
    out[count++].value.flag = 1;
  }
  return count;
}

static tl_status tl_send(const tl_call* call, const tl_launch* launches, void* stream) {
  const tl_kernel* kernel = call->kernel;
  int k, i;
  for (k = 0; k < kernel->num_kernels; ++k) {
    const unsigned* e = launches[k].extents;
    tl_attribute attributes[4];
    tl_config config;
    if (!e[0] || !e[1] || !e[2]) continue;
    for (i = 0; i < 3; ++i) {
      config.grid[i] = e[i];
      config.block[i] = e[3 + i];
    }
    if (launches[k].persistent && config.grid[0] > (unsigned)kernel->multiprocessors)
      config.grid[0] = (unsigned)kernel->multiprocessors;
    config.shared_bytes = e[6];
    config.stream = stream;
    config.attributes = attributes;
    config.count = tl_attributes(call, &launches[k], attributes);
    TL_TRY(
        tl_check(&kernel->driver,
                 kernel->driver.launch(&config, kernel->functions[k], launches[k].pointers, NULL),
                 "cuLaunchKernelEx", call->message));
  }
  return TL_OK;
}

static tl_status tl_run(tl_call* call, char* maps, tl_launch* launches, int64_t* values,
                        void** pointers, void* stream) {
  const tl_driver* driver = &call->kernel->driver;
  void* context;
  tl_status status;
  TL_TRY(tl_params(call, 0, 0));
  TL_TRY(tl_solve(call));
  TL_TRY(tl_params(call, 1, 0));
  TL_TRY(tl_solve(call));
  TL_TRY(tl_requirements(call));
  TL_TRY(tl_maps(call, maps));
  TL_TRY(tl_launches(call, launches, values, pointers, maps));
  if (call->cursor.bad)
    return tl_fail(call->message, TL_BAD_ARGUMENT,
                   "the extents lead to a division by 0 or a number beyond 64 bits");
  TL_TRY(tl_check(driver, driver->push(call->kernel->context), "cuCtxPushCurrent", call->message));
  status = tl_send(call, launches, stream);
  driver->pop(&context);
  return status;
}

static tl_call tl_call_of(const tl_kernel* kernel, const tl_argument* args, int64_t* variables,
                          char* message) {
  tl_call call;
  call.kernel = kernel;
  call.loading = NULL;
  call.args = args;
  call.variables = variables;
  call.scalars = variables + kernel->num_variables;
  call.cursor = tl_cursor_of(kernel, kernel->params_at, variables);
  call.message = message;
  return call;
}

static tl_status tl_check_count(const tl_kernel* kernel, int count, char* message) {
  if (count == kernel->num_params) return TL_OK;
  return tl_fail(message, TL_BAD_ARGUMENT,
                 "expected %d arguments, outputs and workspaces included, got %d",
                 kernel->num_params, count);
}

tl_status tl_kernel_launch(const tl_kernel* kernel, const tl_argument* args, int count,
                           void* stream, char* message) {
  size_t words = (size_t)(kernel->num_variables + kernel->num_params + kernel->num_args);
  size_t bytes = words * 8 + (size_t)kernel->num_args * sizeof(void*) + 64 +
                 (size_t)kernel->num_maps * TL_MAP_BYTES +
                 (size_t)kernel->num_kernels * sizeof(tl_launch);
  tl_status status;
  tl_call call;
  char *memory, *maps;
  int64_t* values;
  tl_launch* launches;
  TL_TRY(tl_check_count(kernel, count, message));
  memory = (char*)calloc(bytes, 1);
  if (!memory) return tl_fail(message, TL_NO_MEMORY, "no memory for a launch");
  maps = memory + (64 - (uintptr_t)memory % 64) % 64; /* a CUtensorMap is aligned to 64 bytes */
  launches = (tl_launch*)(maps + kernel->num_maps * TL_MAP_BYTES);
  values = (int64_t*)(launches + kernel->num_kernels);
  call = tl_call_of(kernel, args, values, message);
  values += kernel->num_variables + kernel->num_params;
  status = tl_run(&call, maps, launches, values, (void**)(values + kernel->num_args), stream);
  free(memory);
  return status;
}

static tl_status tl_evaluate_shape(tl_call* call, int index, int64_t* shape) {
  tl_cursor* c = &call->cursor;
  int i, d;
  TL_TRY(tl_params(call, 0, 1));
  TL_TRY(tl_solve(call));
  c->at = call->kernel->params_at;
  for (i = 0; i < call->kernel->num_params; ++i) {
    int64_t kind, packing, ndim, row_major;
    tl_text(c, NULL);
    kind = tl_next(c);
    tl_next(c);
    if (kind == 1) {
      c->at += 3;
      continue;
    }
    tl_has_type(c, NULL);
    if (kind == 2) continue;
    packing = tl_next(c);
    ndim = tl_next(c);
    row_major = tl_next(c);
    for (d = 0; d < (row_major ? 1 : 2) * ndim; ++d) {
      int64_t value;
      tl_next(c);
      value = tl_eval(c);
      if (i == index && d < ndim) shape[d] = d == ndim - 1 ? value / packing : value;
    }
  }
  if (c->bad) return tl_fail(call->message, TL_BAD_ARGUMENT, "the extents lead to no shape");
  return TL_OK;
}

tl_status tl_kernel_shape(const tl_kernel* kernel, const tl_argument* args, int count, int index,
                          int64_t* shape, char* message) {
  int64_t* variables;
  tl_status status;
  tl_call call;
  TL_TRY(tl_check_count(kernel, count, message));
  if (tl_kernel_rank(kernel, index) < 0)
    return tl_fail(message, TL_BAD_ARGUMENT, "parameter %d is no tensor", index);
  variables = (int64_t*)calloc((size_t)(kernel->num_variables + kernel->num_params), 8);
  if (!variables) return tl_fail(message, TL_NO_MEMORY, "no memory for a shape");
  call = tl_call_of(kernel, args, variables, message);
  status = tl_evaluate_shape(&call, index, shape);
  free(variables);
  return status;
}

int tl_kernel_params(const tl_kernel* kernel) { return kernel->num_params; }

tl_role tl_kernel_role(const tl_kernel* kernel, int index) {
  return index < 0 || index >= kernel->num_params ? TL_INPUT : (tl_role)kernel->roles[index];
}

int tl_kernel_rank(const tl_kernel* kernel, int index) {
  return index < 0 || index >= kernel->num_params ? -1 : kernel->ranks[index];
}

/* Loading. */

static tl_status tl_open(tl_driver* driver, const char* name, char* message) {
  size_t i;
  struct {
    const char* name;
    void* place;
  } symbols[] = {{"cuInit", &driver->init},
                 {"cuDeviceGet", &driver->device_get},
                 {"cuDeviceGetAttribute", &driver->device_attribute},
                 {"cuDevicePrimaryCtxRetain", &driver->retain},
                 {"cuDevicePrimaryCtxRelease_v2", &driver->release},
                 {"cuCtxPushCurrent_v2", &driver->push},
                 {"cuCtxPopCurrent_v2", &driver->pop},
                 {"cuCtxGetLimit", &driver->get_limit},
                 {"cuCtxSetLimit", &driver->set_limit},
                 {"cuGetErrorString", &driver->error_string},
                 {"cuLibraryLoadData", &driver->load_data},
                 {"cuLibraryUnload", &driver->unload},
                 {"cuLibraryGetKernel", &driver->get_kernel},
                 {"cuKernelGetFunction", &driver->get_function},
                 {"cuKernelGetAttribute", &driver->kernel_attribute},
                 {"cuKernelSetAttribute", &driver->set_kernel_attribute},
                 {"cuKernelGetParamInfo", &driver->param_info},
                 {"cuLaunchKernelEx", &driver->launch},
                 {"cuTensorMapEncodeTiled", &driver->encode_tiled},
                 {"cuTensorMapEncodeIm2col", &driver->encode_im2col},
                 {"cuMemHostAlloc", &driver->host_alloc},
                 {"cuMemFreeHost", &driver->host_free}};
  name = name ? name : "libcuda.so.1";
  driver->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!driver->library)
    return tl_fail(message, TL_DRIVER, "the CUDA driver %s cannot be opened: %s", name, dlerror());
  for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); ++i) {
    void* address = dlsym(driver->library, symbols[i].name);
    if (!address)
      return tl_fail(message, TL_DRIVER, "%s has no %s; install a newer driver", name,
                     symbols[i].name);
    memcpy(symbols[i].place, &address, sizeof(address));
  }
  return tl_check(driver, driver->init(0), "cuInit", message);
}

static tl_status tl_plan(tl_kernel* kernel, const tl_member* member, char* message) {
  tl_call call;
  tl_cursor* c = &call.cursor;
  kernel->num_words = member->size / 8;
  kernel->words = (int64_t*)malloc(member->size + 8);
  if (!kernel->words) return tl_fail(message, TL_NO_MEMORY, "no memory for a launch plan");
  memcpy(kernel->words, member->data, member->size);
  if (!kernel->num_words || memcmp(kernel->words, "TLCALLS1", 8) != 0)
    return tl_fail(message, TL_BAD_FILE,
                   "its plan is of a newer format; build with a newer tilelang_kernel.h");
  call = tl_call_of(kernel, NULL, NULL, message);
  call.loading = kernel;
  *c = tl_cursor_of(kernel, kernel->words + 1, NULL);
  tl_text(c, NULL);
  tl_text(c, NULL);
  c->num_variables = kernel->num_variables = (int)tl_within(c, 0, 1 << 12);
  kernel->num_params = (int)tl_within(c, 0, 1 << 12);
  kernel->params_at = c->at;
  kernel->roles = (int*)calloc((size_t)kernel->num_params + 1, sizeof(int));
  kernel->ranks = (int*)calloc((size_t)kernel->num_params + 1, sizeof(int));
  if (!kernel->roles || !kernel->ranks)
    return tl_fail(message, TL_NO_MEMORY, "no memory for a launch plan");
  TL_TRY(tl_params(&call, 0, 0));
  kernel->solutions_at = c->at;
  TL_TRY(tl_solve(&call));
  TL_TRY(tl_requirements(&call));
  TL_TRY(tl_maps(&call, NULL));
  TL_TRY(tl_launches(&call, NULL, NULL, NULL, NULL));
  if (c->bad || c->at != c->end)
    return tl_fail(message, TL_BAD_FILE, "its plan is not one that tilelang writes");
  return TL_OK;
}

/* What cuda_module.py does for a function: shared memory and clusters that need an opt-in. */
static tl_status tl_function(tl_kernel* kernel, const tl_launch* launch, void** function,
                             char* message) {
  const tl_driver* driver = &kernel->driver;
  char name[1024];
  void* handle;
  int shared = 0, dynamic = (int)launch->extents[6];
  size_t offset, size, declared = 0;
  snprintf(name, sizeof(name), "%.*s", launch->name_size, launch->name);
  TL_TRY(tl_check(driver, driver->get_kernel(&handle, kernel->library, name), name, message));
  TL_TRY(tl_check(driver,
                  driver->kernel_attribute(&shared, TL_STATIC_SHARED, handle, kernel->device),
                  "cuKernelGetAttribute", message));
  if (!launch->has_constant_shared) {
    TL_TRY(tl_check(driver, driver->device_attribute(&dynamic, TL_SHARED_OPTIN, kernel->device),
                    "cuDeviceGetAttribute", message));
    dynamic -= shared;
  }
  if (dynamic + shared > TL_DEFAULT_SHARED)
    TL_TRY(tl_check(
        driver, driver->set_kernel_attribute(TL_DYNAMIC_SHARED, dynamic, handle, kernel->device),
        "cuKernelSetAttribute", message));
  if (launch->cluster[0] * launch->cluster[1] * launch->cluster[2] > TL_PORTABLE_BLOCKS)
    TL_TRY(tl_check(
        driver, driver->set_kernel_attribute(TL_NON_PORTABLE_CLUSTER, 1, handle, kernel->device),
        "cuKernelSetAttribute", message));
  if (launch->by_hand) {
    while (driver->param_info(handle, declared, &offset, &size) == 0) ++declared;
    if (declared > (size_t)launch->num_args)
      return tl_fail(message, TL_BAD_FILE, "kernel %s takes more than the plan gives", name);
  }
  return tl_check(driver, driver->get_function(function, handle), "cuKernelGetFunction", message);
}

static tl_status tl_window(tl_kernel* kernel, char* message) {
  const tl_driver* driver = &kernel->driver;
  int window = 0, cache = 0;
  size_t limit = 0;
  TL_TRY(tl_check(driver, driver->device_attribute(&window, TL_WINDOW_BYTES, kernel->device),
                  "cuDeviceGetAttribute", message));
  TL_TRY(tl_check(driver, driver->device_attribute(&cache, TL_PERSISTING_L2, kernel->device),
                  "cuDeviceGetAttribute", message));
  if (!window || !cache) return TL_OK;
  TL_TRY(tl_check(driver, driver->get_limit(&limit, TL_LIMIT_PERSISTING_L2), "cuCtxGetLimit",
                  message));
  if (!limit)
    TL_TRY(tl_check(driver, driver->set_limit(TL_LIMIT_PERSISTING_L2, (size_t)cache),
                    "cuCtxSetLimit", message));
  kernel->window_limit = (size_t)window;
  return TL_OK;
}

static tl_status tl_functions(tl_kernel* kernel, const void* cubin, char* message) {
  tl_call call = tl_call_of(kernel, NULL, NULL, message);
  int64_t* values = (int64_t*)calloc((size_t)kernel->num_args + 1, 8);
  tl_launch* launches = (tl_launch*)calloc((size_t)kernel->num_kernels + 1, sizeof(tl_launch));
  const tl_driver* driver = &kernel->driver;
  tl_status status = TL_NO_MEMORY;
  int k;
  kernel->functions = (void**)calloc((size_t)kernel->num_kernels + 1, sizeof(void*));
  if (values && launches && kernel->functions) {
    call.cursor = tl_cursor_of(kernel, kernel->solutions_at, NULL);
    tl_solve(&call);
    tl_requirements(&call);
    tl_maps(&call, NULL);
    tl_launches(&call, launches, values, NULL, NULL);
    status =
        tl_check(driver, driver->load_data(&kernel->library, cubin, NULL, NULL, 0, NULL, NULL, 0),
                 "cuLibraryLoadData", message);
    for (k = 0; k < kernel->num_kernels && status == TL_OK; ++k) {
      status = tl_function(kernel, &launches[k], &kernel->functions[k], message);
      if (status == TL_OK && launches[k].window >= 0 && !kernel->window_limit)
        status = tl_window(kernel, message);
      if (status == TL_OK && launches[k].persistent)
        status = tl_check(
            driver,
            driver->device_attribute(&kernel->multiprocessors, TL_MULTIPROCESSORS, kernel->device),
            "cuDeviceGetAttribute", message);
    }
  }
  free(values);
  free(launches);
  return status;
}

static tl_status tl_zeros(tl_kernel* kernel, char* message) {
  const tl_driver* driver = &kernel->driver;
  size_t size = (size_t)kernel->num_maps * TL_ZERO_BYTES;
  void* zeros;
  TL_TRY(
      tl_check(driver, driver->host_alloc(&zeros, size, TL_PORTABLE), "cuMemHostAlloc", message));
  memset(zeros, 0, size);
  kernel->zeros = (char*)zeros;
  return TL_OK;
}

static tl_status tl_load_file(tl_kernel* kernel, const tl_file* file, int device, char* message) {
  const tl_driver* driver = &kernel->driver;
  int major = 0, minor = 0;
  tl_member plan, cubin;
  void *context, *code;
  tl_status status;
  TL_TRY(tl_check(driver, driver->device_get(&kernel->device, device), "cuDeviceGet", message));
  TL_TRY(tl_check(driver, driver->device_attribute(&major, TL_MAJOR, kernel->device),
                  "cuDeviceGetAttribute", message));
  TL_TRY(tl_check(driver, driver->device_attribute(&minor, TL_MINOR, kernel->device),
                  "cuDeviceGetAttribute", message));
  TL_TRY(tl_find(file, "calls.bin", major, minor, &plan, message));
  TL_TRY(tl_find(file, "kernel.cubin", major, minor, &cubin, message));
  TL_TRY(tl_plan(kernel, &plan, message));
  TL_TRY(tl_check(driver, driver->retain(&context, kernel->device), "cuDevicePrimaryCtxRetain",
                  message));
  kernel->context = context;
  code = malloc(cubin.size + 1); /* aligned, as an ELF file is read */
  if (!code) return tl_fail(message, TL_NO_MEMORY, "no memory for a binary");
  memcpy(code, cubin.data, cubin.size);
  status = tl_check(driver, driver->push(context), "cuCtxPushCurrent", message);
  if (status == TL_OK) {
    status = tl_functions(kernel, code, message);
    if (status == TL_OK && kernel->num_maps) status = tl_zeros(kernel, message);
    driver->pop(&context);
  }
  free(code);
  return status;
}

tl_status tl_kernel_load(const char* path, int device, const char* driver, tl_kernel** out,
                         char* message) {
  tl_file file = {NULL, 0};
  tl_kernel* kernel = (tl_kernel*)calloc(1, sizeof(tl_kernel));
  tl_status status;
  char reason[TL_MESSAGE_BYTES] = "";
  *out = NULL;
  if (!kernel) return tl_fail(message, TL_NO_MEMORY, "no memory for a kernel");
  status = tl_read(path, &file, reason);
  if (status == TL_OK) status = tl_open(&kernel->driver, driver, reason);
  if (status == TL_OK) status = tl_load_file(kernel, &file, device, reason);
  free(file.bytes);
  if (status == TL_OK) {
    *out = kernel;
    return TL_OK;
  }
  tl_kernel_free(kernel);
  return tl_fail(message, status, "kernel file %.200s: %.300s", path, reason);
}

void tl_kernel_free(tl_kernel* kernel) {
  if (!kernel) return;
  if (kernel->zeros) kernel->driver.host_free(kernel->zeros);
  if (kernel->library) kernel->driver.unload(kernel->library);
  if (kernel->context) kernel->driver.release(kernel->device);
  if (kernel->driver.library) dlclose(kernel->driver.library);
  free(kernel->words);
  free(kernel->roles);
  free(kernel->ranks);
  free(kernel->functions);
  free(kernel);
}

#ifdef __cplusplus
}
#endif

#endif
