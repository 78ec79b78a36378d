"""The wall time of a tuning run: 200 configurations of one GEMM, on this machine or through an
executor: processes, Ray, Dask."""

import argparse
import contextlib
import os
import time
from concurrent.futures import ProcessPoolExecutor

import torch
from tuned_gemm import config_of, matmul, reference, supply

import tilelang
from tilelang.autotuner import AutoTuner, RayExecutor
from tilelang.carver import CUDA, MatmulTemplate


@contextlib.contextmanager
def executor_of(name, workers, gpus):
    """An executor by its name; None for this machine's own processes."""
    if name == "processes":
        with ProcessPoolExecutor(workers) as pool:
            yield pool
    elif name == "ray":
        import ray

        ray.init(include_dashboard=False)
        with RayExecutor(workers, num_gpus=gpus / workers) as pool:
            yield pool
        ray.shutdown()
    elif name == "dask":
        from distributed import Client, LocalCluster

        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            yield client.get_executor()
    else:
        yield None


def main():
    """Tunes, and prints the time and what was found; small sizes in the emulator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emulate", action="store_true", help="small sizes, without a GPU")
    parser.add_argument("--size", type=int, nargs=3, default=[4096, 4096, 4096])
    parser.add_argument("--configs", type=int, default=200)
    parser.add_argument("--executor", choices=["processes", "ray", "dask"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--early-stop", action="store_true")
    parser.add_argument("--table", action="store_true", help="print all trials")
    arguments = parser.parse_args()
    tilelang.set_log_level("ERROR")
    gpus = 0 if arguments.emulate else torch.cuda.device_count()
    if arguments.emulate:
        os.environ["TILELANG_EXECUTION_BACKEND"] = "emulate"
        os.environ.setdefault("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    elif not gpus:
        raise SystemExit("found no GPU, wanted one to time kernels on; --emulate runs small sizes")
    size = [64, 64, 64] if arguments.emulate else arguments.size
    arch = CUDA(os.environ.get("TILELANG_DEFAULT_TARGET", "auto"))
    hints = MatmulTemplate(*size).with_arch(arch).recommend_hints(arguments.configs)
    with executor_of(arguments.executor, arguments.workers, gpus) as executor:
        tuner = AutoTuner.from_kernel(
            lambda **config: matmul.get_tir(*size, **config), [config_of(hint) for hint in hints]
        )
        tuner.set_compile_args(out_idx=-1)
        tuner.set_profile_args(ref_prog=reference, supply_prog=supply, timeout=60)
        # Workers time side by side where each has a GPU of its own.
        timing_workers = min(arguments.workers, gpus) or 1
        tuner.set_executors(executor, executor, timing_workers)
        start = time.perf_counter()
        result = tuner.run(early_stop=arguments.early_stop)
        seconds = time.perf_counter() - start
    if arguments.table:
        print(result.table())
    failed = sum(trial.latency is None for trial in result.trials)
    stopped = sum(trial.stopped for trial in result.trials)
    where = torch.cuda.get_device_name() if gpus else "the emulator"
    through = f", through {arguments.executor}" if arguments.executor else ""
    print(
        f"{len(result.trials)} configurations of {' x '.join(map(str, size))} on {where}{through}: "
        f"{seconds:.1f} s; {failed} failed, {stopped} given up\n"
        f"best: {result.latency:.4f} ms with {result.config}"
    )


if __name__ == "__main__":
    main()
