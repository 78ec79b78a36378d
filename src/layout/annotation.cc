#include "annotation.h"

#include "../tvm/registry.h"

namespace tl {
namespace {

constexpr const char* kLayoutMap = "layout_map";
constexpr const char* kLayoutLines = "layouts";
constexpr const char* kLoopLayout = "parallel_loop_layout";
constexpr const char* kLoopLine = "loop_layout";

}  // namespace

void SetLayoutMap(Annotations* annotations, const Map<Var, Layout>& layouts) {
  Map<Var, Any> lines;
  for (auto [buffer, layout] : layouts) lines.Set(buffer, String(LayoutLine(layout)));
  annotations->Set(kLayoutMap, layouts);
  annotations->Set(kLayoutLines, lines);
}

Map<Var, Layout> GetLayoutMap(const Annotations& annotations) {
  auto it = annotations.find(kLayoutMap);
  return it == annotations.end() ? Map<Var, Layout>() : (*it).second.cast<Map<Var, Layout>>();
}

void EraseLayoutMap(Annotations* annotations) {
  annotations->erase(kLayoutMap);
  annotations->erase(kLayoutLines);
}

void SetLoopLayout(Annotations* annotations, const Fragment& layout) {
  annotations->Set(kLoopLayout, layout);
  annotations->Set(kLoopLine, String(LayoutLine(layout)));
}

Fragment GetLoopLayout(const Annotations& annotations) {
  auto it = annotations.find(kLoopLayout);
  return it == annotations.end() ? Fragment() : (*it).second.cast<Fragment>();
}

namespace {

Registration registration([] {
  RegisterFunction("LayoutMapAnnotations", [](Map<Var, Layout> layouts) {
    Annotations out;
    SetLayoutMap(&out, layouts);
    return out;
  });
  RegisterFunction("LoopLayoutAnnotations", [](Fragment layout) {
    Annotations out;
    SetLoopLayout(&out, layout);
    return out;
  });
});

}  // namespace
}  // namespace tl
