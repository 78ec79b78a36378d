"""Vector types by name, ``T.float16x2`` to ``T.float4_e2m1fnx64``.

Written out so that editors and type checkers know the names.
"""

from tilelang.language import dtypes as _dtypes
from tilelang.language.dtypes import dtype as _dtype


def _vectors(element: _dtype) -> tuple[_dtype, _dtype, _dtype, _dtype, _dtype, _dtype]:
    two, four, eight, sixteen, thirty_two, sixty_four = (
        element.with_lanes(lanes) for lanes in (2, 4, 8, 16, 32, 64)
    )
    return two, four, eight, sixteen, thirty_two, sixty_four


int4x2, int4x4, int4x8, int4x16, int4x32, int4x64 = _vectors(_dtypes.int4)
int8x2, int8x4, int8x8, int8x16, int8x32, int8x64 = _vectors(_dtypes.int8)
int16x2, int16x4, int16x8, int16x16, int16x32, int16x64 = _vectors(_dtypes.int16)
int32x2, int32x4, int32x8, int32x16, int32x32, int32x64 = _vectors(_dtypes.int32)
int64x2, int64x4, int64x8, int64x16, int64x32, int64x64 = _vectors(_dtypes.int64)
uint4x2, uint4x4, uint4x8, uint4x16, uint4x32, uint4x64 = _vectors(_dtypes.uint4)
uint8x2, uint8x4, uint8x8, uint8x16, uint8x32, uint8x64 = _vectors(_dtypes.uint8)
uint16x2, uint16x4, uint16x8, uint16x16, uint16x32, uint16x64 = _vectors(_dtypes.uint16)
uint32x2, uint32x4, uint32x8, uint32x16, uint32x32, uint32x64 = _vectors(_dtypes.uint32)
uint64x2, uint64x4, uint64x8, uint64x16, uint64x32, uint64x64 = _vectors(_dtypes.uint64)
boolx2, boolx4, boolx8, boolx16, boolx32, boolx64 = _vectors(_dtypes.bool)
float16x2, float16x4, float16x8, float16x16, float16x32, float16x64 = _vectors(_dtypes.float16)
(
    bfloat16x2,
    bfloat16x4,
    bfloat16x8,
    bfloat16x16,
    bfloat16x32,
    bfloat16x64,
) = _vectors(_dtypes.bfloat16)
float32x2, float32x4, float32x8, float32x16, float32x32, float32x64 = _vectors(_dtypes.float32)
tfloat32x2, tfloat32x4, tfloat32x8, tfloat32x16, tfloat32x32, tfloat32x64 = _vectors(
    _dtypes.tfloat32
)
float64x2, float64x4, float64x8, float64x16, float64x32, float64x64 = _vectors(_dtypes.float64)
(
    float8_e4m3x2,
    float8_e4m3x4,
    float8_e4m3x8,
    float8_e4m3x16,
    float8_e4m3x32,
    float8_e4m3x64,
) = _vectors(_dtypes.float8_e4m3)
(
    float8_e4m3fnx2,
    float8_e4m3fnx4,
    float8_e4m3fnx8,
    float8_e4m3fnx16,
    float8_e4m3fnx32,
    float8_e4m3fnx64,
) = _vectors(_dtypes.float8_e4m3fn)
(
    float8_e4m3fnuzx2,
    float8_e4m3fnuzx4,
    float8_e4m3fnuzx8,
    float8_e4m3fnuzx16,
    float8_e4m3fnuzx32,
    float8_e4m3fnuzx64,
) = _vectors(_dtypes.float8_e4m3fnuz)
(
    float8_e4m3b11fnuzx2,
    float8_e4m3b11fnuzx4,
    float8_e4m3b11fnuzx8,
    float8_e4m3b11fnuzx16,
    float8_e4m3b11fnuzx32,
    float8_e4m3b11fnuzx64,
) = _vectors(_dtypes.float8_e4m3b11fnuz)
(
    float8_e3m4x2,
    float8_e3m4x4,
    float8_e3m4x8,
    float8_e3m4x16,
    float8_e3m4x32,
    float8_e3m4x64,
) = _vectors(_dtypes.float8_e3m4)
(
    float8_e5m2x2,
    float8_e5m2x4,
    float8_e5m2x8,
    float8_e5m2x16,
    float8_e5m2x32,
    float8_e5m2x64,
) = _vectors(_dtypes.float8_e5m2)
(
    float8_e5m2fnuzx2,
    float8_e5m2fnuzx4,
    float8_e5m2fnuzx8,
    float8_e5m2fnuzx16,
    float8_e5m2fnuzx32,
    float8_e5m2fnuzx64,
) = _vectors(_dtypes.float8_e5m2fnuz)
(
    float8_e8m0fnux2,
    float8_e8m0fnux4,
    float8_e8m0fnux8,
    float8_e8m0fnux16,
    float8_e8m0fnux32,
    float8_e8m0fnux64,
) = _vectors(_dtypes.float8_e8m0fnu)
(
    float6_e2m3fnx2,
    float6_e2m3fnx4,
    float6_e2m3fnx8,
    float6_e2m3fnx16,
    float6_e2m3fnx32,
    float6_e2m3fnx64,
) = _vectors(_dtypes.float6_e2m3fn)
(
    float6_e3m2fnx2,
    float6_e3m2fnx4,
    float6_e3m2fnx8,
    float6_e3m2fnx16,
    float6_e3m2fnx32,
    float6_e3m2fnx64,
) = _vectors(_dtypes.float6_e3m2fn)
(
    float4_e2m1fnx2,
    float4_e2m1fnx4,
    float4_e2m1fnx8,
    float4_e2m1fnx16,
    float4_e2m1fnx32,
    float4_e2m1fnx64,
) = _vectors(_dtypes.float4_e2m1fn)
