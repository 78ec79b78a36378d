/*! Intrinsics that are functions of scalars: no pointers, no other threads. */
#include "intrinsics.h"

namespace tl {

std::vector<Intrinsic> ScalarIntrinsics() {
  std::vector<Intrinsic> rows;
  auto add = [&rows](const std::string& name, const char* header, bool elementwise) {
    rows.push_back(
        {"tl." + name, "tl::" + name, header, 0, {}, IntrinsicEffects::None(), elementwise});
  };
  for (const char* name :
       {"exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "rcp"}) {
    add(std::string("fast_") + name, "tl/fast_math.h", true);
  }
  for (const char* name : {"add", "sub", "mul", "div", "rcp", "sqrt", "fma"}) {
    for (const char* mode : {"_rn", "_rz", "_ru", "_rd"}) {
      add(std::string(name) + mode, "tl/rounding.h", true);
    }
  }
  // cast_rz<To>(x) and its like, cast_rs<To>(x, random bits)
  for (const char* mode : {"rz", "ru", "rd", "rs"}) {
    add(std::string("cast_") + mode, "tl/directed.h", true);
    rows.back().template_args = 1;
  }
  add("rsqrt_rn", "tl/rounding.h", true);
  // Functions of pairs, which are not lanes of a vectorised loop.
  for (const char* name : {"add2", "sub2", "mul2", "max2", "min2", "abs2", "fma2"}) {
    add(name, "tl/packed.h", false);
  }
  for (const char* name : {"round_away", "power", "find_first_set"}) {
    add(name, "tl/scalar.h", true);
  }
  // Functions of floats: TVM's own are those of integers.
  for (const char* name : {"floordiv", "floormod"}) add(name, "tl/floor.h", true);
  for (const char* name :
       {"add_saturating", "sub_saturating", "mul_saturating", "tma_coordinate"}) {
    add(name, "tl/saturating.h", true);
  }
  add("find_nth_set", "tl/scalar.h", false);
  return rows;
}

}  // namespace tl
