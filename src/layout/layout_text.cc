#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "layout.h"

namespace tl {
namespace {

std::string ExprText(const ObjectRef& e) {
  static const Function repr = Function::GetGlobalRequired("ffi.ReprPrint");
  return repr(e).cast<String>();
}

/*! Extents up to which a grid fits a screen. */
constexpr int64_t kGridExtent = 16;

/*! "3:1" for register 1 of thread 3, "3+7:1" if thread 7 holds it too; "" if more than four do. */
std::string PlaceText(const FragmentNode* f, const std::vector<int64_t>& threads,
                      const std::vector<int64_t>& registers, int64_t element) {
  std::string out;
  for (int64_t r = 0; r < f->replicate; ++r) {
    out += (r ? "+" : "") + std::to_string(threads[element * f->replicate + r]);
  }
  return out + ":" + std::to_string(registers[element]);
}

std::string Grid(const std::vector<int64_t>& shape, const std::vector<std::string>& cells) {
  size_t width = 0;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  std::string out;
  for (size_t k = 0; k < cells.size(); ++k) {
    if (k % shape.back() == 0) out += "\n ";
    out += " " + std::string(width - cells[k].size(), ' ') + cells[k];
  }
  return out;
}

std::string NewLine(const Layout& layout) {
  std::ostringstream os;
  const auto* f = layout.as<FragmentNode>();
  os << (f ? "Fragment(" : "Layout(");
  for (size_t d = 0; d < layout->vars.size(); ++d) {
    os << (d ? ", " : "") << layout->vars[d]->name << " < " << ExprText(layout->shape[d]);
  }
  if (f && f->replicate > 1) os << ", " << f->replica->name << " < " << f->replicate;
  os << ") -> ";
  if (f) {
    os << "thread " << ExprText(f->thread) << ", register " << ExprText(f->index[0]);
    return os.str();
  }
  os << "(";
  for (size_t d = 0; d < layout->index.size(); ++d)
    os << (d ? ", " : "") << ExprText(layout->index[d]);
  os << ")";
  if (layout->swizzle_bytes > 0) os << ", a swizzle of " << layout->swizzle_bytes << " bytes";
  return os.str();
}

}  // namespace

std::string LayoutLine(const Layout& layout) {
  // A layout is written beside each loop and buffer that has it; printing takes most of a loop's
  // annotation.
  static constexpr size_t kMost = 64;
  thread_local std::unordered_map<Layout, std::string, ffi::ObjectPtrHash, ffi::ObjectPtrEqual>
      recent;
  const auto found = recent.find(layout);
  if (found != recent.end()) return found->second;
  if (recent.size() == kMost) recent.clear();
  return recent[layout] = NewLine(layout);
}

std::string LayoutText(const Layout& layout) {
  std::string line = LayoutLine(layout);
  const bool constant = AllOf(layout->shape, [](const Expr& e) { return AsInt(e).has_value(); });
  if (!constant) return line;
  const std::vector<int64_t> shape = layout->Shape();
  if (shape.size() != 2 || shape[0] > kGridExtent || shape[1] > kGridExtent) return line;
  std::vector<std::string> cells;
  if (const auto* f = layout.as<FragmentNode>()) {
    if (f->replicate > 4) return line;
    const std::vector<int64_t>&threads = f->ThreadTable(), &registers = f->Table();
    for (int64_t k = 0; k < Product(shape); ++k)
      cells.push_back(PlaceText(f, threads, registers, k));
  } else {
    for (int64_t address : layout->Addresses()) cells.push_back(std::to_string(address));
  }
  return line + Grid(shape, cells);
}

}  // namespace tl
