// C = A * B over four tiles along K, copied to shared memory one ahead, three copies a tile; each of
// two wavefronts has 16 of 32 rows. B is by columns, of which there are 12 of 16.
#include <tl/common.h>
#include <tl/mfma.h>
#include <tl/vmem.h>

extern "C" __global__ void lds_gemm(const half_t* __restrict__ A, const half_t* __restrict__ B, float* __restrict__ C) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto A_shared = tl::shared<half_t, 1024>(buf_dyn_shmem + 0);
  auto B_shared = tl::shared<half_t, 512>(buf_dyn_shmem + 2048);
  const int tx = threadIdx.x, lane = tx % 64, wave = tx / 64, at = tx * 2;
  const tl::buffer_resource columns = tl::make_buffer_resource(B, 12 * 64 * 2);
  const tl::buffer_resource rows = tl::make_buffer_resource(C, 30 * 16 * 4);
  tl::local<half_t, 4> a;
  tl::local<half_t, 4> b;
  tl::local<float, 4> c;
  for (int i = 0; i < 4; ++i) {
    c[i] = 0.0f;
  }
  for (int k = -1; k < 4; ++k) {
    const int next = k + 1, stage = next % 2;
    if (next < 4) {
      tl::global_load_lds<4>(A_shared + stage * 512 + wave * 128, A + at / 16 * 64 + next * 16 + at % 16);  // upper rows
      tl::global_load_lds<4>(A_shared + stage * 512 + 256 + wave * 128, A + (at / 16 + 16) * 64 + next * 16 + at % 16);  // lower rows
      tl::buffer_load_lds<4>(B_shared + stage * 256 + wave * 128, columns, (at / 16 * 64 + next * 16 + at % 16) * 2);  // columns
    }
    if (k < 0) continue;
    if (k < 3) {
      tl::wait_vmcnt<3>();
    } else {
      tl::wait_vmcnt<0>();
    }
    __syncthreads();  // the tile is there
    tl::store(a + 0, tl::load<half_t, 4>(A_shared + k % 2 * 512 + (wave * 16 + lane % 16) * 16 + lane / 16 * 4));  // use A
    tl::store(b + 0, tl::load<half_t, 4>(B_shared + k % 2 * 256 + lane % 16 * 16 + lane / 16 * 4));  // use B
    tl::mfma<16, 16, 16, half_t, float>(c, a, b);
    __syncthreads();  // the tile is used
  }
  for (int i = 0; i < 4; ++i) {
    tl::buffer_store<float, 1>(rows, ((wave * 16 + lane / 16 * 4 + i) * 16 + lane % 16) * 4, tl::vec<float, 1>{c[i]});  // result
  }
}
