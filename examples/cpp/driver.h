// The parts of the CUDA Driver API that the examples call themselves: device memory, which a server
// would take from its own allocator.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

class Driver {
 public:
  // Makes the primary context of the first GPU current.
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    if (!library_) throw std::runtime_error(dlerror());
    void* context;
    call<int(void**, int)>("cuDevicePrimaryCtxRetain", &context, 0);
    call<int(void*)>("cuCtxPushCurrent_v2", context);
  }

  void* allocate(std::size_t bytes) {
    std::uint64_t address;
    call<int(std::uint64_t*, std::size_t)>("cuMemAlloc_v2", &address, bytes);
    return reinterpret_cast<void*>(address);
  }

  template <typename T>
  void* on_device(const std::vector<T>& values) {
    void* to = allocate(values.size() * sizeof(T));
    call<int(std::uint64_t, const void*, std::size_t)>("cuMemcpyHtoD_v2", address_of(to),
                                                       values.data(), values.size() * sizeof(T));
    return to;
  }

  // Waits for what was launched on the default stream.
  template <typename T>
  std::vector<T> on_host(const void* from, std::size_t count) {
    std::vector<T> values(count);
    call<int(void*, std::uint64_t, std::size_t)>("cuMemcpyDtoH_v2", values.data(), address_of(from),
                                                 count * sizeof(T));
    return values;
  }

 private:
  static std::uint64_t address_of(const void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
  }

  template <typename Function, typename... Arguments>
  void call(const char* name, Arguments... arguments) {
    auto* function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (!function || function(arguments...)) throw std::runtime_error(std::string(name) + " fails");
  }

  void* library_;
};
