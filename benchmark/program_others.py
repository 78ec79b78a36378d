"""The programs of testing/python/programs and examples that are no attention: recurrences, work on
rows, products."""

import functools

import torch
from common import example
from program_cases import (
    FLOAT,
    HALF,
    TARGET,
    Case,
    Program,
    compiled,
    module,
    normal,
    nothing,
)

import tilelang


def chunk_scan() -> Program:
    own, heads, d_state, width = example("chunk_scan"), 640, 128, 64
    roles = example("chunk_scan_roles")
    blocks = roles.processors()

    def case(kernels, device, length):
        x = normal(length, heads, width, device=device)
        b, c = ((torch.randn(length, d_state, device=device) / 8).half() for _ in range(2))
        dt, a = torch.rand(length, heads, device=device), -torch.rand(heads, device=device) / 4
        y, last = torch.empty_like(x), nothing(heads, d_state, width, device=device)
        scores = nothing(length, own.CHUNK, device=device, dtype=x.dtype)
        counts = torch.zeros(blocks + 1, roles.HEADS, device=device, dtype=torch.int32)

        def ours():
            kernels[0](b, c, scores)
            kernels[1](x, dt, a, b, c, scores, y, last, counts)
            return [y, last]

        return Case(ours, lambda: own.reference(x, dt, a, b, c))

    def work(length):
        # A row of a chunk by a chunk's columns, twice; by a state and into one.
        per_row = 2.0 * (64 * d_state + 64 * width + 2 * d_state * width)
        return heads * length * per_row, 2.0 * HALF * length * heads * width

    return Program(
        "Mamba-2 chunk scan",
        [
            *(own.chunk_scores, roles.schedule, roles.Tiles.__init__, roles.load),
            *(roles.ask_for_steps, roles.sum_up, roles.keep, roles.step),
            *(roles.hand_over, roles.take_over),
            *(roles.part_of, roles.scan, roles.chunk_scan_by_roles),
        ],
        [
            compiled(own.chunk_scores, d_state=d_state),
            compiled(roles.chunk_scan_by_roles, heads, blocks, d_state=d_state, width=width),
        ],
        case,
        {"length": 139},
        {"length": 4096},
        work,
    )


def chunk_scan_backward() -> Program:
    own, heads, d_state, width = example("chunk_scan_backward"), 640, 128, 64
    blocks = own.roles.processors()

    def case(kernels, device, length):
        x, d_y = (normal(length, heads, width, device=device) for _ in range(2))
        b, c = ((torch.randn(length, d_state, device=device) / 8).half() for _ in range(2))
        dt, a = torch.rand(length, heads, device=device), -torch.rand(heads, device=device) / 4
        tensors = x, dt, a, b, c
        d_last = torch.randn(heads, d_state, width, device=device)
        room = own.room_of(x, c, blocks, nothing)
        results = [torch.full_like(x, torch.nan), torch.full_like(dt, torch.nan)]
        results += [torch.empty_like(t, dtype=torch.float32) for t in (a, b, c)]

        def reference():
            leaves = [t.double().requires_grad_() for t in tensors]
            return torch.autograd.grad(
                own.reference(*leaves), leaves, (d_y.double(), d_last.double())
            )

        return Case(lambda: own.run(kernels, tensors, d_y, d_last, room, results), reference)

    def work(length):
        # A row into two states, and times them three times; dY by the rows of a chunk, and weights
        # by dY. The weights of B and C are products for all heads at a time.
        per_row = 2.0 * (5 * d_state * width + 2 * 64 * width)
        return heads * length * per_row, 3.0 * HALF * length * heads * width

    return Program(
        "Mamba-2 chunk scan's gradients",
        [
            *(own.sum_up_steps, own.prepare, own.chunk_states, own.sum_up_reverse),
            *(own.begin_reverse, own.target_reverse),
            *(own.reverse_scan, own.load, own.store_last_sums, own.end_sums),
            *(own.factors_by_rows, own.factors_by_columns),
            *(own.by_state, own.of_states, own.by_rows_and_columns, own.weights_of_head),
            *(
                own.sum_by_states,
                own.sum_products,
                own.weights,
                own.sum_weights,
                own.time_gradients,
            ),
        ],
        [
            compiled(own.prepare, heads, d_state),
            compiled(own.chunk_states, heads),
            compiled(own.reverse_scan, heads, blocks),
            compiled(own.weights, heads, 160),
            compiled(own.sum_weights),
            compiled(own.time_gradients, heads),
        ],
        case,
        {"length": 139},
        {"length": 4096},
        work,
    )


