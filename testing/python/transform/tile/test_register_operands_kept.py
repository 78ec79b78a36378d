"""Which products of unpacked weights keep their tile in shared memory, one condition a program."""

import pytest

import tilelang.language as T
from tilelang.layout import Fragment, make_linear_layout

ROWS, HIGH, STEP = 64, 128, 64
TAKEN = 'w = T.sblock_alloc_buffer((128, 64), "float16", scope="local.fragment")'


class Parts:
    """What the statements of one program name, and those that are not the plain ones."""

    def __init__(self, **places):
        self.places = places

    def at(self, place):
        return self.places.get(place, PLAIN[place])(self)


@T.macro
def nothing(p):
    pass


@T.macro
def unpack(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.packed[i, j] * p.scales[i]


@T.macro
def multiply(p):
    T.gemm(p.x, p.w, p.total, transpose_B=True)


PLAIN = {"head": nothing, "make": unpack, "multiply": multiply, "end": nothing}


def product(threads=128, **places):
    """The sums of x and unpacked weights; `places` are other statements than those above."""
    p = Parts(**places)

    @T.prim_func
    def main(
        X: T.Tensor((ROWS, 4 * STEP), "float16"),
        P: T.Tensor((HIGH, 4 * STEP), "int8"),
        S: T.Tensor((HIGH,), "float16"),
        C: T.Tensor((ROWS, HIGH), "float32"),
        numbers: T.Tensor((4,), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            p.x = T.alloc_shared((ROWS, STEP), "float16")
            p.packed = T.alloc_shared((HIGH, STEP), "int8")
            p.scales = T.alloc_shared((HIGH,), "float16")
            p.w = T.alloc_shared((HIGH, STEP), "float16")
            p.total = T.alloc_fragment((ROWS, HIGH), "float32")
            p.P, p.S, p.C, p.numbers = P, S, C, numbers
            p.at("head")
            T.copy(S, p.scales)
            T.clear(p.total)
            for k in T.Pipelined(4, num_stages=2):
                p.k = k
                T.copy(X[0, k * STEP], p.x)
                T.copy(P[0, k * STEP], p.packed)
                p.at("make")
                p.at("multiply")
            p.at("end")
            T.copy(p.total, p.C)

    return main


def lines_of(tile_passes, program):
    passes = ("HoistViews", "Simplify", "ReadNibbles", "RegisterOperands")
    text = tile_passes(program, *passes, arch="sm_90a")["main"].script(show_meta=False)
    return [line.strip() for line in text.splitlines()]


# What the program decides itself.


@T.macro
def producer_registers(p):
    T.annotate_producer_reg_dealloc(24)


@T.macro
def consumer_registers(p):
    T.annotate_consumer_reg_alloc(216)


@T.macro
def roles(p):
    scopes = [T.WSScope(None, {"all": ["end"]})]
    T.annotate_ws_schedule(
        T.WSSchedule(num_warps=8, roles={"all": T.WSRole(0, 8)}, pipelines={}, scopes=scopes)
    )


@T.macro
def end_of_roles(p):
    with T.ws_op("end"):
        T.fill(p.total, 0)


@T.macro
def by_a_group(p):
    with T.ws(0):
        unpack(p)
        multiply(p)


@T.macro
def nobody_waits(p):
    T.wgmma_gemm(p.x, p.w, p.total, transpose_B=True)
    T.wait_wgmma(0)


# What else names the tile.


@T.macro
def a_condition(p):
    if p.w[0, 0] > 3:
        T.fill(p.total, 0)


@T.macro
def an_extent(p):
    for _ in T.serial(T.cast(p.w[0, 0], "int32")):
        T.fill(p.total, 0)


@T.macro
def a_first_number(p):
    for _ in T.serial(T.cast(p.w[0, 0], "int32"), 8):
        T.fill(p.total, 0)


@T.macro
def a_while(p):
    while p.w[0, 0] > 3:
        T.fill(p.total, 0)


@T.macro
def by_another_name(p):
    unpack(p)
    name = T.reshape(p.w, (HIGH * STEP,))
    for n in T.Parallel(HIGH * STEP):
        name[n] += 1


@T.macro
def read_behind(p):
    multiply(p)
    for i, j in T.Parallel(HIGH, STEP):
        p.packed[i, j] = p.w[i, j]


@T.macro
def copied_elsewhere(p):
    unpack(p)
    other = T.alloc_shared((HIGH, STEP), "float16")
    T.copy(p.w, other)


@T.macro
def a_part(p):
    T.gemm(p.x[:, 0:32], p.w[:, 0:32], p.total, transpose_B=True)


@T.macro
def three_axes(p):
    p.w = T.alloc_shared((1, HIGH, STEP), "float16")


@T.macro
def unpack_three_axes(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[0, i, j] = p.packed[i, j] * p.scales[i]


@T.macro
def multiply_three_axes(p):
    T.gemm(p.x, p.w[0, :, :], p.total, transpose_B=True)


# How the tile is made.


@T.macro
def in_a_branch(p):
    if p.numbers[p.k] > 0:
        unpack(p)


@T.macro
def as_wide(p):
    p.wide = T.alloc_shared((HIGH, STEP), "float16")
    T.fill(p.wide, 1)


@T.macro
def of_as_wide(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.wide[i, j] * p.scales[i]


@T.macro
def of_a_tile_that_is_unpacked(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.wide[i, j] = p.packed[i, j]
    of_as_wide(p)


@T.macro
def of_a_fragment_that_others_read(p):
    wide = T.alloc_fragment((HIGH, STEP), "float16")
    other = T.alloc_fragment((HIGH, STEP), "float16")
    T.copy(p.wide, wide)
    for i, j in T.Parallel(HIGH, STEP):
        other[i, j] = wide[i, j] * p.packed[i, j]
    T.copy(wide, p.w)


@T.macro
def by_fragments(p):
    packed = T.alloc_fragment((HIGH, STEP), "int8")
    w = T.alloc_fragment((HIGH, STEP), "float16")
    T.copy(p.packed, packed)
    for i, j in T.Parallel(HIGH, STEP):
        w[i, j] = packed[i, j] * p.scales[i]
    p.fragment = w


@T.macro
def copied(p):
    by_fragments(p)
    T.copy(p.fragment, p.w)


@T.macro
def copied_with_a_keyword(p):
    by_fragments(p)
    T.copy(p.fragment, p.w, coalesced_width=2)


@T.macro
def copied_in_parts(p):
    by_fragments(p)
    T.copy(p.fragment[0:64, 0:STEP], p.w[0:64, 0:STEP])
    T.copy(p.fragment[64:HIGH, 0:STEP], p.w[64:HIGH, 0:STEP])


@T.macro
def copied_to_itself(p):
    unpack(p)
    T.copy(p.w, p.w)


@T.macro
def by_vectors_of_two(p):
    for i, j in T.Parallel(HIGH, STEP, coalesced_width=2):
        p.w[i, j] = p.packed[i, j] * p.scales[i]


@T.macro
def at_a_place_of_the_step(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[(i + p.k) % HIGH, j] = p.packed[i, j]


@T.macro
def by_addresses(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.packed[i, j]
        T.call_extern("void", "change", T.access_ptr(p.w, "rw"), i)


@T.macro
def by_a_function(p):
    unpack(p)
    T.call_extern("void", "change", T.address_of(p.w[0, 0]))


@T.macro
def scales_of_a_reduction(p):
    scales = T.alloc_fragment((HIGH,), "int8")
    T.reduce_max(p.packed, scales, dim=1)
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.packed[i, j] * scales[i]


@T.macro
def scales_of_a_tensor(p):
    scales = T.alloc_fragment((HIGH,), "float16")
    T.copy(p.S, scales)
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.packed[i, j] * scales[i]


@T.macro
def few_elements_of_a_tensor(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.packed[i, j] * p.S[i // 2 + j // 16]


@T.macro
def many_elements_of_a_tensor(p):
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = p.packed[i, j] * p.S[(i + j // 2) // 2]


@T.macro
def fragments_of_a_tensor(p):
    packed = T.alloc_fragment((HIGH, STEP), "int8")
    T.copy(p.P[0, p.k * STEP], packed)
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = packed[i, j]


@T.macro
def fragments_of_fragments_of_a_tensor(p):
    packed = T.alloc_fragment((HIGH, STEP), "int8")
    doubled = T.alloc_fragment((HIGH, STEP), "int8")
    T.copy(p.P[0, p.k * STEP], packed)
    for i, j in T.Parallel(HIGH, STEP):
        doubled[i, j] = packed[i, j] * 2
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = doubled[i, j]


@T.macro
def fragments_with_an_element(p):
    packed = T.alloc_fragment((HIGH, STEP), "int8")
    T.copy(p.packed, packed)
    packed[0, 0] = 1
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = packed[i, j]


@T.macro
def fragments_in_a_layout(p):
    packed = T.alloc_fragment((HIGH, STEP), "int8")
    T.annotate_layout({packed: Fragment((HIGH, STEP), lambda i, j: (i, j))})
    T.copy(p.packed, packed)
    for i, j in T.Parallel(HIGH, STEP):
        p.w[i, j] = packed[i, j]


# The other operand.


@T.macro
def a_loop_by_another_name(p):
    p.name = T.reshape(p.x, (ROWS * STEP,))


@T.macro
def both_by_threads(p):
    unpack(p)
    for i in T.Parallel(ROWS * STEP):
        p.name[i] += 1


@T.macro
def rows_in_their_order(p):
    T.annotate_layout({p.x: make_linear_layout(p.x)})


@T.macro
def bytes_of_numbers(p):
    p.bytes = T.alloc_shared((ROWS, 2 * STEP), "int8")
    p.name = T.view(p.bytes, (ROWS, STEP), "float16")


@T.macro
def multiply_bytes(p):
    T.gemm(p.name, p.w, p.total, transpose_B=True)


# What else names the sums.


@T.macro
def another_name_of_the_sums(p):
    T.fill(T.reshape(p.total, (ROWS * HIGH,)), 0)


@T.macro
def another_product(p):
    multiply(p)
    other = T.alloc_shared((HIGH, STEP), "float16")
    T.fill(other, 1)
    T.gemm(p.x, other, p.total, transpose_B=True)


@T.macro
def square(p):
    p.total = T.alloc_fragment((HIGH, HIGH), "float32")
    p.sum = T.alloc_fragment((HIGH, HIGH), "float32")
    p.y = T.alloc_shared((HIGH, STEP), "float16")
    T.fill(p.y, 1)
    p.u = T.alloc_shared((HIGH, STEP), "float16")
    p.C = T.alloc_shared((HIGH, HIGH), "float32")


@T.macro
def unpack_both(p):
    unpack(p)
    for i, j in T.Parallel(HIGH, STEP):
        p.u[i, j] = p.packed[i, j]


@T.macro
def from_left_and_right(p):
    T.gemm(p.y, p.w, p.total, transpose_B=True)
    T.gemm(p.u, p.y, p.total, transpose_B=True)


@T.macro
def two_from_left_and_right(p):
    T.gemm(p.y, p.w, p.total, transpose_B=True)
    T.gemm(p.u, p.y, p.sum, transpose_B=True)


@T.macro
def their_sum(p):
    for i, j in T.Parallel(HIGH, HIGH):
        p.total[i, j] += p.sum[i, j]


@T.macro
def one_element(p):
    p.C[0, 0] = p.total[0, 0]


@T.macro
def sums_of_a_reduction(p):
    sums = T.alloc_fragment((ROWS,), "float16")
    T.reduce_sum(p.x, sums, dim=1)
    for i, j in T.Parallel(ROWS, HIGH):
        p.total[i, j] += sums[i]


@T.macro
def with_the_other_operand(p):
    for i, j in T.Parallel(ROWS, HIGH):
        p.total[i, j] += p.x[i, j // 2]


@T.macro
def with_a_fragment(p):
    bias = T.alloc_fragment((HIGH,), "float16")
    T.copy(p.S, bias)
    for i, j in T.Parallel(ROWS, HIGH):
        p.total[i, j] += bias[j]


@T.macro
def added(p):
    T.atomic_add(p.C, p.total)


@T.macro
def changed(p):
    for i, j in T.Parallel(ROWS, HIGH):
        p.total[i, j] = T.max(p.total[i, j], 0)


KEPT = {
    "registers of producers": {"head": producer_registers},
    "registers of consumers": {"head": consumer_registers},
    "roles": {"threads": 256, "head": roles, "end": end_of_roles},
    "threads of a warp group": {"threads": 256, "make": nothing, "multiply": by_a_group},
    "a product that nobody waits for": {"multiply": nobody_waits},
    "threads that are no warp group": {"threads": 64},
    "a condition": {"end": a_condition},
    "an extent": {"end": an_extent},
    "a first number": {"end": a_first_number},
    "a condition of a loop": {"end": a_while},
    "another name": {"make": by_another_name},
    "a reader behind": {"multiply": read_behind},
    "a copy to elsewhere": {"make": copied_elsewhere},
    "a part": {"multiply": a_part},
    "three axes": {"head": three_axes, "make": unpack_three_axes, "multiply": multiply_three_axes},
    "made in a branch": {"make": in_a_branch},
    "as wide": {"head": as_wide, "make": of_as_wide},
    "of a tile that is unpacked": {"head": as_wide, "make": of_a_tile_that_is_unpacked},
    "of a fragment that others read": {"head": as_wide, "make": of_a_fragment_that_others_read},
    "a copy with a keyword": {"make": copied_with_a_keyword},
    "copies of parts": {"make": copied_in_parts},
    "a copy to itself": {"make": copied_to_itself},
    "vectors of two": {"make": by_vectors_of_two},
    "a place of the step": {"make": at_a_place_of_the_step},
    "addresses": {"make": by_addresses},
    "a function of the user's": {"make": by_a_function},
    "many elements of a tensor": {"make": many_elements_of_a_tensor},
    "scales of a reduction": {"make": scales_of_a_reduction},
    "fragments of a tensor": {"make": fragments_of_a_tensor},
    "fragments of these": {"make": fragments_of_fragments_of_a_tensor},
    "fragments with an element": {"make": fragments_with_an_element},
    "fragments in a layout": {"make": fragments_in_a_layout},
    "both operands by threads": {"head": a_loop_by_another_name, "make": both_by_threads},
    "a layout of the other operand": {"head": rows_in_their_order},
    "bytes of the other operand": {"head": bytes_of_numbers, "multiply": multiply_bytes},
    "another name of the sums": {"end": another_name_of_the_sums},
    "sums of another product": {"multiply": another_product},
    "sums from left and right": {
        "head": square,
        "make": unpack_both,
        "multiply": from_left_and_right,
    },
    "sums of sums": {
        "head": square,
        "make": unpack_both,
        "multiply": two_from_left_and_right,
        "end": their_sum,
    },
    "one element of the sums": {"end": one_element},
    "sums with a reduction's": {"end": sums_of_a_reduction},
}
CHOSEN = {
    "plain": {},
    "more threads": {"threads": 256},
    "fragments": {"make": copied},
    "scales of a tensor": {"make": scales_of_a_tensor},
    "few elements of a tensor": {"make": few_elements_of_a_tensor},
    "sums with the other operand": {"end": with_the_other_operand},
    "sums with a fragment": {"end": with_a_fragment},
    "sums that are added": {"end": added},
    "sums that change": {"end": changed},
    "two products": {"head": square, "make": unpack_both, "multiply": two_from_left_and_right},
}


@pytest.mark.parametrize("name", KEPT)
def test_a_tile_stays_in_shared_memory(tile_passes, name):
    assert TAKEN not in lines_of(tile_passes, product(**KEPT[name]))


@pytest.mark.parametrize("name", CHOSEN)
def test_a_tile_is_in_registers(tile_passes, name):
    assert TAKEN in lines_of(tile_passes, product(**CHOSEN[name]))
