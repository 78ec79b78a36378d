/*!
 * What the assembly of products is made of. Accumulators are its operands 0 to n - 1, and constants
 * take the numbers up to 127, so that what follows has the same numbers for each n: TL_NAMES_<n>
 * names the accumulators, TL_OPERANDS_<n>(kind) gives d[0] to d[n - 1], TL_PADDING_<n> the
 * constants.
 */
#pragma once

#define TL_NAMES_2 "%0, %1"
#define TL_NAMES_4 TL_NAMES_2 ", %2, %3"
#define TL_NAMES_6 TL_NAMES_4 ", %4, %5"
#define TL_NAMES_8 TL_NAMES_6 ", %6, %7"
#define TL_NAMES_10 TL_NAMES_8 ", %8, %9"
#define TL_NAMES_12 TL_NAMES_10 ", %10, %11"
#define TL_NAMES_14 TL_NAMES_12 ", %12, %13"
#define TL_NAMES_16 TL_NAMES_14 ", %14, %15"
#define TL_NAMES_18 TL_NAMES_16 ", %16, %17"
#define TL_NAMES_20 TL_NAMES_18 ", %18, %19"
#define TL_NAMES_22 TL_NAMES_20 ", %20, %21"
#define TL_NAMES_24 TL_NAMES_22 ", %22, %23"
#define TL_NAMES_26 TL_NAMES_24 ", %24, %25"
#define TL_NAMES_28 TL_NAMES_26 ", %26, %27"
#define TL_NAMES_30 TL_NAMES_28 ", %28, %29"
#define TL_NAMES_32 TL_NAMES_30 ", %30, %31"
#define TL_NAMES_34 TL_NAMES_32 ", %32, %33"
#define TL_NAMES_36 TL_NAMES_34 ", %34, %35"
#define TL_NAMES_38 TL_NAMES_36 ", %36, %37"
#define TL_NAMES_40 TL_NAMES_38 ", %38, %39"
#define TL_NAMES_42 TL_NAMES_40 ", %40, %41"
#define TL_NAMES_44 TL_NAMES_42 ", %42, %43"
#define TL_NAMES_46 TL_NAMES_44 ", %44, %45"
#define TL_NAMES_48 TL_NAMES_46 ", %46, %47"
#define TL_NAMES_50 TL_NAMES_48 ", %48, %49"
#define TL_NAMES_52 TL_NAMES_50 ", %50, %51"
#define TL_NAMES_54 TL_NAMES_52 ", %52, %53"
#define TL_NAMES_56 TL_NAMES_54 ", %54, %55"
#define TL_NAMES_58 TL_NAMES_56 ", %56, %57"
#define TL_NAMES_60 TL_NAMES_58 ", %58, %59"
#define TL_NAMES_62 TL_NAMES_60 ", %60, %61"
#define TL_NAMES_64 TL_NAMES_62 ", %62, %63"
#define TL_NAMES_68 TL_NAMES_64 ", %64, %65, %66, %67"
#define TL_NAMES_72 TL_NAMES_68 ", %68, %69, %70, %71"
#define TL_NAMES_76 TL_NAMES_72 ", %72, %73, %74, %75"
#define TL_NAMES_80 TL_NAMES_76 ", %76, %77, %78, %79"
#define TL_NAMES_84 TL_NAMES_80 ", %80, %81, %82, %83"
#define TL_NAMES_88 TL_NAMES_84 ", %84, %85, %86, %87"
#define TL_NAMES_92 TL_NAMES_88 ", %88, %89, %90, %91"
#define TL_NAMES_96 TL_NAMES_92 ", %92, %93, %94, %95"
#define TL_NAMES_100 TL_NAMES_96 ", %96, %97, %98, %99"
#define TL_NAMES_104 TL_NAMES_100 ", %100, %101, %102, %103"
#define TL_NAMES_108 TL_NAMES_104 ", %104, %105, %106, %107"
#define TL_NAMES_112 TL_NAMES_108 ", %108, %109, %110, %111"
#define TL_NAMES_116 TL_NAMES_112 ", %112, %113, %114, %115"
#define TL_NAMES_120 TL_NAMES_116 ", %116, %117, %118, %119"
#define TL_NAMES_124 TL_NAMES_120 ", %120, %121, %122, %123"
#define TL_NAMES_128 TL_NAMES_124 ", %124, %125, %126, %127"