def delta_rule(channels: bool) -> Program:
    rule, heads, size, chunk = example("delta_rule"), 256, 128, 64
    own = example("kda_roles" if channels else "delta_rule_roles")

    def case(kernels, device, length):
        q, k, v, beta = rule.inputs(heads, length, size, size, device)
        gates = (length, heads, size) if channels else (length, heads)
        gate = -torch.rand(gates, device=device) / 8
        out = nothing(length, heads, size, device=device)

        def ours():
            kernels[0](q, k, v, gate, beta, out)
            return [out]

        return Case(ours, lambda: [rule.reference(q, k, v, gate, beta)])

    def work(length):
        # Three products with the state, two of rows of the chunk, one of them by the updates, and
        # the triangular system.
        per_row = 2.0 * (3 * size * size + 3 * chunk * size + chunk * size / 2)
        moved = 3.0 * HALF + FLOAT * (1 + channels)
        return heads * length * per_row, moved * length * heads * size

    if channels:
        program = own.kda
        sources = [
            *(own.kda, own.Slots.__init__, own.Rows.__init__, own.arrive, own.load_rows),
            *(own.load_values, own.follow, own.decay_half, own.decay_rows, own.prepare),
            *(own.join_decays, own.update, own.step, own.store_columns),
            *(rule.invert, rule.invert_blocks, rule.join_below),
        ]
    else:
        program = own.delta_rule_by_roles
        sources = [
            *(own.delta_rule_by_roles, own.schedule, own.Tiles.__init__, own.System.__init__),
            *(own.arrive, own.load_rows, own.load_values, own.multiply, own.find_system),
            *(own.corrections, own.keep, own.prepare),
            *(own.update, own.begin_output, own.end_output, own.chain),
            *(rule.invert_by_warps, rule.solve_rows, rule.join_eights, rule.join_by_warps),
        ]
    return Program(
        "KDA" if channels else "gated delta rule",
        sources,
        [compiled(program, heads, size, size)],
        case,
        {"length": 135},
        {"length": 4096},
        work,
        bound=2e-2,
    )


def delta_rule_backward(channels: bool) -> Program:
    rule, heads, size, chunk = example("delta_rule"), 256, 128, 64
    own = example("kda_backward_roles" if channels else "delta_rule_backward_roles")

    def case(kernels, device, length):
        q, k, v, beta = rule.inputs(heads, length, size, size, device)
        gates = (length, heads, size) if channels else (length, heads)
        gate = -torch.rand(gates, device=device) / 8
        d_out = torch.randn_like(v)

        def reference():
            leaves = [t.double().requires_grad_() for t in (q, k, v, gate, beta)]
            return torch.autograd.grad(rule.reference(*leaves), leaves, d_out.double())

        return Case(lambda: own.backward(q, k, v, gate, beta, d_out, kernels, chunk), reference)

    def work(length):
        # Products with states: two of the forward again, three for the states' gradients, one for
        # dq and two for dk. Eleven of the chunk's rows with each other, and the triangular system.
        per_row = 2.0 * (8 * size * size + 11 * chunk * size + chunk * size / 2)
        moved = 7.0 * HALF + 2.0 * FLOAT * channels
        return heads * length * per_row, moved * length * heads * size

    behind, forward = example("delta_rule_backward"), example("delta_rule_roles")
    sources = [
        *(rule.off_zero, rule.invert_by_warps, rule.solve_rows),
        *(rule.join_eights, rule.join_by_warps),
        *(forward.arrive, own.states, own.prepare, own.corrections),
        *(own.chain, own.update, own.load_values, own.store_turned, own.gradients),
    ]
    if channels:
        one, rows = example("kda_backward"), example("kda_roles")
        sources += [
            *(own.Slots.__init__, own.Chain.__init__, own.store_factor, rows.Rows.__init__),
            *(forward.schedule, forward.barriers_of, behind.store),
            *(rows.load_rows, rows.decay_rows, rows.decay_half),
            *(one.decay_keys_and_queries, one.find_updates, one.find_slopes, one.of_queries),
            *(one.of_keys, one.store_slopes, one.enter_chunk, one.multiply_halves, one.end_states),
            *(one.accumulators, one.begin),
            *(own.Loaded.__init__, own.Given.__init__, own.load_tile),
            *(own.load_tiles, own.sum_gates, own.move, own.wait_for, own.reverse),
        ]
    else:
        sources += [
            *(own.Tiles.__init__, own.System.__init__, own.load_keys, own.load_gates),
            *(own.find_gates, forward.multiply, forward.schedule, forward.barriers_of),
            *(own.Inputs.__init__, own.Passed.__init__, own.load_tile, own.load_chunk),
            *(own.weigh, own.find_dv, own.sum_states, own.reverse, own.of_queries),
            *(own.sum_rows, own.of_state_behind, own.find_slopes, own.of_dv, own.of_keys),
            own.gate_sums,
        ]
    programs = [compiled(own.states, heads, size, size)]
    programs.append(compiled(own.gradients, heads, size, size))
    if not channels:
        programs.append(compiled(own.gate_sums, heads, chunk, size))
    return Program(
        "gradients of KDA" if channels else "gradients of the gated delta rule",
        sources,
        programs,
        case,
        {"length": 135},
        {"length": 4096},
        work,
        bound=2e-2,
    )


