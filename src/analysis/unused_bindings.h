#pragma once
#include <functional>

#include "../tvm/stmt.h"

namespace tl {

/*! The statement without each `Bind` whose variable nothing in it reads, if `is_removable`: its
 * value then is not computed. A name that only such values read is unused, too. */
Stmt WithoutUnusedBindings(const Stmt& s, const std::function<bool(const BindNode*)>& is_removable);

}  // namespace tl