#define TL_OPERANDS_2(kind) kind(d[0]), kind(d[1])
#define TL_OPERANDS_4(kind) TL_OPERANDS_2(kind), kind(d[2]), kind(d[3])
#define TL_OPERANDS_6(kind) TL_OPERANDS_4(kind), kind(d[4]), kind(d[5])
#define TL_OPERANDS_8(kind) TL_OPERANDS_6(kind), kind(d[6]), kind(d[7])
#define TL_OPERANDS_10(kind) TL_OPERANDS_8(kind), kind(d[8]), kind(d[9])
#define TL_OPERANDS_12(kind) TL_OPERANDS_10(kind), kind(d[10]), kind(d[11])
#define TL_OPERANDS_14(kind) TL_OPERANDS_12(kind), kind(d[12]), kind(d[13])
#define TL_OPERANDS_16(kind) TL_OPERANDS_14(kind), kind(d[14]), kind(d[15])
#define TL_OPERANDS_18(kind) TL_OPERANDS_16(kind), kind(d[16]), kind(d[17])
#define TL_OPERANDS_20(kind) TL_OPERANDS_18(kind), kind(d[18]), kind(d[19])
#define TL_OPERANDS_22(kind) TL_OPERANDS_20(kind), kind(d[20]), kind(d[21])
#define TL_OPERANDS_24(kind) TL_OPERANDS_22(kind), kind(d[22]), kind(d[23])
#define TL_OPERANDS_26(kind) TL_OPERANDS_24(kind), kind(d[24]), kind(d[25])
#define TL_OPERANDS_28(kind) TL_OPERANDS_26(kind), kind(d[26]), kind(d[27])
#define TL_OPERANDS_30(kind) TL_OPERANDS_28(kind), kind(d[28]), kind(d[29])
#define TL_OPERANDS_32(kind) TL_OPERANDS_30(kind), kind(d[30]), kind(d[31])
#define TL_OPERANDS_34(kind) TL_OPERANDS_32(kind), kind(d[32]), kind(d[33])
#define TL_OPERANDS_36(kind) TL_OPERANDS_34(kind), kind(d[34]), kind(d[35])
#define TL_OPERANDS_38(kind) TL_OPERANDS_36(kind), kind(d[36]), kind(d[37])
#define TL_OPERANDS_40(kind) TL_OPERANDS_38(kind), kind(d[38]), kind(d[39])
#define TL_OPERANDS_42(kind) TL_OPERANDS_40(kind), kind(d[40]), kind(d[41])
#define TL_OPERANDS_44(kind) TL_OPERANDS_42(kind), kind(d[42]), kind(d[43])
#define TL_OPERANDS_46(kind) TL_OPERANDS_44(kind), kind(d[44]), kind(d[45])
#define TL_OPERANDS_48(kind) TL_OPERANDS_46(kind), kind(d[46]), kind(d[47])
#define TL_OPERANDS_50(kind) TL_OPERANDS_48(kind), kind(d[48]), kind(d[49])
#define TL_OPERANDS_52(kind) TL_OPERANDS_50(kind), kind(d[50]), kind(d[51])
#define TL_OPERANDS_54(kind) TL_OPERANDS_52(kind), kind(d[52]), kind(d[53])
#define TL_OPERANDS_56(kind) TL_OPERANDS_54(kind), kind(d[54]), kind(d[55])
#define TL_OPERANDS_58(kind) TL_OPERANDS_56(kind), kind(d[56]), kind(d[57])
#define TL_OPERANDS_60(kind) TL_OPERANDS_58(kind), kind(d[58]), kind(d[59])
#define TL_OPERANDS_62(kind) TL_OPERANDS_60(kind), kind(d[60]), kind(d[61])
#define TL_OPERANDS_64(kind) TL_OPERANDS_62(kind), kind(d[62]), kind(d[63])
#define TL_OPERANDS_68(kind) \
  TL_OPERANDS_64(kind), kind(d[64]), kind(d[65]), kind(d[66]), kind(d[67])
#define TL_OPERANDS_72(kind) \
  TL_OPERANDS_68(kind), kind(d[68]), kind(d[69]), kind(d[70]), kind(d[71])
#define TL_OPERANDS_76(kind) \
  TL_OPERANDS_72(kind), kind(d[72]), kind(d[73]), kind(d[74]), kind(d[75])
#define TL_OPERANDS_80(kind) \
  TL_OPERANDS_76(kind), kind(d[76]), kind(d[77]), kind(d[78]), kind(d[79])
