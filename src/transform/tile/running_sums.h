/*! What a loop over tiles carries from one iteration to the next. */
#pragma once
#include "block_axis.h"

namespace tl {

/*!
 * Whether one iteration over tiles of twice the length makes of what the loop carries what two
 * iterations make, but for rounding. `kernel` is all that may name a buffer of the loop.
 *
 * What a loop carries has to be a maximum m over elements of the tiles (m' is the next one), or a
 * sum of them,
 *   m' = max(m, x[j] for all j),   s' = s + sum over j of t[j],
 * or a sum relative to such a maximum, as of the softmax that Milakov and Gimelshein computed
 * online (arXiv:1805.02867) and of attention:
 *   s' = s * exp(a(m) - a(m')) + sum over j of exp(g(x[j]) - a(m')) * v[j].
 * Two steps of that multiply s by exp(a(m) - a(m')) * exp(a(m') - a(m'')) = exp(a(m) - a(m'')), and
 * the terms of the first one by exp(a(m') - a(m'')), which makes them relative to m''. So x, t, g
 * and v must not depend on what is carried. One maximum has to be there; all else is made anew in
 * each iteration.
 */
bool CarriesSoftmax(const ForNode* loop, const AxisTiles& along, const Stmt& kernel);

}  // namespace tl
