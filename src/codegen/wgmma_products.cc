#include "wgmma_products.h"

#include "../op/intrinsics.h"
#include "../op/wgmma_calls.h"

namespace tl {
namespace {

/*! Steps along K that the headers make one statement, TL_WGMMA_STEPS. */
constexpr int64_t kMaxSteps = 8;

/*! Steps along K of one call: those of its operands in shared memory. */
int64_t StepsOf(const CallNode* product) {
  for (const Expr& arg : product->args) {
    if (IsCallTo(arg, kWgmmaSteps)) return ToInt(arg.as<CallNode>()->args[0]);
  }
  return 1;
}

/*! The header's name for where A is. */
std::string PlaceOfA(const CallNode* product) {
  const std::string& header = FindIntrinsic(product)->header;
  if (header == "tl/wgmma_rs.h") return "registers";
  return header == "tl/wgmma_sp.h" ? "sparse" : "shared";
}

}  // namespace

void WgmmaProducts::Add(const CallNode* product) {
  const std::string type = ToString(product->args[5]);
  const int64_t registers = AccumulatorRegisters(product);
  auto add = [&](int64_t steps) {
    found_.insert(PlaceOfA(product) + "(" + (type == "float" ? "float" : "uint32_t") + ", " +
                  std::to_string(registers) + ", " + std::to_string(steps) + ")");
  };
  const int64_t steps = StepsOf(product);
  if (steps >= kMaxSteps) add(kMaxSteps);
  if (steps % kMaxSteps) add(steps % kMaxSteps);
}

std::string WgmmaProducts::Definition() const {
  if (found_.empty()) return "";
  std::string text = "#define TL_WGMMA_PRODUCTS(shared, registers, sparse)";
  for (const std::string& product : found_) text += " " + product;
  return text + "\n";
}

}  // namespace tl
