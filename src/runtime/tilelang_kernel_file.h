/* What tilelang_kernel.h reads: the archive. And the driver's entry points, and errors. The formats
 * are those of tilelang/runtime/file.py and calls.py. */
#ifndef TILELANG_KERNEL_FILE_H
#define TILELANG_KERNEL_FILE_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tilelang_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The CUDA Driver API, as far as it is used; numbers are those of its enums. */

typedef struct {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned dims[3];
    int flag;
    struct {
      const void* base;
      size_t bytes;
      float hit_ratio;
      int hit, miss;
    } window;
  } value;
} tl_attribute;

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  tl_attribute* attributes;
  unsigned count;
} tl_config;

typedef struct {
  void* library;
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*device_attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*get_limit)(size_t*, int);
  int (*set_limit)(int, size_t);
  int (*error_string)(int, const char**);
  int (*load_data)(void**, const void*, int*, void**, unsigned, int*, void**, unsigned);
  int (*unload)(void*);
  int (*get_kernel)(void**, void*, const char*);
  int (*get_function)(void**, void*);
  int (*kernel_attribute)(int*, int, void*, int);
  int (*set_kernel_attribute)(int, int, void*, int);
  int (*param_info)(void*, size_t, size_t*, size_t*);
  int (*launch)(const tl_config*, void*, void**, void**);
  int (*encode_tiled)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                      const uint32_t*, const uint32_t*, int, int, int, int);
  int (*encode_im2col)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const int*,
                       const int*, uint32_t, uint32_t, const uint32_t*, int, int, int, int);
  int (*host_alloc)(void**, size_t, unsigned);
  int (*host_free)(void*);
} tl_driver;

enum {
  TL_MULTIPROCESSORS = 16,
  TL_MAJOR = 75,
  TL_MINOR = 76,
  TL_SHARED_OPTIN = 97,
  TL_PERSISTING_L2 = 108,
  TL_WINDOW_BYTES = 109,
  TL_STATIC_SHARED = 1,
  TL_DYNAMIC_SHARED = 8,
  TL_NON_PORTABLE_CLUSTER = 14,
  TL_LIMIT_PERSISTING_L2 = 6,
  TL_PORTABLE_BLOCKS = 8,
  TL_DEFAULT_SHARED = 48 * 1024,
  TL_ALIGNMENT = 16,
  TL_ZERO_BYTES = 1 << 14, /* of the least map: 3 windows of 256 pixels, 16 bytes apart */
  TL_PORTABLE = 1,         /* for all contexts: cuMemHostAlloc */
  TL_MAP_BYTES = 128,
  TL_MAX_RANK = 5,
  TL_MAX_DEPTH = 32
};

struct tl_kernel {
  tl_driver driver;
  int device;
  void* context;
  void* library;
  size_t window_limit;
  int multiprocessors; /* of the device, 0 where no kernel is persistent */
  int64_t* words;      /* calls.bin */
  size_t num_words;
  const int64_t *params_at, *solutions_at;
  int num_variables, num_params, num_kernels, num_maps, num_args;
  int *roles, *ranks;
  void** functions;
  char* zeros; /* for each map TL_ZERO_BYTES, its elements if its tensor has none */
};

/* Errors. */

static tl_status tl_fail(char* message, tl_status status, const char* format, ...) {
  va_list values;
  va_start(values, format);
  if (message) vsnprintf(message, TL_MESSAGE_BYTES, format, values);
  va_end(values);
  return status;
}

static tl_status tl_check(const tl_driver* driver, int code, const char* call, char* message) {
  const char* text = NULL;
  if (!code) return TL_OK;
  driver->error_string(code, &text);
  return tl_fail(message, TL_DRIVER, "%s failed: %d (%s)", call, code,
                 text ? text : "no description");
}

#define TL_TRY(expression)                  \
  do {                                      \
    tl_status tl_found = (expression);      \
    if (tl_found != TL_OK) return tl_found; \
  } while (0)

/* The archive: members that are stored, with their CRC-32 (PKWARE, APPNOTE.TXT, sections 4.3.7
 * to 4.3.16). */

