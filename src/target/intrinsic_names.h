/*! Names of the intrinsics that rows of targets name; src/op/intrinsics.h has the others. */
#pragma once

namespace tl {

/*! Copies of a thread, commits and waits: LowerAsyncCopy makes them the target's. */
inline constexpr const char* kCpAsync = "tl.cp_async_gs";
inline constexpr const char* kCpAsyncConditional = "tl.cp_async_gs_conditional";
inline constexpr const char* kCpAsyncCommit = "tl.cp_async_commit";
inline constexpr const char* kCpAsyncWait = "tl.cp_async_wait";
/*! The same copies on AMD. */
inline constexpr const char* kLoadLds = "tl.load_lds";
inline constexpr const char* kLoadLdsIf = "tl.load_lds_if";
/*! Commits and waits of stores by TMA, and of MMAs of warp groups. */
inline constexpr const char* kTmaStoreArrive = "tl.tma_store_arrive";
inline constexpr const char* kTmaStoreWait = "tl.tma_store_wait";
inline constexpr const char* kWarpgroupCommit = "tl.warpgroup_commit_batch";
inline constexpr const char* kWarpgroupWait = "tl.warpgroup_wait";
/*! Matrix instructions of a warp. */
inline constexpr const char* kMmaSync = "tl.mma_sync";
inline constexpr const char* kMmaSpSync = "tl.mma_sp_sync";
inline constexpr const char* kMfma = "tl.mfma";
inline constexpr const char* kMfmaMixed = "tl.mfma_mixed";
inline constexpr const char* kMfmaScale = "tl.mfma_scale";
inline constexpr const char* kWmma = "tl.wmma";

}  // namespace tl
