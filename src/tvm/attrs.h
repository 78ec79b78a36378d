/*! Keys of attributes and annotations that passes leave for each other, for the printer and for the
 * host. */
#pragma once
#include <cstdint>

namespace tl {

// Attributes of a function: a program, or a kernel of it.

/*! The name of the function. */
inline constexpr const char* kGlobalSymbol = "global_symbol";
/*! False: pointers are not `__restrict__`. */
inline constexpr const char* kNoAlias = "tirx.noalias";
/*! Attribute of a function: what became of each T.Pipelined, for `kernel.explain()`. */
inline constexpr const char* kPipelines = "tl.pipelines";
/*! Attribute of a function: for each kernel, its plan or why it has none; for `kernel.explain()`.
 */
inline constexpr const char* kWarpRoles = "tl.warp_roles";
/*! Attribute of a kernel: those of its parameters that are tensor maps. */
inline constexpr const char* kTensorMaps = "tl.tensor_maps";
/*! Function attribute: the parameters of a kernel that it writes by tensor maps. */
inline constexpr const char* kTmaWritten = "tl.tma_written";
/*! The number of a kernel among those of its program. */
inline constexpr const char* kKernelNumber = "tl.kernel_number";
/*! Extents of a kernel's grid, of a block and of a cluster. */
inline constexpr const char* kGrid = "tl.grid";
inline constexpr const char* kBlock = "tl.block";
inline constexpr const char* kCluster = "tl.cluster";
/*! A kernel that synchronises its grid, and one that may overlap the kernel before it. */
inline constexpr const char* kCooperative = "tl.cooperative";
inline constexpr const char* kDependent = "tl.dependent";
/*! Dynamic shared memory of a kernel, and what the launch may ask for at most. */
inline constexpr const char* kDynSharedBytes = "tl.dyn_shared_bytes";
inline constexpr const char* kDynSharedLimit = "tl.dyn_shared_limit";
/*! Names of the parameters that a kernel writes. */
inline constexpr const char* kWritten = "tl.written";
/*! The text of a kernel that the user has written. */
inline constexpr const char* kSource = "tl.source";
/*! Conditions on the sizes of a call that hold in a variant (tilelang/engine/variants.py). */
inline constexpr const char* kGuards = "tilelang_guards";
/*! Tensors of the call may begin at any address. */
inline constexpr const char* kAnyAddress = "tilelang_any_address";
/*! Attribute of a function whose gemms and copies have their instructions. */
inline constexpr const char* kSelected = "tl.selected";

// Attributes of statements.

/*! Around a kernel's body, one for each block and thread axis: its extent. */
inline constexpr const char* kThreadExtent = "thread_extent";
/*! Attribute around a kernel's body; its node has the extents of a cluster in blocks, three
 * constants. */
inline constexpr const char* kClusterDims = "cluster_dims";
/*! Attribute with the order in which blocks take tiles, from T.use_swizzle. */
inline constexpr const char* kSwizzle = "threadblock_swizzle_pattern";
/*! Attribute with the number of blocks that a multiprocessor is to hold, from
 * T.annotate_min_blocks_per_sm. */
inline constexpr const char* kMinBlocks = "tl.min_blocks_per_sm";
/*! Attribute with the name of a parameter that others may alias, from T.annotate_restrict_buffers.
 */
inline constexpr const char* kAliased = "tl.aliased_buffer";
/*! Attribute on statements of a kernel, from T.annotate_l2_hit_ratio: its node names a tensor, its
 * value is the share of the accesses to it that persist in L2. */
inline constexpr const char* kL2HitRatio = "tl.l2_hit_ratio";
/*! Attributes around the rest of a kernel: the registers that a thread of a producer or a consumer
 * is to have, their value, or that registers stay as they are. */
inline constexpr const char* kProducerRegisters = "tl.producer_registers";
inline constexpr const char* kConsumerRegisters = "tl.consumer_registers";
inline constexpr const char* kNoSetMaxNReg = "tl.no_set_max_nreg";
/*!
 * Attribute around what consecutive threads run alone, inside of the branch that they take; its
 * node is {first thread, threads}, constants, whole warps. Tile operators in it work with these
 * threads only. Several ranges, {first, threads, first, threads, ..}, run no tile operator. Its
 * value is 1, or kOfBranch where a condition of the program left these threads.
 */
inline constexpr const char* kThreadRange = "tl.thread_range";
inline constexpr int64_t kOfBranch = 0;
/*! Attribute around the body of a range that warp specialisation has made; its node is "producer"
 * or "consumer". */
inline constexpr const char* kWarpRole = "tl.warp_role";
/*! The same for a role of T.annotate_ws_schedule: its name, and as value the registers that a
 * thread of it is to have, 0 for those that it starts with. */
inline constexpr const char* kScheduledRole = "tl.scheduled_role";
/*! Attribute around statements; its node is the name of those that have none. */
inline constexpr const char* kWsOp = "tl.ws_op";
/*! Attribute around statements that want nothing of what is in some shared buffers when they begin;
 * its node names them, Array<Var>. The same as an annotation of a loop. */
inline constexpr const char* kRewrites = "tl.rewrites";
/*! Attribute around a store by TMA for which PlaceAsyncWaits places a wait; its node is {tile,
 * tensor, order}, its value the region of the tensor. */
inline constexpr const char* kStoreWait = "tl.store_wait";
/*! Orders of such a store: nothing depends on when global memory is written; later stores to the
 * tensor do; later stores but for additions do. */
inline constexpr const char* kOrderNone = "none";
inline constexpr const char* kOrderStores = "stores";
inline constexpr const char* kOrderAdditions = "additions";
/*!
 * Attribute around copies from global to shared memory that may be asynchronous: someone commits
 * and waits for them. Its value is a condition; where it is false nobody reads what they write, so
 * they may leave it, or write zeros.
 */
inline constexpr const char* kAsyncCopy = "async_copy";
/*! The attribute's node where the user demands cp.async: what cannot be one is refused. */
inline constexpr const char* kDemanded = "demanded";

// Annotations of a block.

/*! Annotation of a block: for each buffer of mbarriers the arrivals that a phase of each of them
 * needs, Map<Var, Array<IntImm>>. */
inline constexpr const char* kBarrierInit = "barrier_init";
/*! Annotation of a block: what elements outside of a tensor read as, Map<Var, Expr>. */
inline constexpr const char* kSafeValues = "safe_value_map";
/*! Attribute with the user's own C++, from T.Kernel(prelude=..). */
inline constexpr const char* kPrelude = "pragma_import_c";
/*! Annotations of a block: the schedule, and versions of buffers. */
inline constexpr const char* kWsSchedule = "tl.ws_schedule";
inline constexpr const char* kWsDepths = "tl.ws_pipeline_depths";

// Annotations of a loop.

inline constexpr const char* kNumStages = "num_stages";
inline constexpr const char* kUserOrder = "tl_pipeline_order";
inline constexpr const char* kUserStage = "tl_pipeline_stage";
inline constexpr const char* kUserGroup = "tl_pipeline_group";
inline constexpr const char* kPlannedOrder = "software_pipeline_order";
inline constexpr const char* kPlannedStage = "software_pipeline_stage";
inline constexpr const char* kAsyncStages = "software_pipeline_async_stages";
/*! Annotation of a loop whose order and stage a pass has chosen: what for. */
inline constexpr const char* kChosen = "tl_pipeline_chosen";
/*! Beside the user's plan the compiler's own, for comparison; empty if that is a plain loop. */
inline constexpr const char* kDefaultOrder = "software_pipeline_default_order";
inline constexpr const char* kDefaultStage = "software_pipeline_default_stage";
/*! For each statement, why it stays where it is; empty for one that runs ahead. */
inline constexpr const char* kReasons = "software_pipeline_reasons";
/*! Annotation of a loop whose roles hand tiles over: its `Handshakes`. */
inline constexpr const char* kHandshakes = "tl_pipeline_handshakes";
/*! Annotation of a loop: a number that it shares with the loops of other roles which run the same
 * iterations. */
inline constexpr const char* kRoleLoop = "tl.role_loop";
/*! Annotation of a loop over warp groups that run its body each by itself (T.ws(.., each=True)):
 * the number of the first one, whose range is around the loop. */
inline constexpr const char* kInstances = "tl.instances";
/*! Annotation of a loop, or attribute around one: iterations that the C++ compiler puts together.
 */
inline constexpr const char* kUnrollFactor = "pragma_unroll_factor";

// Annotations of an allocation.

/*! Annotation of an AllocBuffer in the dynamic shared array: byte offset in the kernel's dynamic
 * shared array, an expression behind a tile whose extents the launch decides. */
inline constexpr const char* kSharedOffset = "tl.shared_offset";
/*! Annotation beside it of a tile whose extents the launch decides: the offset of its end, which is
 * that of all buffers allocated up to there. */
inline constexpr const char* kSharedEnd = "tl.shared_end";

// Attributes of a tile operator.

/*! Attribute of an operator that one thread runs alone: it elects none. */
inline constexpr const char* kElected = "elected";
/*! The same for an operator that issues copies by one thread: it elects none, and does all else. */
inline constexpr const char* kByOneThread = "by_one_thread";
/*! Attribute of a copy that layout inference has made, from a fragment to the shared tile that
 * statements want it in, or back. */
inline constexpr const char* kConverts = "converts";
/*! Attribute of tl.tileop.gemm: who waits for the MMA. Absent: the operator itself;
 * kNobodyWaits: a tl.tileop.wgmma_wait further on. */
inline constexpr const char* kWgWait = "wg_wait";
inline constexpr int64_t kNobodyWaits = -1;
/*! Attribute of a release: how many blocks of the cluster it tells. */
inline constexpr const char* kClusterBlocks = "blocks";
/*! Attribute of operators, and annotation of parallel loops, on a tensor that has a layout
 * (T.annotate_layout): its name. */
inline constexpr const char* kPlacedTensor = "tl.placed_tensor";
/*! Annotation of a loop and keyword of an operator: its name. */
inline constexpr const char* kWsId = "tl.ws_id";
/*! The instructions that make a gemm or a copy, and why better ones do not: what SelectInstructions
 * decides (gemm_instruction.h, copy_instruction.h). */
inline constexpr const char* kInstruction = "instruction";
inline constexpr const char* kRejected = "rejected";

}  // namespace tl