#define TL_OPERANDS_84(kind) \
  TL_OPERANDS_80(kind), kind(d[80]), kind(d[81]), kind(d[82]), kind(d[83])
#define TL_OPERANDS_88(kind) \
  TL_OPERANDS_84(kind), kind(d[84]), kind(d[85]), kind(d[86]), kind(d[87])
#define TL_OPERANDS_92(kind) \
  TL_OPERANDS_88(kind), kind(d[88]), kind(d[89]), kind(d[90]), kind(d[91])
#define TL_OPERANDS_96(kind) \
  TL_OPERANDS_92(kind), kind(d[92]), kind(d[93]), kind(d[94]), kind(d[95])
#define TL_OPERANDS_100(kind) \
  TL_OPERANDS_96(kind), kind(d[96]), kind(d[97]), kind(d[98]), kind(d[99])
#define TL_OPERANDS_104(kind) \
  TL_OPERANDS_100(kind), kind(d[100]), kind(d[101]), kind(d[102]), kind(d[103])
#define TL_OPERANDS_108(kind) \
  TL_OPERANDS_104(kind), kind(d[104]), kind(d[105]), kind(d[106]), kind(d[107])
#define TL_OPERANDS_112(kind) \
  TL_OPERANDS_108(kind), kind(d[108]), kind(d[109]), kind(d[110]), kind(d[111])
#define TL_OPERANDS_116(kind) \
  TL_OPERANDS_112(kind), kind(d[112]), kind(d[113]), kind(d[114]), kind(d[115])
#define TL_OPERANDS_120(kind) \
  TL_OPERANDS_116(kind), kind(d[116]), kind(d[117]), kind(d[118]), kind(d[119])
#define TL_OPERANDS_124(kind) \
  TL_OPERANDS_120(kind), kind(d[120]), kind(d[121]), kind(d[122]), kind(d[123])
#define TL_OPERANDS_128(kind) \
  TL_OPERANDS_124(kind), kind(d[124]), kind(d[125]), kind(d[126]), kind(d[127])

#define TL_PADDING_128
#define TL_PADDING_124 TL_PADDING_128 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_120 TL_PADDING_124 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_116 TL_PADDING_120 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_112 TL_PADDING_116 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_108 TL_PADDING_112 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_104 TL_PADDING_108 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_100 TL_PADDING_104 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_96 TL_PADDING_100 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_92 TL_PADDING_96 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_88 TL_PADDING_92 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_84 TL_PADDING_88 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_80 TL_PADDING_84 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_76 TL_PADDING_80 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_72 TL_PADDING_76 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_68 TL_PADDING_72 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_64 TL_PADDING_68 "n"(0), "n"(0), "n"(0), "n"(0),
#define TL_PADDING_62 TL_PADDING_64 "n"(0), "n"(0),
#define TL_PADDING_60 TL_PADDING_62 "n"(0), "n"(0),
#define TL_PADDING_58 TL_PADDING_60 "n"(0), "n"(0),
#define TL_PADDING_56 TL_PADDING_58 "n"(0), "n"(0),
#define TL_PADDING_54 TL_PADDING_56 "n"(0), "n"(0),
#define TL_PADDING_52 TL_PADDING_54 "n"(0), "n"(0),
#define TL_PADDING_50 TL_PADDING_52 "n"(0), "n"(0),
#define TL_PADDING_48 TL_PADDING_50 "n"(0), "n"(0),
#define TL_PADDING_46 TL_PADDING_48 "n"(0), "n"(0),
#define TL_PADDING_44 TL_PADDING_46 "n"(0), "n"(0),
#define TL_PADDING_42 TL_PADDING_44 "n"(0), "n"(0),
#define TL_PADDING_40 TL_PADDING_42 "n"(0), "n"(0),
#define TL_PADDING_38 TL_PADDING_40 "n"(0), "n"(0),
#define TL_PADDING_36 TL_PADDING_38 "n"(0), "n"(0),
#define TL_PADDING_34 TL_PADDING_36 "n"(0), "n"(0),
#define TL_PADDING_32 TL_PADDING_34 "n"(0), "n"(0),
#define TL_PADDING_30 TL_PADDING_32 "n"(0), "n"(0),
#define TL_PADDING_28 TL_PADDING_30 "n"(0), "n"(0),
#define TL_PADDING_26 TL_PADDING_28 "n"(0), "n"(0),
#define TL_PADDING_24 TL_PADDING_26 "n"(0), "n"(0),
#define TL_PADDING_22 TL_PADDING_24 "n"(0), "n"(0),
#define TL_PADDING_20 TL_PADDING_22 "n"(0), "n"(0),
#define TL_PADDING_18 TL_PADDING_20 "n"(0), "n"(0),
#define TL_PADDING_16 TL_PADDING_18 "n"(0), "n"(0),
#define TL_PADDING_14 TL_PADDING_16 "n"(0), "n"(0),
#define TL_PADDING_12 TL_PADDING_14 "n"(0), "n"(0),
#define TL_PADDING_10 TL_PADDING_12 "n"(0), "n"(0),
#define TL_PADDING_8 TL_PADDING_10 "n"(0), "n"(0),
#define TL_PADDING_6 TL_PADDING_8 "n"(0), "n"(0),
#define TL_PADDING_4 TL_PADDING_6 "n"(0), "n"(0),
#define TL_PADDING_2 TL_PADDING_4 "n"(0), "n"(0),

