/*!
 * Random numbers of a thread: three generators over a state of kStateWords words.
 *
 * Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", 2011; the seed is the key, the sequence the upper half of the counter, four numbers of the
 * offset one step of its lower half. XORWOW: G. Marsaglia, "Xorshift RNGs", 2003. MRG32k3a: P.
 * L'Ecuyer, "Good parameters and implementations for combined multiple recursive random number
 * generators", 1999. The initial words of the last two are numbers of Philox, and each number of
 * the offset is a step.
 */
#pragma once

#include <tl/exponential.h>
#include <tl/trigonometric.h>

namespace tl {

constexpr int kStateWords = 12;

struct Philox {
  // Words: counter (4), key (2), numbers of this step (4), how many of them are used.
  static TL_DEVICE void init(uint32_t* s, uint64_t seed, uint64_t sequence, uint64_t offset) {
    const uint64_t step = offset / 4;
    s[0] = uint32_t(step);
    s[1] = uint32_t(step >> 32);
    s[2] = uint32_t(sequence);
    s[3] = uint32_t(sequence >> 32);
    s[4] = uint32_t(seed);
    s[5] = uint32_t(seed >> 32);
    s[10] = uint32_t(offset % 4);
    generate(s);
  }
  static TL_DEVICE uint32_t next(uint32_t* s) {
    if (s[10] == 4) {
      if (++s[0] == 0 && ++s[1] == 0 && ++s[2] == 0) ++s[3];
      generate(s);
      s[10] = 0;
    }
    const uint32_t used = s[10]++;
    // Indices that are constants keep the state in registers.
    return used == 0 ? s[6] : used == 1 ? s[7] : used == 2 ? s[8] : s[9];
  }

 private:
  static TL_DEVICE void generate(uint32_t* s) {
    uint32_t a = s[0], b = s[1], c = s[2], d = s[3], k = s[4], l = s[5];
    TL_UNROLL for (int round = 0; round < 10; ++round) {
      const uint64_t p = uint64_t(0xD2511F53u) * a, q = uint64_t(0xCD9E8D57u) * c;
      a = uint32_t(q >> 32) ^ b ^ k;
      c = uint32_t(p >> 32) ^ d ^ l;
      b = uint32_t(q);
      d = uint32_t(p);
      k += 0x9E3779B9u;
      l += 0xBB67AE85u;
    }
    s[6] = a;
    s[7] = b;
    s[8] = c;
    s[9] = d;
  }
};

/*! Words: five of the xorshift, one of the counter. */
struct Xorwow {
  static TL_DEVICE void init(uint32_t* s, uint64_t seed, uint64_t sequence, uint64_t offset) {
    uint32_t source[kStateWords];
    Philox::init(source, seed, sequence, 0);
    TL_UNROLL for (int i = 0; i < 6; ++i) s[i] = Philox::next(source);
    // All zeros in the first five would stay so.
    s[0] |= 1u;
    for (uint64_t i = 0; i < offset; ++i) next(s);
  }
  static TL_DEVICE uint32_t next(uint32_t* s) {
    const uint32_t t = s[0] ^ (s[0] >> 2);
    TL_UNROLL for (int i = 0; i < 4; ++i) s[i] = s[i + 1];
    s[4] = s[4] ^ (s[4] << 4) ^ t ^ (t << 1);
    s[5] += 362437u;
    return s[4] + s[5];
  }
};

/*! Words: the last three numbers of each of the two recurrences. Numbers are below 2^32 - 209. */
struct Mrg32k3a {
  static TL_DEVICE void init(uint32_t* s, uint64_t seed, uint64_t sequence, uint64_t offset) {
    uint32_t source[kStateWords];
    Philox::init(source, seed, sequence, 0);
    TL_UNROLL for (int i = 0; i < 6; ++i) {
      s[i] = uint32_t(Philox::next(source) % (i < 3 ? kModulus1 : kModulus2));
    }
    // Neither recurrence may be all zeros.
    s[0] = s[0] ? s[0] : 1u;
    s[3] = s[3] ? s[3] : 1u;
    for (uint64_t i = 0; i < offset; ++i) next(s);
  }
  static TL_DEVICE uint32_t next(uint32_t* s) {
    const uint64_t x =
        (1403580u * uint64_t(s[1]) + 810728u * uint64_t(kModulus1 - s[0])) % kModulus1;
    const uint64_t y =
        (527612u * uint64_t(s[5]) + 1370589u * uint64_t(kModulus2 - s[3])) % kModulus2;
    s[0] = s[1];
    s[1] = s[2];
    s[2] = uint32_t(x);
    s[3] = s[4];
    s[4] = s[5];
    s[5] = uint32_t(y);
    return uint32_t(x >= y ? x - y : x + kModulus1 - y);
  }

 private:
  static constexpr uint64_t kModulus1 = 4294967087u, kModulus2 = 4294944443u;
};

template <typename Generator>
TL_DEVICE void rng_init(uint32_t* state, uint64_t seed, uint64_t sequence, uint64_t offset) {
  Generator::init(state, seed, sequence, offset);
}
template <typename Generator>
TL_DEVICE uint32_t rng_next(uint32_t* state) {
  return Generator::next(state);
}

/*! Uniform between 0 and 1, without 0, of one number or of 53 bits of two. */
template <typename Generator, typename T>
TL_DEVICE T rng_uniform(uint32_t* state) {
  if constexpr (is_same<T, float>) {
    return float(Generator::next(state)) * 0x1p-32f + 0x1p-33f;
  } else {
    const uint64_t low = Generator::next(state), high = Generator::next(state);
    return double((high << 32 | low) >> 11) * 0x1p-53 + 0x1p-54;
  }
}

/*! Of mean 0 and variance 1: G. Box, M. Muller, "A note on the generation of random normal
 * deviates", 1958, of two uniform numbers. */
template <typename Generator, typename T>
TL_DEVICE T rng_normal(uint32_t* state) {
  const T radius = rng_uniform<Generator, T>(state), angle = rng_uniform<Generator, T>(state);
  return sqrt(T(-2) * log(radius)) * cos(T(6.283185307179586) * angle);
}

}  // namespace tl
