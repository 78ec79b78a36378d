/* The launch plan of tilelang_kernel.h: what a call is checked against, and what it launches. The
 * formats are those of tilelang/runtime/file.py and calls.py. */
#ifndef TILELANG_KERNEL_PLAN_H
#define TILELANG_KERNEL_PLAN_H

#include "tilelang_kernel_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The plan: words that are read in order. */

typedef struct {
  const int64_t *at, *end;
  int bad;
  const int64_t* variables; /* NULL while the plan is only looked through */
  int64_t num_variables;
} tl_cursor;

static int64_t tl_next(tl_cursor* c) {
  if (c->at >= c->end) {
    c->bad = 1;
    return 0;
  }
  return *c->at++;
}

static int64_t tl_within(tl_cursor* c, int64_t low, int64_t high) {
  int64_t value = tl_next(c);
  if (value >= low && value <= high) return value;
  c->bad = 1;
  return low;
}

static const char* tl_text(tl_cursor* c, int* size) {
  const int64_t* start;
  int64_t bytes = tl_within(c, 0, 1 << 20), words = (bytes + 7) / 8;
  start = c->at;
  if (words > c->end - c->at) {
    c->bad = 1;
    bytes = words = 0;
  }
  c->at += words;
  if (size) *size = (int)bytes;
  return (const char*)start;
}

