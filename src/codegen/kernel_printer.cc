#include "kernel_printer.h"

#include <regex>
#include <utility>

#include "../analysis/kernel_facts.h"
#include "../analysis/shared_memory.h"
#include "../op/intrinsics.h"
#include "../op/launch_sized.h"
#include "../op/rank_intrinsics.h"
#include "../op/views.h"
#include "../op/wgmma_calls.h"
#include "../tvm/attrs.h"
#include "../tvm/error.h"
#include "../tvm/find.h"
#include "../tvm/registry.h"
#include "c_types.h"

namespace tl {
namespace {

bool HasLoads(const Expr& e) { return HasNode<TensorLoadNode>(e); }

int64_t ThreadsOf(const PrimFunc& kernel) {
  int64_t threads = 1;
  for (const Expr& extent : GetAttr(kernel, kBlock).cast<Array<Expr>>()) threads *= ToInt(extent);
  return threads;
}

/*! Whether an attribute of the kernel lists the parameter. */
bool IsIn(const PrimFunc& kernel, const char* key, const Var& param) {
  const Any params = GetAttr(kernel, key);
  if (params == nullptr) return false;
  const auto list = params.cast<Array<Var>>();
  return AnyOf(list, [&](const Var& v) { return v.same_as(param); });
}

/*! Largest power of two up to 16 that a vector access of the array could need. */
int64_t LocalAlignment(int64_t bytes) {
  int64_t alignment = 16;
  while (alignment > bytes) alignment /= 2;
  return alignment;
}

}  // namespace

std::string KernelPrinter::Run(const PrimFunc& kernel) {
  span_ = kernel->span;
  analyzer_.BindShapes(kernel);
  const KernelFacts facts(kernel);
  prelude_ = facts.prelude;
  loads_elements_ = facts.loads_to_lds;
  awaits_mbarriers_ = facts.awaits_mbarriers;
  static_shared_ = facts.static_shared;
  out_ = Signature(kernel, facts) + " {\n";
  ++indent_;
  names_.Enter();
  Indices(facts);
  Statement(kernel->body);
  names_.Leave();
  --indent_;
  return out_ + "}\n";
}

std::string KernelPrinter::Signature(const PrimFunc& kernel, const KernelFacts& facts) {
  const Any noalias = GetAttr(kernel, kNoAlias);
  const bool overlaps = noalias != nullptr && !noalias.cast<bool>();
  // What a __restrict__ pointer points to changes by stores of this thread only, so NVVM moves its
  // loads over barriers, behind which they read what other threads have written.
  // Where another pointer is __restrict__, NVVM also takes one that the kernel only reads for
  // memory that nothing writes, so none is where several tensors may be one.
  const auto is_restrict = [&](const Var& p) {
    const bool changes = facts.written.count(p.get()) || IsIn(kernel, kTmaWritten, p);
    return !overlaps && facts.aliased.empty() && !(changes && facts.read.count(p.get()));
  };
  std::string params;
  for (const Var& p : kernel->params) {
    if (!params.empty()) params += ", ";
    if (IsIn(kernel, kTensorMaps, p)) {
      params += "const __grid_constant__ CUtensorMap ";
    } else if (IsIn(kernel, kPeerMaps, p)) {
      params += "const CUtensorMap* ";
    } else if (AsBuffer(p)) {
      params += facts.written.count(p.get()) ? "" : "const ";
      params += StorageType(DTypeOf(p)) + "* " + (is_restrict(p) ? "__restrict__ " : "");
    } else {
      params += TypeName(p->dtype()) + " ";
    }
    params += names_.Declare(p);
  }
  std::string bounds = std::to_string(facts.bound_threads.value_or(ThreadsOf(kernel)));
  if (facts.min_blocks) {
    bounds += ", " + std::to_string(*facts.min_blocks);
  } else if (facts.sets_registers) {
    // PTX ISA, setmaxnreg: the kernel has to say how many registers it starts with.
    bounds += ", 1";
  }
  const auto name = GetAttr(kernel, kGlobalSymbol).cast<String>();
  return "extern \"C\" __global__ void __launch_bounds__(" + bounds + ") " + std::string(name) +
         "(" + params + ")";
}

/*!
 * Shared memory, rasterisation, and `const int bx = blockIdx.x;` for each index that is used.
 *
 * NVVM knows of a thread's number that it is under 1024, whatever the launch bounds say. It is told
 * the block's extent, so that a guard that holds in most steps of an unrolled loop
 * (`r * 128 + tx < 1136`) is none there: as predicates, guards keep loads from being in flight
 * together.
 */
void KernelPrinter::Indices(const KernelFacts& facts) {
  if (facts.has_dynamic_shared) {
    Line("unsigned char* buf_dyn_shmem = tl::dynamic_shared();");
  }
  if (facts.static_shared_bytes > 0) {
    Line("unsigned char* buf_shmem = tl::static_shared<" +
         std::to_string(facts.static_shared_bytes) + ">();");
  }
  if (!facts.swizzle.empty()) {
    static const std::regex pattern("rasterization2D(Row|Column|MLX)<[1-9][0-9]*(, [1-9][0-9]*)?>");
    span_ = facts.swizzle_span;
    if (!std::regex_match(facts.swizzle, pattern)) {
      Refuse("rasterization pattern \"" + facts.swizzle + "\"", "Use T.use_swizzle(panel_size)");
    }
    Line("const dim3 blockIdx = tl::" + facts.swizzle + "();");
  }
  for (const IterVar& thread : facts.threads) {
    if (!facts.used.count(thread->var.get()) || names_.Find(thread->var.get())) continue;
    const std::string type = TypeName(thread->var->dtype());
    const std::string name = names_.Declare(thread->var);
    const std::string tag(thread->thread_tag);
    Line("const " + type + " " + name + " = " + tag + ";");
    const auto* extent = thread->dom->extent.as<IntImmNode>();
    if (extent && tag.rfind("threadIdx", 0) == 0) {
      Line("tl::assume(" + name + " < " + std::to_string(ToInt(thread->dom->extent)) + ");");
    }
  }
}

void KernelPrinter::Line(const std::string& text) {
  out_.append(static_cast<size_t>(2 * indent_), ' ').append(text).append("\n");
}

void KernelPrinter::Statement(const Stmt& s) {
  const bool compound = s.as<SeqStmtNode>() || s.as<AttrStmtNode>();
  if (s->span.defined()) {
    span_ = s->span;
    if (line_directives_ && !compound) {
      out_ += "#line " + std::to_string(span_->line) + " " +
              StringLiteral(span_->source_name->name) + "\n";
    }
  }
  done_ = nullptr;
  Visit(s);
  if (done_ != s.get()) Bug("a statement of class " + s->GetTypeKey());
}

void KernelPrinter::Braces(const std::string& head, const Stmt& body) {
  Line(head + " {");
  ++indent_;
  names_.Enter();
  Statement(body);
  names_.Leave();
  --indent_;
}

void KernelPrinter::Visit_(const SeqStmtNode* op) {
  for (const Stmt& s : op->seq) Statement(s);
  done_ = op;
}

void KernelPrinter::Visit_(const AttrStmtNode* op) {
  if (op->attr_key == kThreadExtent) {
    analyzer_.BindThread(op);
  } else if (op->attr_key == kUnrollFactor) {
    unroll_factor_ = AsInt(op->value);
  } else if (!KernelFacts::IsFact(op->attr_key)) {
    if (op->span.defined()) span_ = op->span;
    Refuse("the attribute " + std::string(op->attr_key), "Leave it out");
  }
  Statement(op->body);
  done_ = op;
}

void KernelPrinter::Visit_(const ForNode* op) {
  if (op->kind != ForKind::kSerial && op->kind != ForKind::kUnrolled) {
    Bug("a loop that is neither serial nor unrolled");
  }
  analyzer_.BindLoop(op);
  std::optional<int64_t> factor = IntAnnotation(op->annotations, kUnrollFactor);
  if (!factor) factor = std::exchange(unroll_factor_, std::nullopt);
  // NVVM would copy the body. MMAs of warp groups run beside the few instructions of the loop
  // itself, so that copies gain nothing, and compilers take as long for each of them. ptxas also
  // keeps what describes their operands for the next copy.
  const bool has_wgmmas = op->kind == ForKind::kSerial && HasWgmmas(op->body);
  if (!factor && has_wgmmas) factor = 1;
  if (factor) {
    Line("#pragma unroll " + std::to_string(*factor));
  } else if (op->kind == ForKind::kUnrolled) {
    Line("#pragma unroll");
  }
  const std::string first = Print(op->min);
  const std::string end = Print(analyzer_.Simplify(op->min + op->extent), kShift);
  names_.Enter();
  const std::string v = names_.Declare(op->loop_var);
  const bool one = !op->step.has_value() || IsConst(*op->step, 1);
  const std::string next = one ? "++" + v : v + " += " + Print(*op->step);
  // Unless ptxas sees that such a loop has an iteration, accumulators that are set in front of it
  // meet those in flight behind it, and it awaits each MMA of the kernel by itself (C7515). Where
  // it does not, the test in front costs nothing, and without it ptxas may spill
  // (tilelang/jit/second_choice.py).
  const bool runs = has_wgmmas && PassConfigFlag("tl.second_choice.loops_run", false) &&
                    !AsInt(op->extent) &&
                    (op->annotations.count(kLoopRuns) || analyzer_.ConstBound(op->extent).min > 0);
  const std::string begins = runs ? v + " == " + first + " || " : "";
  ++loops_;
  Braces("for (" + TypeName(op->loop_var->dtype()) + " " + v + " = " + first + "; " + begins + v +
             " < " + end + "; " + next + ")",
         op->body);
  --loops_;
  names_.Leave();
  Line("}");
  done_ = op;
}

void KernelPrinter::Visit_(const WhileNode* op) {
  ++loops_;
  Braces("while (" + Print(op->condition) + ")", op->body);
  --loops_;
  Line("}");
  done_ = op;
}

void KernelPrinter::Visit_(const IfThenElseNode* op) {
  If(op, "");
  done_ = op;
}

void KernelPrinter::If(const IfThenElseNode* op, const std::string& head) {
  const std::string condition = Print(op->condition);
  auto then = [&] { Braces(head + "if (" + condition + ")", op->then_case); };
  // What was loaded may have changed by the time that the body relies on it.
  if (HasLoads(op->condition)) {
    then();
  } else {
    analyzer_.WithConstraint(op->condition, then);
  }
  if (!op->else_case.has_value()) return Line("}");
  const Stmt other = *op->else_case;
  if (const auto* chained = other.as<IfThenElseNode>()) return If(chained, "} else ");
  Braces("} else", other);
  Line("}");
}

void KernelPrinter::Visit_(const BufferStoreNode* op) {
  if (op->indices.size() != 1)
    Bug("a store to " + std::string(op->buffer->name) + " with several indices");
  const Expr& index = op->indices[0];
  if (const TensorLoadNode* floats = ConvertedRegisters(op)) {
    Line("tl::convert<" + TypeName(DTypeOf(op->buffer)) + ", " +
         std::to_string(index->dtype().lanes) + ">(" +
         Pointer(op->buffer, index.as<RampNode>()->base) + ", " +
         Pointer(floats->source.as_or_throw<Var>(), floats->indices[0].as<RampNode>()->base) +
         ");");
    done_ = op;
    return;
  }
  const std::string value = PrintValue(op->value);
  if (index->dtype().lanes == 1 && IsSubByte(DTypeOf(op->buffer))) {
    StoreSubByte(op, value);
  } else if (index->dtype().lanes == 1) {
    Line(Element(op->buffer, index) + " = " + value + ";");
  } else {
    const auto* ramp = index.as<RampNode>();
    if (!ramp || !IsConst(ramp->stride, 1)) {
      Bug("a vector store to " + std::string(op->buffer->name) + " that is not contiguous");
    }
    Line("tl::store(" + Pointer(op->buffer, ramp->base) + ", " + value + ");");
  }
  done_ = op;
}

/*! The registers whose floats a store of 16-bit floats to an array of the thread converts; nullptr
 * for all else. */
const TensorLoadNode* KernelPrinter::ConvertedRegisters(const BufferStoreNode* op) {
  const DLDataType to = DTypeOf(op->buffer);
  const auto* cast = op->value.as<CastNode>();
  const auto* load = cast ? cast->value.as<TensorLoadNode>() : nullptr;
  const bool is_half = (to.code == kDLFloat || to.code == kDLBfloat) && to.bits == 16;
  if (!load || !is_half || load->indices.size() != 1 || op->indices[0]->dtype().lanes % 2) {
    return nullptr;
  }
  const DLDataType from = load->dtype();
  auto side_by_side = [](const Var& buffer, const Expr& index) {
    const auto* ramp = index.as<RampNode>();
    return IsLocal(buffer) && ramp && IsConst(ramp->stride, 1);
  };
  return from.code == kDLFloat && from.bits == 32 && side_by_side(op->buffer, op->indices[0]) &&
                 side_by_side(load->source.as_or_throw<Var>(), load->indices[0])
             ? load
             : nullptr;
}

/*! Writing half a byte reads the other half, which another thread may be writing. */
void KernelPrinter::StoreSubByte(const BufferStoreNode* op, const std::string& value) {
  if (!IsLocal(op->buffer)) {
    ThrowAt(span_, "ValueError",
            "found a store of one " + DTypeName(DTypeOf(op->buffer)) + " element of " +
                std::string(op->buffer->name) +
                ", which shares its byte with a neighbour, wanted whole bytes; make the innermost "
                "extent, strides and bounds even, and index the last dimension by the innermost "
                "loop of T.Parallel");
  }
  if (scalars_.count(op->buffer.get())) {
    return Line(Element(op->buffer, op->indices[0]) + " = " + value + ";");
  }
  Line("tl::set_sub_byte(" + Name(op->buffer.get()) + ", " + Print(op->indices[0]) + ", " + value +
       ");");
}

/*! Elements of half a byte are kept in bytes. */
std::string KernelPrinter::StorageType(DLDataType t) {
  const std::string name = TypeName(t);
  return IsSubByte(t) ? "uint8_t" : name;
}

/*!
 * What the program reads in front of a wait for an mbarrier is asked for there: ptxas moves a load
 * of what the kernel does not write behind such waits, to its use, where nothing hides its latency.
 * In loops it is let: there it may ask for what the next step needs.
 */
void KernelPrinter::Visit_(const BindNode* op) {
  analyzer_.BindValue(op);
  const bool loaded = ReadsMemory(op->value);
  if (loaded) loaded_.insert(op->var.get());
  const bool before = std::exchange(loads_here_, awaits_mbarriers_ && loops_ == 0);
  const std::string value = loaded ? PrintValue(op->value) : Print(op->value);
  loads_here_ = before;
  const std::string type = TypeName(op->value->dtype());
  Line("const " + type + " " + names_.Declare(op->var) + " = " + value + ";");
  done_ = op;
}

void KernelPrinter::Visit_(const AllocBufferNode* op) {
  const std::string scope = ScopeOf(op->buffer);
  const DLDataType dtype = DTypeOf(op->buffer);
  const Array<Expr>& shape = BufferOf(op->buffer)->shape;
  const std::string name = names_.Declare(op->buffer);
  if (IsSizedAtLaunch(op->buffer)) return SharedTile(op, name);
  if (shape.size() != 1 || !AsInt(shape[0])) Bug("buffer " + name + " without one constant extent");
  const int64_t size = ToInt(shape[0]);
  const bool packed = IsSubByte(dtype);
  const int64_t units = packed ? (size + 1) / 2 : size;
  const std::string type = StorageType(dtype);
  if (IsInDynamicArray(op->buffer)) {
    SharedArray(type, units, name, "buf_dyn_shmem", ToInt(SharedBegin(op)));
  } else if (scope == "shared") {
    SharedArray(type, units, name, "buf_shmem", static_shared_.at(op->buffer.get()));
  } else if (IsLocal(op->buffer) && size == 1) {
    scalars_.insert(op->buffer.get());
    Line(TypeName(dtype) + " " + name + ";");
  } else if (IsLocal(op->buffer)) {
    const int64_t element = packed ? 1 : dtype.bits * dtype.lanes / 8;
    const int64_t alignment = LocalAlignment(units * element);
    Line((alignment > element ? "alignas(" + std::to_string(alignment) + ") " : "") + "tl::local<" +
         type + ", " + std::to_string(units) + "> " + name + ";");
  } else {
    Bug("buffer " + name + " of scope " + scope);
  }
  done_ = op;
}

void KernelPrinter::SharedArray(const std::string& type, int64_t extent, const std::string& name,
                                const std::string& memory, int64_t offset) {
  Line("auto " + name + " = tl::shared<" + type + ", " + std::to_string(extent) + ">(" + memory +
       " + " + std::to_string(offset) + ");");
}

void KernelPrinter::SharedTile(const AllocBufferNode* op, const std::string& name) {
  const DLDataType dtype = DTypeOf(op->buffer);
  Expr extent = BufferOf(op->buffer)->shape[0];
  if (IsSubByte(dtype)) extent = FloorDivOf(extent + 1, 2);
  Line("auto " + name + " = tl::shared<" + StorageType(dtype) + ">(buf_dyn_shmem + " +
       Print(SharedBegin(op)) + ", " + Print(extent) + ");");
  done_ = op;
}

void KernelPrinter::Visit_(const DeclBufferNode* op) {
  const Var buffer = ViewedBy(op);
  const bool at_address = IsCallTo(op->data, "tirx.reinterpret");
  if (!buffer.defined() && !at_address) {
    Bug("a view " + std::string(op->buffer->name) + " of no buffer");
  }
  const std::string type = StorageType(DTypeOf(op->buffer));
  const std::string pointer =
      at_address ? Print(op->data.as<CallNode>()->args[0]) : Pointer(buffer, MakeInt(0));
  Line("auto " + names_.Declare(op->buffer) + " = tl::view<" + type + ">(" + pointer + ");");
  done_ = op;
}

void KernelPrinter::Visit_(const EvaluateNode* op) {
  if (op->value.as<CallNode>()) {
    Line(PrintValue(op->value) + ";");
  } else if (!AsInt(op->value)) {
    // `float(x);` would declare another x.
    Line("(void)(" + PrintValue(op->value) + ");");
  }
  done_ = op;
}

void KernelPrinter::Visit_(const BreakNode* op) {
  Line("break;");
  done_ = op;
}

void KernelPrinter::Visit_(const ContinueNode* op) {
  Line("continue;");
  done_ = op;
}

}  // namespace tl