def streams(length, hidden, device):
    """The state of streams, weights and biases of hyper-connections, and their results."""
    own = example("hyper_connections")
    count = own.STREAMS
    x = normal(length, count, hidden, device=device, dtype=torch.bfloat16)
    w = normal(32, count * hidden, device=device, dtype=torch.float32) / 16
    layer = nothing(length, hidden, device=device, dtype=x.dtype)
    shapes = (count,), (count, count), (32,), ()
    saved = [nothing(length, *s, device=device) for s in shapes]
    return x, w, torch.randn(32, device=device), layer, *saved


def connections_before(clusters: bool = False) -> Program:
    own, hidden = example("hyper_connections"), 4096

    def case(kernels, device, length):
        x, w, bias, *results = streams(length, hidden, device)

        def ours():
            kernels[0](x, w, bias, *results)
            return results[:3]

        return Case(ours, lambda: own.reference(x, w, bias))

    by_clusters = example("hyper_connections_clusters")
    kernel = compiled(own.pre, hidden, step=64, num_stages=4)
    sources = [own.pre, own.balance]
    if clusters:
        kernel = compiled(by_clusters.pre, hidden)
        roles = [
            getattr(by_clusters, name) for name in ("load", "multiply", "send", "gather", "weigh")
        ]
        others = [by_clusters.Slots.__init__, by_clusters.arrive, by_clusters.load_weights]
        sources = [by_clusters.pre, *others, *roles, by_clusters.balance_all, own.balance]
    return Program(
        "mHC pre, by clusters" if clusters else "mHC pre",
        sources,
        [kernel],
        case,
        {"length": 37},
        {"length": 16384},
        # The product is small: of 32 columns.
        lambda length: (0.0, (own.STREAMS + 1.0) * HALF * length * hidden),
        bound=1e-2,
    )


def connections_behind() -> Program:
    own, hidden = example("hyper_connections"), 4096

    def case(kernels, device, length):
        x, _, _, layer, gate, mix, *_ = streams(length, hidden, device)
        for t in (layer, gate, mix):
            t.normal_()
        out = torch.empty_like(x)

        def ours():
            kernels[0](x, layer, gate, mix, out)
            return [out]

        return Case(ours, lambda: [own.reference_post(x, layer, gate, mix)])

    return Program(
        "mHC post",
        [own.post],
        [compiled(own.post, hidden, step=1024, threads=128)],
        case,
        {"length": 37},
        {"length": 16384},
        lambda length: (0.0, (2 * own.STREAMS + 1.0) * HALF * length * hidden),
    )


def normalise() -> Program:
    own, width = module("test_normalise"), 4096

    def case(kernels, device, length):
        bf16 = torch.bfloat16
        x, residual = (normal(length, width, device=device, dtype=bf16) for _ in range(2))
        weight, bias = torch.randn(2, width, device=device)
        h, y = torch.empty_like(x), torch.empty_like(x)
        mean, scale = (torch.empty(length, device=device) for _ in range(2))

        def ours():
            kernels[0](x, residual, weight, bias, h, y, mean, scale)
            return [y, h]

        def layer_norm(total, *more):
            return torch.nn.functional.layer_norm(total, (width,), *more, eps=own.EPS)

        def baseline():
            total = x + residual
            return [layer_norm(total, weight.to(bf16), bias.to(bf16)), total]

        def reference():
            total = x.double() + residual.double()
            return [layer_norm(total, weight.double(), bias.double()), total]

        return Case(ours, reference, baseline)

    return Program(
        "layer norm with a residual",
        [own.forward],
        [compiled(own.forward, width, rows=2, threads=256)],
        case,
        {"length": 11},
        {"length": 16384},
        lambda length: (0.0, 4.0 * HALF * length * width),
        bound=1e-2,
    )


