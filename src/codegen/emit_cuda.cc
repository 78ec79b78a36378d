/*! EmitCuda: the source of a program's kernels, for NVRTC and for the emulator alike. */
#include "../analysis/kernel_facts.h"
#include "../tvm/attrs.h"
#include "../tvm/registry.h"
#include "c_types.h"
#include "kernel_printer.h"

namespace tl {
namespace {

String EmitCuda(const Array<PrimFunc>& kernels, bool line_directives) {
  std::set<std::string> headers;
  std::set<std::string> preludes;
  WgmmaProducts products;
  // C++ of the user's own may have other MMAs than the kernels, and other functions.
  bool own_source = false;
  std::string body;
  for (const PrimFunc& kernel : kernels) {
    if (const Any text = GetAttr(kernel, kSource); text != nullptr) {
      const std::string name = GetAttr(kernel, kGlobalSymbol).cast<String>();
      own_source = true;
      if (line_directives) body += "\n#line 0 " + StringLiteral(name + ".cu");
      body += "\n" + std::string(text.cast<String>()) + "\n";
      const std::string prelude = KernelFacts(kernel).prelude;
      if (!prelude.empty()) preludes.insert(prelude);
      continue;
    }
    KernelPrinter printer(line_directives);
    body += "\n" + printer.Run(kernel);
    headers.insert(printer.headers().begin(), printer.headers().end());
    products.Add(printer.products());
    if (!printer.prelude().empty()) preludes.insert(printer.prelude());
  }
  own_source |= !preludes.empty();
  if (own_source) headers.insert(std::begin(kFunctionHeaders), std::end(kFunctionHeaders));
  std::string source = own_source ? "" : products.Definition();
  source += "#include <tl/common.h>\n";
  for (const std::string& header : headers) source += "#include <" + header + ">\n";
  for (const std::string& prelude : preludes) source += "\n" + prelude + "\n";
  return source + body;
}

Registration emit_cuda_registration([] { RegisterFunction("codegen.EmitCuda", EmitCuda); });

}  // namespace
}  // namespace tl
