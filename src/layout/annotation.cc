#include "annotation.h"

#include "../tvm/attrs.h"
#include "../tvm/registry.h"
#include "swizzle.h"

namespace tl {
namespace {

constexpr const char* kLayoutMap = "layout_map";
constexpr const char* kLayoutLines = "layouts";
constexpr const char* kTensorLayoutMap = "tensor_layout_map";
constexpr const char* kTensorLayoutLines = "tensor_layouts";
/*! Lines of source, as constants that have its span. */
constexpr const char* kTensorLayoutPlaces = "tensor_layout_places";
constexpr const char* kTensorBoxes = "tensor_boxes";
constexpr const char* kLoopLayout = "parallel_loop_layout";
constexpr const char* kLoopLine = "loop_layout";

Map<Var, Any> LinesOf(const Map<Var, Layout>& layouts) {
  Map<Var, Any> lines;
  for (auto [buffer, layout] : layouts) lines.Set(buffer, String(LayoutLine(layout)));
  return lines;
}

}  // namespace

void SetLayoutMap(Annotations* annotations, const Map<Var, Layout>& layouts) {
  annotations->Set(kLayoutMap, layouts);
  annotations->Set(kLayoutLines, LinesOf(layouts));
}

Map<Var, Layout> GetLayoutMap(const Annotations& annotations) {
  auto it = annotations.find(kLayoutMap);
  return it == annotations.end() ? Map<Var, Layout>() : (*it).second.cast<Map<Var, Layout>>();
}

void EraseLayoutMap(Annotations* annotations) {
  annotations->erase(kLayoutMap);
  annotations->erase(kLayoutLines);
}

std::vector<std::pair<Var, TensorLayout>> GetTensorLayouts(const Annotations& annotations) {
  std::vector<std::pair<Var, TensorLayout>> out;
  auto it = annotations.find(kTensorLayoutMap);
  if (it == annotations.end()) return out;
  const auto places = annotations.at(kTensorLayoutPlaces).cast<Map<Var, IntImm>>();
  const auto known = annotations.find(kTensorBoxes);
  for (auto [tensor, layout] : (*it).second.cast<Map<Var, Layout>>()) {
    Array<Expr> box;
    if (known != annotations.end()) {
      box = (*known).second.cast<Map<Var, Array<Expr>>>().at(tensor);
    }
    out.push_back({tensor, {layout, places.at(tensor)->span, box}});
  }
  return out;
}

void SetTensorBoxes(Annotations* annotations, const Map<Var, Array<Expr>>& boxes) {
  annotations->Set(kTensorBoxes, boxes);
}

void EraseTensorLayouts(Annotations* annotations) {
  annotations->erase(kTensorLayoutMap);
  annotations->erase(kTensorLayoutLines);
  annotations->erase(kTensorLayoutPlaces);
  annotations->erase(kTensorBoxes);
}

std::vector<Var> AnnotatedBuffers(const Annotations& annotations) {
  std::vector<Var> buffers;
  for (const char* key : {kLayoutMap, kTensorLayoutMap, kSafeValues}) {
    if (!annotations.count(key)) continue;
    for (const auto& [buffer, value] : annotations.at(key).cast<Map<Var, Any>>()) {
      buffers.push_back(buffer);
    }
  }
  return buffers;
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

Registration annotation_registration([] {
  RegisterFunction("LayoutMapAnnotations", [](Map<Var, Layout> layouts) {
    Map<Var, Layout> known;
    for (const auto& [buffer, layout] : layouts) {
      known.Set(buffer, WithSwizzle(layout, DTypeOf(buffer).bits));
    }
    Annotations out;
    SetLayoutMap(&out, known);
    return out;
  });
  RegisterFunction("TensorLayoutAnnotations",
                   [](Map<Var, Layout> layouts, Map<Var, IntImm> places) {
                     Annotations out;
                     out.Set(kTensorLayoutMap, layouts);
                     out.Set(kTensorLayoutLines, LinesOf(layouts));
                     out.Set(kTensorLayoutPlaces, places);
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