def normalise_backward() -> Program:
    own, width = module("test_normalise"), 4096
    blocks = 2 * example("norm_residual").processors()

    def case(kernels, device, length):
        h, dy = (normal(length, width, device=device, dtype=torch.bfloat16) for _ in range(2))
        weight, bias = torch.randn(2, width, device=device)
        variance, mean = torch.var_mean(h.float(), dim=1, correction=0)
        mean, scale = mean.contiguous(), (variance + own.EPS).rsqrt()
        dh = nothing(length, width, device=device)
        sums = torch.empty(2, width, device=device)

        def ours():
            sums.zero_()
            kernels[0](h, weight, mean, scale, dy, dh, *sums)
            return [dh, *sums]

        def reference():
            leaves = [t.double().requires_grad_() for t in (h, weight, bias)]
            y = torch.nn.functional.layer_norm(leaves[0], (width,), *leaves[1:], eps=own.EPS)
            return torch.autograd.grad(y, leaves, dy.double())

        def baseline():
            weights = [t.to(h.dtype) for t in (weight, bias)]
            given = (dy, h, [width], mean[:, None], scale[:, None], *weights, [True] * 3)
            return torch.ops.aten.native_layer_norm_backward(*given)

        return Case(ours, reference, baseline)

    return Program(
        "layer norm's gradients",
        [own.backward],
        [compiled(own.backward, width, rows=2, threads=512, blocks=blocks)],
        case,
        {"length": 11},
        {"length": 16384},
        lambda length: (0.0, (2.0 * HALF + FLOAT) * length * width),
        bound=1e-2,
    )