#define TL_REGISTER_float(x) "+f"(x)
#define TL_REGISTER_uint32_t(x) "+r"(x)

/*!
 * The products that a program has: of A from shared memory, from registers, and with half of it
 * stored. Each is the type and number of its accumulator registers and the steps along K that are
 * one assembly statement, TL_WGMMA_STEPS at most. The compiler takes long for each of them, so the
 * code generator names those of its program. Without such a list there are all, of one step.
 */
#ifdef TL_WGMMA_PRODUCTS
#define TL_WGMMA_STEPS 8
#else
#define TL_WGMMA_STEPS 1
// clang-format off
#define TL_WGMMA_EACH(product) \
  product(uint32_t, 2, 1) product(float, 4, 1) product(uint32_t, 4, 1) product(uint32_t, 6, 1) \
  product(float, 8, 1) product(uint32_t, 8, 1) product(uint32_t, 10, 1) product(float, 12, 1) \
  product(uint32_t, 12, 1) product(uint32_t, 14, 1) product(float, 16, 1) \
  product(uint32_t, 16, 1) product(uint32_t, 18, 1) product(float, 20, 1) \
  product(uint32_t, 20, 1) product(uint32_t, 22, 1) product(float, 24, 1) \
  product(uint32_t, 24, 1) product(uint32_t, 26, 1) product(float, 28, 1) \
  product(uint32_t, 28, 1) product(uint32_t, 30, 1) product(float, 32, 1) \
  product(uint32_t, 32, 1) product(uint32_t, 34, 1) product(float, 36, 1) \
  product(uint32_t, 36, 1) product(uint32_t, 38, 1) product(float, 40, 1) \
  product(uint32_t, 40, 1) product(uint32_t, 42, 1) product(float, 44, 1) \
  product(uint32_t, 44, 1) product(uint32_t, 46, 1) product(float, 48, 1) \
  product(uint32_t, 48, 1) product(uint32_t, 50, 1) product(float, 52, 1) \
  product(uint32_t, 52, 1) product(uint32_t, 54, 1) product(float, 56, 1) \
  product(uint32_t, 56, 1) product(uint32_t, 58, 1) product(float, 60, 1) \
  product(uint32_t, 60, 1) product(uint32_t, 62, 1) product(float, 64, 1) \
  product(uint32_t, 64, 1) product(float, 68, 1) product(float, 72, 1) product(uint32_t, 72, 1) \
  product(float, 76, 1) product(float, 80, 1) product(uint32_t, 80, 1) product(float, 84, 1) \
  product(float, 88, 1) product(uint32_t, 88, 1) product(float, 92, 1) product(float, 96, 1) \
  product(uint32_t, 96, 1) product(float, 100, 1) product(float, 104, 1) \
  product(uint32_t, 104, 1) product(float, 108, 1) product(float, 112, 1) \
  product(uint32_t, 112, 1) product(float, 116, 1) product(float, 120, 1) \
  product(uint32_t, 120, 1) product(float, 124, 1) product(float, 128, 1) \
  product(uint32_t, 128, 1)
// clang-format on
#define TL_WGMMA_PRODUCTS(shared, registers, sparse) \
  TL_WGMMA_EACH(shared) TL_WGMMA_EACH(registers) TL_WGMMA_EACH(sparse)
#endif
#define TL_WGMMA_NONE(T, n, steps)