static uint32_t tl_u16(const unsigned char* p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t tl_u32(const unsigned char* p) { return tl_u16(p) | tl_u16(p + 2) << 16; }

static uint32_t tl_crc(const unsigned char* p, size_t size) {
  uint32_t crc = 0xffffffffu;
  size_t i;
  int bit;
  for (i = 0; i < size; ++i) {
    crc ^= p[i];
    for (bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

typedef struct {
  unsigned char* bytes;
  size_t size;
} tl_file;

typedef struct {
  const unsigned char* name;
  size_t name_size;
  const unsigned char* data;
  size_t size;
  uint32_t crc;
} tl_member;

static tl_status tl_read(const char* path, tl_file* file, char* message) {
  FILE* stream = fopen(path, "rb");
  long size;
  if (!stream) return tl_fail(message, TL_BAD_FILE, "%s cannot be opened", path);
  fseek(stream, 0, SEEK_END);
  size = ftell(stream);
  rewind(stream);
  file->size = size < 0 ? 0 : (size_t)size;
  file->bytes = (unsigned char*)malloc(file->size ? file->size : 1);
  if (file->bytes && fread(file->bytes, 1, file->size, stream) != file->size) file->size = 0;
  fclose(stream);
  return file->bytes ? TL_OK : tl_fail(message, TL_NO_MEMORY, "no memory for %s", path);
}

/* The next member of the central directory at `*at`; 0 where there is none, or nothing that we
 * write. */
static int tl_member_at(const tl_file* file, size_t* at, tl_member* out) {
  const unsigned char* p = file->bytes + *at;
  size_t start, skipped;
  if (*at + 46 > file->size || tl_u32(p) != 0x02014b50 || tl_u16(p + 10) != 0) return 0;
  out->crc = tl_u32(p + 16);
  out->size = tl_u32(p + 24);
  out->name = p + 46;
  out->name_size = tl_u16(p + 28);
  start = tl_u32(p + 42);
  *at += 46 + out->name_size + tl_u16(p + 30) + tl_u16(p + 32);
  if (*at > file->size || start + 30 > file->size || tl_u32(file->bytes + start) != 0x04034b50)
    return 0;
  skipped = start + 30 + tl_u16(file->bytes + start + 26) + tl_u16(file->bytes + start + 28);
  if (skipped > file->size || out->size > file->size - skipped) return 0;
  out->data = file->bytes + skipped;
  return 1;
}

static size_t tl_directory(const tl_file* file, int* count) {
  const unsigned char* end = file->bytes + file->size - 22;
  if (file->size < 22 || tl_u32(end) != 0x06054b50) return file->size;
  *count = (int)tl_u16(end + 10);
  return tl_u32(end + 16);
}

/* Whether a GPU of compute capability `major`.`minor` runs ``sm_90a/...``; its rank among those
 * that it does. */
static int tl_runs_on(const tl_member* member, int major, int minor) {
  int number = 0, found_major, found_minor;
  size_t i = 3;
  char suffix;
  if (member->name_size < 6 || memcmp(member->name, "sm_", 3) != 0) return 0;
  for (; i < member->name_size && member->name[i] >= '0' && member->name[i] <= '9'; ++i)
    number = number * 10 + member->name[i] - '0';
  suffix = i < member->name_size ? (char)member->name[i] : 0;
  found_major = number / 10;
  found_minor = number % 10;
  if (found_major != major || found_minor > minor || (found_minor < minor && suffix == 'a'))
    return 0;
  return 2 * number + (suffix != '/');
}

static tl_status tl_find(const tl_file* file, const char* name, int major, int minor,
                         tl_member* out, char* message) {
  int count = 0, best = 0, seen = 0;
  size_t at = tl_directory(file, &count);
  tl_member member;
  for (; count > 0; --count) {
    const char* slash;
    int rank;
    if (!tl_member_at(file, &at, &member))
      return tl_fail(message, TL_BAD_FILE, "it is cut off or damaged");
    slash = (const char*)memchr(member.name, '/', member.name_size);
    ++seen;
    if (!slash || member.name_size - (size_t)(slash + 1 - (const char*)member.name) != strlen(name))
      continue;
    if (memcmp(slash + 1, name, strlen(name)) != 0) continue;
    rank = tl_runs_on(&member, major, minor);
    if (rank > best) {
      best = rank;
      *out = member;
    }
  }
  if (!seen) return tl_fail(message, TL_BAD_FILE, "it is no kernel file, or it is cut off");
  if (!best)
    return tl_fail(message, TL_NO_VARIANT, "it has no binary for a GPU of sm_%d%d", major, minor);
  if (tl_crc(out->data, out->size) != out->crc)
    return tl_fail(message, TL_BAD_FILE, "%s is damaged", name);
  return TL_OK;
}

#ifdef __cplusplus
}
#endif

#endif
