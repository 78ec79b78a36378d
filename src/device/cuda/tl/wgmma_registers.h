/*!
 * Lists of the registers of an accumulator, for inline assembly: TL_NAMES_<n> names operands 0 to n
 * - 1, TL_OPERANDS_<n>(kind) gives d[0] to d[n - 1], and TL_WGMMA_SIZES gives each n
 * and the numbers of the operands behind to the macro for its kinds of registers: there are
 * products with n accumulators of float, of 32 bits (int, or two half_t), or of both.
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

#define TL_WGMMA_SIZES(floats, words, both)                                                        \
  words(2, 3, 4, 5, 6, 7, 8, 9, 10) both(4, 5, 6, 7, 8, 9, 10, 11, 12) words(                      \
      6, 7, 8, 9, 10, 11, 12, 13, 14) both(8, 9, 10, 11, 12, 13, 14, 15, 16)                       \
      words(10, 11, 12, 13, 14, 15, 16, 17, 18) both(12, 13, 14, 15, 16, 17, 18, 19, 20) words(    \
          14, 15, 16, 17, 18, 19, 20, 21, 22) both(16, 17, 18, 19, 20, 21, 22, 23, 24)             \
          words(18, 19, 20, 21, 22, 23, 24, 25, 26) both(20, 21, 22, 23, 24, 25, 26, 27, 28)       \
              words(22, 23, 24, 25, 26, 27, 28, 29, 30) both(                                      \
                  24, 25, 26, 27, 28, 29, 30, 31, 32) words(26, 27, 28, 29, 30, 31, 32, 33, 34)    \
                  both(28, 29, 30, 31, 32, 33, 34, 35, 36) words(                                  \
                      30, 31, 32, 33, 34, 35, 36, 37, 38) both(32, 33, 34, 35, 36, 37, 38, 39, 40) \
                      words(34, 35, 36, 37, 38, 39, 40, 41,                                        \
                            42) both(36, 37, 38, 39, 40, 41, 42, 43,                               \
                                     44) words(38, 39, 40, 41, 42, 43, 44, 45,                     \
                                               46) both(40, 41, 42, 43, 44, 45, 46, 47, 48)        \
                          words(42, 43, 44, 45, 46, 47, 48, 49,                                    \
                                50) both(44, 45, 46, 47, 48, 49, 50, 51,                           \
                                         52) words(46, 47, 48, 49, 50, 51, 52, 53,                 \
                                                   54) both(48, 49, 50, 51, 52, 53, 54, 55, 56)    \
                              words(50, 51, 52, 53, 54, 55, 56, 57,                                \
                                    58) both(52, 53, 54, 55, 56, 57, 58, 59,                       \
                                             60) words(54, 55, 56, 57, 58, 59, 60, 61, 62)         \
                                  both(56, 57, 58, 59, 60, 61, 62, 63,                             \
                                       64) words(58, 59, 60, 61, 62, 63, 64, 65,                   \
                                                 66) both(60, 61, 62, 63, 64, 65, 66, 67, 68)      \
                                      words(62, 63, 64, 65, 66, 67, 68, 69,                        \
                                            70) both(64, 65, 66, 67, 68, 69, 70, 71, 72)           \
                                          floats(68, 69, 70, 71, 72, 73, 74, 75,                   \
                                                 76) both(72, 73, 74, 75, 76, 77, 78, 79, 80)      \
                                              floats(76, 77, 78, 79, 80, 81, 82, 83,               \
                                                     84) both(80, 81, 82, 83, 84, 85, 86, 87, 88)  \
                                                  floats(84, 85, 86, 87, 88, 89, 90, 91, 92)       \
                                                      both(88, 89, 90, 91, 92, 93, 94, 95, 96)     \
                                                          floats(92, 93, 94, 95, 96, 97, 98, 99,   \
                                                                 100) both(96, 97, 98, 99, 100,    \
                                                                           101, 102, 103, 104)     \
                                                              floats(100, 101, 102, 103, 104, 105, \
                                                                     106, 107,                     \
                                                                     108) both(104, 105, 106, 107, \
                                                                               108, 109, 110, 111, \
                                                                               112)                \
                                                                  floats(108, 109, 110, 111, 112,  \
                                                                         113, 114, 115,            \
                                                                         116) both(112, 113, 114,  \
                                                                                   115, 116, 117,  \
                                                                                   118, 119, 120)  \
                                                                      floats(116, 117, 118, 119,   \
                                                                             120, 121, 122, 123,   \
                                                                             124) both(120, 121,   \
                                                                                       122, 123,   \
                                                                                       124, 125,   \
                                                                                       126, 127,   \
                                                                                       128)        \
                                                                          floats(124, 125, 126,    \
                                                                                 127, 128, 129,    \
                                                                                 130, 131, 132)    \
                                                                              both(128, 129, 130,  \
                                                                                   131, 132, 133,  \
                                                                                   134, 135, 136)
