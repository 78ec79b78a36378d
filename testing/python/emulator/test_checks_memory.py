"""Accesses of undefined memory, outside of buffers, and at odd addresses."""

import pytest

S = "auto s = tl::shared<float, 64>(buf_dyn_shmem + 0);\n"
T = "auto t = tl::shared<float, 64>(buf_dyn_shmem + 256);\nt[tx] = 0;\n"
FRAGMENT = """tl::local<float, 4> c;
for (int i = 0; i < 4; ++i) c[i] = 0;
for (int i = 0; i < 4; ++i) x[4 * tx + i] = c[i];  // now"""
MMA = """alignas(16) tl::local<float, 4> c;
alignas(16) tl::local<half_t, 4> a;
alignas(8) tl::local<half_t, 2> b;
tl::store(c, tl::broadcast<float, 4>(0.0f));
tl::store(a, tl::broadcast<half_t, 4>(half_t(1.0f)));
tl::store(b, tl::broadcast<half_t, 2>(half_t(1.0f)));
tl::mma_sync<16, 8, 8, half_t, half_t, float>(c, a, b);  // now
x[tx] = c[0];"""

UNINITIALIZED = {
    "shared memory": {
        "body": S + "if (tx < 32) s[tx] = y[tx];\n__syncthreads();\nx[tx] = s[tx % 32];  // now",
        "old": "s[tx % 32]",
        "new": "s[tx]",
        "buffer": "4 bytes at s + ",
    },
    "static shared memory": {
        "body": "auto s = tl::shared<float, 32>(tl::static_shared<128>() + 0);\n"
        "if (tx < 32) s[tx] = y[tx];\n__syncthreads();\nx[tx] = s[tx % 32];  // now",
        "old": "tx < 32",
        "new": "tx < 31",
        "buffer": "byte 124 of static shared memory",
    },
    "the padding of a row": {
        "body": S + "if (tx % 4 < 3) s[tx] = y[tx];\n"
        "if (tx % 4 == 3) s[tx] = 0;\n__syncthreads();\n"
        "if (tx < 16) tl::store(x + 4 * tx, tl::load<float, 4>(s + 4 * tx));  // now",
        "old": "if (tx % 4 == 3) s[tx] = 0;",
        "new": "",
        "buffer": "4 bytes at s + 3 ",
    },
    "a fragment": {"body": FRAGMENT, "old": "i < 4", "new": "i < 3", "buffer": "c + 3"},
    "an accumulator": {
        "body": MMA,
        "old": "tl::store(c, tl::broadcast<float, 4>(0.0f));",
        "new": "",
        "buffer": "16 bytes at ",
    },
    "an operand": {
        "body": MMA,
        "old": "tl::store(b, tl::broadcast<half_t, 2>(half_t(1.0f)));",
        "new": "",
        "buffer": "b + 0",
    },
    "a counter without an atomic store": {
        "body": S + "tl::atomic_store<tl::relaxed>(s + tx, 1.0f);\n"
        "tl::atomic_add<tl::relaxed>(s + tx, 1.0f);  // now\nx[tx] = s[tx];",
        "old": "tl::atomic_store<tl::relaxed>(s + tx, 1.0f);",
        "new": "",
        "buffer": "4 bytes at s + ",
    },
    "an array of the iteration before": {
        "body": "for (int i = 0; i < 2; ++i) {\n  tl::local<float, 2> c;\n"
        "  if (i < 2) c[tx % 2] = y[tx];\n  x[tx] = c[tx % 2];  // now\n}",
        "old": "i < 2) c",
        "new": "i < 1) c",
        "buffer": "c + ",
    },
}
BOUNDS = {
    "an element of the next shared buffer": {
        "body": S + T + "s[tx] = y[tx];\n__syncthreads();\nx[tx] = s[tx ^ 1];  // now",
        "old": "s[tx ^ 1]",
        "new": "s[tx + 1]",
        "buffer": "s + 64",
    },
    "a vector across the end": {
        "body": S + T + "s[tx] = y[tx];\n__syncthreads();\n"
        "tl::store(x + 4 * tx, tl::load<float, 4>(s + tx % 16 * 4));  // now",
        "old": "tx % 16 * 4",
        "new": "tx % 16 * 4 + 4",
        "buffer": "s + 64",
    },
    "a vector wider than the rest": {
        "body": S + "auto h = tl::shared<float, 6>(buf_dyn_shmem + 256);\nh[tx % 6] = s[tx] = 1;\n"
        "__syncthreads();\nx[tx] = tl::load<float, 2>(h + tx % 2 * 4).data[0];  // now",
        "old": "tl::load<float, 2>",
        "new": "tl::load<float, 4>",
        "buffer": "16 bytes at h + 4",
    },
    "in front of shared memory": {
        "body": S + "s[tx] = y[tx];\n__syncthreads();\nx[tx] = s[(tx + 63) % 64];  // now",
        "old": "(tx + 63) % 64",
        "new": "tx - 1",
        "buffer": "s - 1",
    },
    "a fragment": {
        "body": FRAGMENT.replace("x[4 * tx + i] = c[i];  // now", "x[tx] = c[i];").replace(
            "c[i] = 0;", "c[i] = 0;  // now"
        ),
        "old": "i < 4",
        "new": "i < 5",
        "buffer": "c + 4",
    },
    "the end of a tensor": {
        "body": "x[tx] = y[192 + tx];  // now",
        "old": "192 + tx",
        "new": "193 + tx",
        "buffer": "argument 1[256]",
    },
    "the front of a tensor": {
        "body": "x[64 * bx + tx] = 1;  // now",
        "old": "64 * bx + tx",
        "new": "64 * bx + tx - 1",
        "buffer": "argument 0[-1]",
    },
    "a copy behind a tensor": {
        "body": S + "if (tx < 16) tl::cp_async_gs<16>(s + 4 * tx, y + 192 + 4 * tx);  // now\n"
        "tl::cp_async_commit();\ntl::cp_async_wait<0>();\n__syncthreads();\nx[tx] = s[tx];",
        "old": "192",
        "new": "196",
        "buffer": "argument 1[256]",
    },
    "a copy to the next buffer": {
        "body": S + T + "tl::cp_async_gs<4>(s + tx, y + tx);  // now\n"
        "tl::cp_async_commit();\ntl::cp_async_wait<0>();\n__syncthreads();\nx[tx] = s[tx];",
        "old": "s + tx",
        "new": "s + tx + 1",
        "buffer": "s + 64",
    },
    "an atomic operation": {
        "body": "tl::atomic_add<tl::relaxed>(x + tx, 1.0f);  // now",
        "old": "x + tx",
        "new": "x + 256 - tx",
        "buffer": "argument 0[256]",
    },
    "a tensor that is only read": {
        "body": "x[tx] = y[tx];  // now",
        "old": "x[tx] = y[tx]",
        "new": "((float*)y)[tx] = x[tx]",
        "buffer": "argument 1[0]",
    },
}


@pytest.mark.parametrize("name", UNINITIALIZED)
def test_undefined(name, check):
    check(kind="uninitialized", **UNINITIALIZED[name])


@pytest.mark.parametrize("name", BOUNDS)
def test_out_of_bounds(name, check):
    check(kind="out-of-bounds", **BOUNDS[name])


def test_a_plain_access_at_an_odd_address(check):
    check(
        body="x[tx] = *(const float*)((const char*)y + 4 * tx);  // now",
        old="4 * tx",
        new="4 * tx + 2",
        kind="misaligned",
        buffer="argument 1",
    )