static int64_t tl_floordiv(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Evaluates an expression; `bad` where it has no value that fits. */
static int64_t tl_eval(tl_cursor* c) {
  int64_t stack[TL_MAX_DEPTH] = {0}, a, b, count = tl_within(c, 1, 1 << 16);
  int top = -1, op, wrong = 0;
  for (; count > 0; --count) {
    op = (int)tl_within(c, 0, 9);
    b = tl_next(c);
    if (c->bad || (op < 2 ? top + 1 >= TL_MAX_DEPTH : top < 1)) {
      c->bad = 1;
      return 0;
    }
    if (op == 0) {
      stack[++top] = b;
      continue;
    }
    if (op == 1) {
      if (b < 0 || b >= c->num_variables) {
        c->bad = 1;
        return 0;
      }
      stack[++top] = c->variables ? c->variables[b] : 1;
      continue;
    }
    b = stack[top--];
    a = stack[top];
    if (op == 2) {
      wrong |= __builtin_add_overflow(a, b, &stack[top]);
    } else if (op == 3) {
      wrong |= __builtin_sub_overflow(a, b, &stack[top]);
    } else if (op == 4) {
      wrong |= __builtin_mul_overflow(a, b, &stack[top]);
    } else if (op == 7 || op == 8) {
      stack[top] = (op == 7) == (a < b) ? a : b;
    } else if (b == 0 || b == -1) {
      wrong = stack[top] = 1;
    } else {
      stack[top] = op == 5   ? tl_floordiv(a, b)
                   : op == 6 ? a - tl_floordiv(a, b) * b
                             : -tl_floordiv(-a, b);
    }
  }
  /* While the plan is looked through, values mean nothing. */
  if ((wrong && c->variables) || top != 0) c->bad = 1;
  return stack[0];
}

/* What a call is checked with. */
typedef struct {
  const tl_kernel* kernel;
  tl_kernel* loading;      /* the same while it is loaded, else NULL */
  const tl_argument* args; /* NULL while it is loaded: the plan is looked through */
  int64_t *variables, *scalars;
  tl_cursor cursor;
  char* message;
} tl_call;

static tl_cursor tl_cursor_of(const tl_kernel* kernel, const int64_t* at,
                              const int64_t* variables) {
  tl_cursor c;
  c.at = at;
  c.end = kernel->words + kernel->num_words;
  c.bad = 0;
  c.variables = variables;
  c.num_variables = kernel->num_variables;
  return c;
}

static int64_t tl_extent(const tl_tensor* tensor, int d, int64_t packing) {
  return tensor->shape[d] * (d == tensor->ndim - 1 ? packing : 1);
}

static int64_t tl_stride(const tl_tensor* tensor, int d, int64_t packing) {
  int64_t stride = 1;
  int i;
  if (tensor->strides) return tensor->strides[d] * (d == tensor->ndim - 1 ? 1 : packing);
  for (i = d + 1; i < tensor->ndim; ++i) stride *= tl_extent(tensor, i, packing);
  return stride;
}

static size_t tl_bytes(const tl_tensor* tensor) {
  int64_t span = 1, size = 1;
  int d;
  for (d = tensor->ndim - 1; d >= 0; --d) {
    if (tensor->shape[d] == 0) return 0;
    span += (tensor->shape[d] - 1) * (tensor->strides ? tensor->strides[d] : size);
    size *= tensor->shape[d];
  }
  return (size_t)(span * ((tensor->bits * tensor->lanes + 7) / 8));
}

static int tl_has_type(tl_cursor* c, const tl_tensor* tensor) {
  int64_t count = tl_within(c, 0, 64);
  int found = count == 0;
  for (; count > 0; --count) {
    int64_t code = tl_next(c), bits = tl_next(c), lanes = tl_next(c);
    found |= tensor && code == tensor->code && bits == tensor->bits && lanes == tensor->lanes;
  }
  return found;
}

/* How a parameter is passed: defines its variables where `check` is 0, compares its places where it
 * is 1. */
static tl_status tl_tensor_param(tl_call* call, int index, int size, const char* name, int check) {
  tl_cursor* c = &call->cursor;
  const tl_tensor* tensor = call->args ? &call->args[index].tensor : NULL;
  int has_type = tl_has_type(c, tensor), d, empty = 0;
  int64_t packing = tl_within(c, 1, 2), ndim = tl_within(c, 0, 64), row_major = tl_within(c, 0, 1);
  if (call->loading) call->loading->ranks[index] = (int)ndim;
  if (tensor && !check) {
    if (!has_type)
      return tl_fail(call->message, TL_BAD_ARGUMENT, "parameter `%.*s` gets another element type",
                     size, name);
    if (tensor->ndim != ndim)
      return tl_fail(call->message, TL_BAD_ARGUMENT,
                     "parameter `%.*s`: expected %d dimensions, got %d", size, name, (int)ndim,
                     (int)tensor->ndim);
    if ((uintptr_t)tensor->data % TL_ALIGNMENT || (!tensor->data && tl_bytes(tensor)))
      return tl_fail(call->message, TL_BAD_ARGUMENT,
                     "parameter `%.*s`: expected data aligned to 16 bytes, got %p", size, name,
                     tensor->data);
  }
  for (d = 0; d < ndim && tensor; ++d) empty |= tensor->shape[d] == 0;
  for (d = 0; d < (row_major ? 1 : 2) * ndim; ++d) {
    int is_stride = d >= ndim, dim = (int)(d % ndim);
    int64_t defines = tl_within(c, -1, c->num_variables - 1), expected = tl_eval(c), found;
    if (!tensor) continue;
    found = is_stride ? tl_stride(tensor, dim, packing) : tl_extent(tensor, dim, packing);
    if (!check && defines >= 0) call->variables[defines] = found;
    if (!check || found == expected) continue;
    if (is_stride && (empty || tensor->shape[dim] == 1 || expected == 0)) continue;
    return tl_fail(call->message, TL_BAD_ARGUMENT,
                   "parameter `%.*s`: expected %s %lld at index %d, got %lld", size, name,
                   is_stride ? "stride" : "extent", (long long)expected, dim, (long long)found);
  }
  if (row_major && tensor && check && !empty && tensor->strides) {
    int64_t expected = 1;
    for (d = (int)ndim - 1; d >= 0; --d) {
      if (tensor->shape[d] != 1 && tl_stride(tensor, d, packing) != expected)
        return tl_fail(call->message, TL_BAD_ARGUMENT,
                       "parameter `%.*s` is non-contiguous at index %d", size, name, d);
      expected *= tl_extent(tensor, d, packing);
    }
  }
  return TL_OK;
}

static tl_status tl_scalar_param(tl_call* call, int index, int size, const char* name) {
  tl_cursor* c = &call->cursor;
  int64_t kind = tl_within(c, 0, 2), bytes = tl_within(c, 1, 8),
          defines = tl_within(c, -1, c->num_variables - 1);
  const tl_argument* arg = call->args ? &call->args[index] : NULL;
  float narrow;
  if (!arg) return TL_OK;
  call->scalars[index] = arg->integer;
  if (kind == 2 && bytes == 4) {
    narrow = (float)arg->number;
    memcpy(&call->scalars[index], &narrow, 4);
  } else if (kind == 2 && bytes == 8) {
    memcpy(&call->scalars[index], &arg->number, 8);
  } else if (bytes < 8) {
    int64_t low = kind == 0 ? -((int64_t)1 << (8 * bytes - 1)) : 0;
    int64_t high = kind == 0 ? -low - 1 : ((int64_t)1 << 8 * bytes) - 1;
    if (arg->integer < low || arg->integer > high)
      return tl_fail(call->message, TL_BAD_ARGUMENT,
                     "parameter `%.*s`: expected %lld to %lld, got %lld", size, name,
                     (long long)low, (long long)high, (long long)arg->integer);
  }
  if (defines >= 0) call->variables[defines] = arg->integer;
  return TL_OK;
}

/* One pass over all parameters; see tl_tensor_param. With `inputs_only` outputs and workspaces are
 * not looked at. */
static tl_status tl_params(tl_call* call, int check, int inputs_only) {
  tl_cursor* c = &call->cursor;
  const tl_argument* args = call->args;
  int i;
  c->at = call->kernel->params_at;
  for (i = 0; i < call->kernel->num_params; ++i) {
    int size;
    const char* name = tl_text(c, &size);
    int64_t kind = tl_within(c, 0, 2), role = tl_within(c, 0, 2);
    call->args = inputs_only && role != TL_INPUT ? NULL : args;
    if (call->loading) {
      call->loading->roles[i] = (int)role;
      call->loading->ranks[i] = -1;
    }
    if (kind == 0) {
      TL_TRY(tl_tensor_param(call, i, size, name, check));
    } else if (kind == 1) {
      TL_TRY(tl_scalar_param(call, i, size, name));
    } else {
      tl_has_type(c, NULL);
      if (args) call->scalars[i] = args[i].integer;
      if (args && args[i].integer % TL_ALIGNMENT)
        return tl_fail(call->message, TL_BAD_ARGUMENT,
                       "parameter `%.*s`: expected an address aligned to 16 bytes", size, name);
    }
    call->args = args;
  }
  return TL_OK;
}

static tl_status tl_solve(tl_call* call) {
  tl_cursor* c = &call->cursor;
  int64_t count, value, variable;
  c->at = call->kernel->solutions_at;
  for (count = tl_within(c, 0, 1 << 16); count > 0; --count) {
    variable = tl_within(c, 0, c->num_variables - 1);
    value = tl_eval(c);
    if (call->args && value < 0)
      return tl_fail(call->message, TL_BAD_ARGUMENT, "the extents make a size negative");
    if (call->args) call->variables[variable] = value;
  }
  return TL_OK;
}

static tl_status tl_requirements(tl_call* call) {
  tl_cursor* c = &call->cursor;
  int64_t count;
  for (count = tl_within(c, 0, 1 << 16); count > 0; --count) {
    int64_t op = tl_within(c, 0, 3), a = tl_eval(c), b = tl_eval(c);
    int size, holds = op == 0 ? a == b : op == 1 ? a != b : op == 2 ? a < b : a <= b;
    const char* text = tl_text(c, &size);
    if (call->args && !holds)
      return tl_fail(call->message, TL_BAD_ARGUMENT, "an assertion fails: %.*s (%lld, %lld)", size,
                     text, (long long)a, (long long)b);
  }
  return TL_OK;
}

static tl_status tl_tensor_map(tl_call* call, int index, char* out) {
  tl_cursor* c = &call->cursor;
  uint64_t shape[TL_MAX_RANK] = {0}, strides[TL_MAX_RANK] = {TL_ALIGNMENT};
  uint32_t steps[TL_MAX_RANK], box[TL_MAX_RANK] = {0};
  int lower[TL_MAX_RANK] = {0}, upper[TL_MAX_RANK] = {0}, d, empty = 0;
  const tl_driver* driver = &call->kernel->driver;
  int64_t param = tl_within(c, 0, call->kernel->num_params - 1), type = tl_within(c, 0, 64),
          swizzle, promotion, nan;
  int rank = (int)tl_within(c, 1, TL_MAX_RANK);
  uint32_t channels = 0, pixels = 0;
  void* address = NULL;
  if (call->args)
    address = call->kernel->ranks[param] < 0 ? (void*)(uintptr_t)call->scalars[param]
                                             : call->args[param].tensor.data;
  for (d = 0; d < rank; ++d) empty |= (shape[d] = (uint64_t)tl_eval(c)) == 0;
  for (d = 0; d < rank - 1; ++d) strides[d] = (uint64_t)tl_eval(c);
  for (d = 0; d < rank; ++d) steps[d] = (uint32_t)tl_next(c);
  swizzle = tl_within(c, 0, 3);
  promotion = tl_within(c, 0, 3);
  nan = tl_within(c, 0, 1);
  if (tl_within(c, 0, 1)) {
    for (d = 0; d < rank - 2; ++d) lower[d] = (int)tl_next(c);
    for (d = 0; d < rank - 2; ++d) upper[d] = (int)tl_next(c);
    channels = (uint32_t)tl_next(c);
    pixels = (uint32_t)tl_next(c);
  } else {
    for (d = 0; d < rank; ++d) box[d] = (uint32_t)tl_next(c);
  }
  for (d = 0; d < rank; ++d) {
    uint64_t least = (uint64_t)tl_next(c);
    if (empty) shape[d] = least;
    if (empty && d < rank - 1) strides[d] = TL_ALIGNMENT;
  }
  /* No two maps have the same zeros, else what is stored by one would be loaded by another. */
  if (empty && call->args) address = call->kernel->zeros + index * TL_ZERO_BYTES;
  if (!call->args || c->bad) return TL_OK;
  if (channels)
    return tl_check(
        driver,
        driver->encode_im2col(out, (int)type, (uint32_t)rank, address, shape, strides, lower, upper,
                              channels, pixels, steps, 0, (int)swizzle, (int)promotion, (int)nan),
        "cuTensorMapEncodeIm2col", call->message);
  return tl_check(driver,
                  driver->encode_tiled(out, (int)type, (uint32_t)rank, address, shape, strides, box,
                                       steps, 0, (int)swizzle, (int)promotion, (int)nan),
                  "cuTensorMapEncodeTiled", call->message);
}

static tl_status tl_maps(tl_call* call, char* maps) {
  tl_cursor* c = &call->cursor;
  int i, count = (int)tl_within(c, 0, 1 << 12);
  if (call->loading) call->loading->num_maps = count;
  for (i = 0; i < count; ++i) TL_TRY(tl_tensor_map(call, i, maps ? maps + i * TL_MAP_BYTES : NULL));
  return TL_OK;
}

/* A kernel of the plan, as it is launched. */
typedef struct {
  const char* name;
  int name_size, by_hand, persistent, cooperative, dependent, has_constant_shared, num_args;
  unsigned extents[7], cluster[3]; /* grid, block, bytes of dynamic shared memory */
  int64_t window;                  /* the parameter that persists in L2, or -1 */
  double hit_ratio;
  void** pointers;
} tl_launch;

static tl_status tl_argument_of(tl_call* call, int64_t* value, void** pointer, char* maps) {
  tl_cursor* c = &call->cursor;
  int64_t kind = tl_within(c, 0, 2), index, low, high;
  *pointer = value;
  if (kind == 0) {
    index = tl_within(c, 0, call->kernel->num_params - 1);
    if (!call->args) return TL_OK;
    if (call->kernel->ranks[index] < 0)
      *value = call->scalars[index];
    else
      *value = (int64_t)(intptr_t)call->args[index].tensor.data;
  } else if (kind == 2) {
    index = tl_within(c, 0, call->kernel->num_maps - 1);
    *pointer = maps + index * TL_MAP_BYTES;
  } else {
    tl_within(c, 1, 8);
    low = tl_next(c);
    high = tl_next(c);
    *value = tl_eval(c);
    if (call->args && (*value < low || *value > high))
      return tl_fail(call->message, TL_BAD_ARGUMENT,
                     "the extents lead to %lld for a kernel argument of fewer bits",
                     (long long)*value);
  }
  return TL_OK;
}

static tl_status tl_launch_of(tl_call* call, tl_launch* out) {
  /* CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". */
  static const int64_t limits[7] = {2147483647, 65535, 65535, 1024, 1024, 64, 4294967295LL};
  tl_cursor* c = &call->cursor;
  int i;
  out->name = tl_text(c, &out->name_size);
  for (i = 0; i < 7; ++i) {
    int64_t value;
    out->has_constant_shared = c->end - c->at > 2 && c->at[0] == 1 && c->at[1] == 0;
    value = tl_eval(c);
    if (call->args && (value < 0 || value > limits[i]))
      return tl_fail(call->message, TL_BAD_ARGUMENT,
                     "extent %d of kernel `%.*s`: expected 0 to %lld, got %lld", i, out->name_size,
                     out->name, (long long)limits[i], (long long)value);
    out->extents[i] = (unsigned)value;
  }
  for (i = 0; i < 3; ++i) {
    out->cluster[i] = (unsigned)tl_within(c, 1, 1 << 16);
    if (call->args && out->extents[i] % out->cluster[i])
      return tl_fail(call->message, TL_BAD_ARGUMENT,
                     "the grid of kernel `%.*s` is no multiple of its cluster", out->name_size,
                     out->name);
  }
  out->cooperative = (int)tl_within(c, 0, 1);
  out->dependent = (int)tl_within(c, 0, 1);
  i = (int)tl_within(c, 0, 2);
  out->by_hand = i == 1;
  out->persistent = i == 2;
  out->window = tl_within(c, -1, call->kernel->num_params - 1);
  i = c->at < c->end;
  if (i) memcpy(&out->hit_ratio, c->at, 8);
  tl_next(c);
  out->num_args = (int)tl_within(c, 0, 1 << 12);
  return TL_OK;
}

/* All kernels; `values` and `pointers` have a place for each of their arguments. */
static tl_status tl_launches(tl_call* call, tl_launch* launches, int64_t* values, void** pointers,
                             char* maps) {
  tl_cursor* c = &call->cursor;
  int64_t count = tl_within(c, 0, 1 << 10), value;
  int k, i;
  for (k = 0; k < count; ++k) {
    tl_launch skipped;
    tl_launch* launch = launches ? &launches[k] : &skipped;
    TL_TRY(tl_launch_of(call, launch));
    launch->pointers = pointers;
    for (i = 0; i < launch->num_args; ++i) {
      void* pointer;
      TL_TRY(
          tl_argument_of(call, values ? values++ : &value, pointers ? pointers++ : &pointer, maps));
    }
    if (call->loading && !launches) call->loading->num_args += launch->num_args;
  }
  if (call->loading) call->loading->num_kernels = (int)count;
  return TL_OK;
}

#ifdef __cplusplus
}
#endif

#endif