def rotary() -> Program:
    own, depth, dim = module("test_rotary"), 4096, 128

    def case(kernels, device, tokens, heads):
        x = normal(tokens, depth, device=device)
        w = normal(depth, heads * dim, device=device) / depth**0.5
        angles = torch.randn(tokens, dim // 2, device=device)
        cos, sin = angles.cos(), angles.sin()
        q = nothing(tokens, heads, dim, device=device, dtype=x.dtype)

        def ours():
            kernels[0](x, w, cos, sin, q)
            return [q]

        def baseline():
            first, second = (x @ w).view(tokens, heads, dim).chunk(2, dim=2)
            c, s = cos[:, None], sin[:, None]
            halves = (first * c - second * s, second * c + first * s)
            return [torch.cat(halves, dim=-1).half()]

        return Case(ours, lambda: [own.reference(x, w, cos, sin)], baseline)

    return Program(
        "projection with RoPE",
        [own.project_and_rotate],
        [
            compiled(
                *(own.project_and_rotate, depth),
                rows=256,
                dim=dim,
                step=64,
                threads=256,
                num_stages=4,
            )
        ],
        case,
        {"tokens": 77, "heads": 3},
        {"tokens": 8192, "heads": 32},
        lambda tokens, heads: (
            2.0 * tokens * depth * heads * dim,
            HALF * 1.0 * (tokens * depth + (tokens + depth) * heads * dim),
        ),
    )


def grouped_top_k() -> Program:
    own, groups, per_group, best, k = example("routing"), 8, 32, 4, 8

    def case(kernels, device, length):
        logits = torch.randn(length, groups * per_group, device=device)
        bias = torch.randn(groups * per_group, device=device) / 4
        weights = nothing(length, k, device=device)
        experts = torch.full((length, k), -1, dtype=torch.int32, device=device)

        def ours():
            kernels[0](logits, bias, weights, experts)
            return [weights, experts]

        def torch_route(logits, bias):
            scores = logits.sigmoid()
            choice = (scores + bias).view(len(logits), groups, per_group)
            worth = choice.topk(2, dim=2).values.sum(2)
            seen = torch.zeros_like(worth, dtype=torch.bool)
            seen.scatter_(1, worth.topk(best, dim=1).indices, True)
            choice = choice.masked_fill(~seen[:, :, None], -torch.inf).flatten(1)
            chosen = choice.topk(k, dim=1).indices
            found = scores.gather(1, chosen)
            # Scores that are rounded in another way may name another one of two equal experts.
            return [found / found.sum(1, keepdim=True)]

        return Case(
            ours,
            lambda: own.reference(logits, bias, groups, best, k),
            lambda: torch_route(logits, bias),
        )

    return Program(
        "routing by grouped top-k",
        [
            *(own.find, own.largest_of, own.replace, own.keep_best, own.take_largest),
            *(own.best_two, own.choose, own.route),
        ],
        [compiled(own.route, groups, per_group, best, k)],
        case,
        {"length": 21},
        {"length": 32768},
        lambda length: (0.0, FLOAT * 1.0 * length * (groups * per_group + 2 * k)),
    )


def dequantised_gemm(rows: int, m: int) -> Program:
    own, group, width = module("test_dequantised_gemm"), 128, 8192
    few = rows < 128
    tile = {
        "rows": rows,
        "columns": 64 if few else 128,
        "step": 128,
        "threads": 128 if few else 256,
        "num_stages": 4 if few else 2,
        # Few rows make few blocks: of these, two share a multiprocessor.
        "split": 2 if few else 1,
    }

    def case(kernels, device, m, n, k):
        a = normal(m, k, device=device)
        packed, scales, weights = own.quantised(n, k, group, device)
        c = nothing(m, n, device=device)

        def ours():
            if tile["split"] > 1:
                c.zero_()
            kernels[0](a, packed, scales, c)
            return [c]

        return Case(ours, lambda: [a.double() @ weights.double().T], lambda: [a @ weights.T])

    return Program(
        f"GEMM with weights of 4 bits, {m} rows",
        [own.low_bits, own.scaled_by, own.dequantised_gemm],
        [lambda m, n, k: compiled(own.dequantised_gemm, group, n, k, **tile)()],
        case,
        {"m": 67, "n": 45, "k": 256},
        {"m": m, "n": width, "k": width},
        lambda m, n, k: (
            2.0 * m * n * k,
            HALF * 1.0 * m * k + n * k / 2 + HALF * n * k / group + FLOAT * m * n,
        ),
    )


def dequantised_by_tiles(size: int) -> Program:
    own, group = module("test_dequantised_gemm"), 128
    tile = {"rows": 256, "columns": 128, "step": 64, "threads": 256, "num_stages": 3}

    def case(kernels, device, m, n, k):
        a = normal(m, k, device=device)
        packed, scales, weights = own.quantised(n, k, group, device)
        c = nothing(m, n, device=device).half()

        def ours():
            kernels[0](a, packed, scales, c)
            return [c]

        return Case(ours, lambda: [a.double() @ weights.double().T], lambda: [a @ weights.T])

    return Program(
        "GEMM with weights of 4 bits, unpacked to a shared tile",
        [own.low_bits, own.scaled_by, own.unpacked_to_a_tile],
        [lambda m, n, k: compiled(own.unpacked_to_a_tile, group, n, k, **tile)()],
        case,
        {"m": 67, "n": 48, "k": 256},
        {"m": size, "n": size, "k": size},
        lambda m, n, k: (
            2.0 * m * n * k,
            HALF * 1.0 * m * k + n * k / 2 + HALF * n * k / group + HALF * m * n,
        ),
    )


def roles_gemm(by_schedule: bool) -> Program:
    schedule, own = example("ws_schedule").matmul, module("test_roles").roles_gemm

    def kernel(M, N, K):
        if by_schedule:
            return schedule(M, N, K, 132, block_M=256)
        return tilelang.compile(own(M, N, K, columns=256), -1, target=TARGET)

    def case(kernels, device, M, N, K):
        a, b = normal(M, K, device=device), normal(K, N, device=device)
        return Case(lambda: [kernels[0](a, b)], lambda: [a.double() @ b.double()], lambda: [a @ b])

    return Program(
        "GEMM, roles by a schedule" if by_schedule else "GEMM, roles by hand",
        [schedule if by_schedule else own],
        [kernel],
        case,
        {"M": 256, "N": 256, "K": 256},
        {"M": 8192, "N": 8192, "K": 8192},
        lambda M, N, K: (2.0 * M * N * K, HALF * 1.0 * (M * K + K * N + M * N)),
    )


PROGRAMS = {
    "chunk_scan": chunk_scan,
    "chunk_scan_backward": chunk_scan_backward,
    "delta_rule": functools.partial(delta_rule, False),
    "delta_rule_of_channels": functools.partial(delta_rule, True),
    "delta_rule_backward": functools.partial(delta_rule_backward, False),
    "delta_rule_backward_of_channels": functools.partial(delta_rule_backward, True),
    "connections_before": connections_before,
    "connections_before_by_clusters": functools.partial(connections_before, clusters=True),
    "connections_behind": connections_behind,
    "normalise": normalise,
    "normalise_backward": normalise_backward,
    "rotary": rotary,
    "grouped_top_k": grouped_top_k,
    "dequantised_gemv": functools.partial(dequantised_gemm, 64, 64),
    "dequantised_gemm": functools.partial(dequantised_gemm, 256, 4096),
    "dequantised_by_tiles": functools.partial(dequantised_by_tiles, 4096),
    "roles_by_schedule": functools.partial(roles_gemm, True),
    "roles_by_hand": functools.partial(roles_gemm, False),
}
