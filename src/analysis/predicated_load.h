/*! Loads from global memory that yield zeros where a condition is false. */
#pragma once
#include <optional>
#include <unordered_set>

#include "../tvm/build.h"
#include "../tvm/ir.h"

namespace tl {

/*! The value is zero in all lanes, whose bits are all zero, too: no negative zero. */
bool IsZeros(const Expr& e);

/*! `load` where `condition` holds (undefined: everywhere), else zeros. */
struct PredicatedLoad {
  const TensorLoadNode* load;
  Expr condition;
};

/*! The load that a value is, under any number of conditions; nullopt for other values. */
std::optional<PredicatedLoad> AsPredicatedLoad(Expr value);

/*! Tensors that a flat program may write, those written through views as well: unlike
 * WrittenBuffers, which takes the declaration of a view for a write. */
std::unordered_set<const Object*> WrittenTensors(const Stmt& kernel);

}  // namespace tl
