; What tl/ds_read_tr.h declares: reads of shared memory (LDS) that transpose.
;
; They are written in LLVM's own language for `!alias.scope`. LLVM waits for all copies to shared
; memory in front of each access of it that has none (SIInsertWaitcnts), and of calls clang gives it
; to those only that touch nothing but what their arguments point to, which the intrinsics are not
; declared to be. A copy to shared memory is in no scope. Who reads waits by `wait_vmcnt` and a
; barrier.
target triple = "amdgcn-amd-amdhsa"

define <4 x i16> @__tl_ds_read_tr16(ptr addrspace(3) %row) #0 {
  %words = call <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3) %row), !alias.scope !0
  ret <4 x i16> %words
}

define <2 x i32> @__tl_ds_read_tr8(ptr addrspace(3) %row) #0 {
  %words = call <2 x i32> @llvm.amdgcn.ds.read.tr8.b64.v2i32(ptr addrspace(3) %row), !alias.scope !0
  ret <2 x i32> %words
}

define <2 x i32> @__tl_ds_read_tr4(ptr addrspace(3) %row) #0 {
  %words = call <2 x i32> @llvm.amdgcn.ds.read.tr4.b64.v2i32(ptr addrspace(3) %row), !alias.scope !0
  ret <2 x i32> %words
}

declare <4 x i16> @llvm.amdgcn.ds.read.tr16.b64.v4i16(ptr addrspace(3))
declare <2 x i32> @llvm.amdgcn.ds.read.tr8.b64.v2i32(ptr addrspace(3))
declare <2 x i32> @llvm.amdgcn.ds.read.tr4.b64.v2i32(ptr addrspace(3))

attributes #0 = { alwaysinline convergent nounwind }

!0 = !{!1}
!1 = distinct !{!1, !2, !"what no copy to shared memory writes"}
!2 = distinct !{!2, !"ds_read_tr"}
