"""What all tests share: the package is the installed one, and its cache is not the user's.

Tests are about compiling, so kernels are not kept; those of the cache enable it. The emulator's
builds are.
"""

import functools
import gc
import importlib
import importlib.util
import itertools
import linecache
import logging
import os
import pathlib
import re
import resource
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONG = ROOT / "testing" / "sweep" / "tests.txt"
CUDA_ONLY = ROOT / "testing" / "cuda_only.txt"

# The marker `quick`, by files and folders of testing/python: each layer, in less than a minute.
QUICK = [
    ROOT / "testing" / "python" / name
    for name in (
        "tvm/test_mirror.py",
        "layout",
        "target",
        "language/test_function.py",
        "language/test_loops.py",
        "language/test_wrong_programs.py",
        "op/test_intrinsic_effects.py",
        "op/test_scan.py",
        "transform/test_program_verifier.py",
        "transform/tile/test_layout_inference.py",
        "transform/tile/test_pipeline_planning.py",
        "transform/tile/test_specialize_warps.py",
        "transform/thread/test_flatten_buffer.py",
        "transform/thread/test_split_host_device.py",
        "transform/thread/test_thread_sync_groups.py",
        "codegen",
        "cuda/test_nvrtc.py",
        "engine/test_device_codegen.py",
        "engine/test_launch_plan.py",
        "engine/test_tensor_map.py",
        "engine/test_tensor_map_spec.py",
        "runtime/test_runtime.py",
        "test_gemm.py",
        "packaging/test_layers.py",
        "docs",
        "test_behaviours.py",
    )
]
_QUICK = frozenset(QUICK)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forms", help="file to which the forms of generated code are added")
    parser.addoption(
        "--mirror", action="store_true", help="repeat on the GPU what runs in the emulator"
    )
    parser.addoption(
        "--sass", action="store_true", help="check the SASS of called kernels that have a wgmma"
    )
    parser.addoption("--seeds", type=int, default=0, help="random schedules of each launch")
    parser.addoption("--target", help="for kernels that name none, such as `hip -mcpu=gfx942`")
    parser.addoption("--screenshots", help="folder for pictures of the tools' pages")
    parser.addoption("--cpu", help="file to which the CPU seconds of each test are added")
    parser.addoption("--long", action="store_true", help=f"also the tests of {LONG.name}")


def pytest_configure(config: pytest.Config) -> None:
    spec = importlib.util.find_spec("tilelang")
    if spec is None:
        raise pytest.UsageError("tilelang is not installed here; repair: make test")
    asked_for = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    package = pathlib.Path(next(iter(spec.submodule_search_locations or ())))
    if package.resolve() == ROOT / "tilelang" and str(ROOT) not in asked_for:
        raise pytest.UsageError(
            "the tests found tilelang's source tree, not the installed package; repair: `make test`"
            " or `.venv/bin/pytest`, or PYTHONPATH=. to test the source tree on purpose"
        )
    gone = [str(path.relative_to(ROOT)) for path in QUICK if not path.exists()]
    if gone:
        raise pytest.UsageError(f"QUICK in {__file__} names what does not exist: {gone}")
    os.environ["PYTHONPATH"] = ":".join(asked_for)
    os.environ.setdefault("TILELANG_CACHE_DIR", kernel_cache(config))
    os.environ["TILELANG_DISABLE_CACHE"] = "1"
    os.environ["TILELANG_VERIFY_IR"] = "1"
    os.environ.setdefault("TILELANG_EMULATE_CHECKS", "1")
    # A worker has a core of its own, and those of torch wait for each other by spinning.
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not config.getoption("--long"):
        # Most of the tests' time is the building of kernels that run for milliseconds.
        os.environ.setdefault("TILELANG_EMULATE_OPTIMIZATION", "0")
    forms = config.getoption("--forms") and os.path.abspath(config.getoption("--forms"))
    if forms:
        from tilelang.testing.forms import watch

        watch(forms)
    if config.getoption("--sass"):
        from tilelang.testing import sass

        sass.watch()
    if config.getoption("--mirror"):
        from tilelang.testing import mirror
        from tilelang.testing.forms import recorder
        from tilelang.testing.gpu import require_gpu

        require_gpu()
        record = recorder(forms or None)
        mirror.watch(lambda kernel: record(kernel.artifact, "cuda"))


def cpu_seconds() -> float:
    """Of this process, and of those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """With ``--cpu``, a line of each test with its setup and teardown."""
    before = cpu_seconds()
    result = yield
    file = item.config.getoption("--cpu")
    if file:
        with (item.config.rootpath / file).open("a") as lines:
            lines.write(f"{cpu_seconds() - before:.3f} {item.nodeid}\n")
    return result


@functools.cache
def is_quick(path: pathlib.Path) -> bool:
    return not _QUICK.isdisjoint((path, *path.parents))


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """With ``-m quick`` other files are not imported, which takes seconds."""
    if config.option.markexpr != "quick" or not collection_path.is_file():
        return None
    return None if is_quick(collection_path) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What collecting tests makes is no garbage, and is as many objects as torch and TVM: looking
    for garbage among them, then and in each test, is a sixth of what collecting takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the quick tests.

    Leaves the tests that take long for what they show to `make sweep`, and to runs that name one;
    with ``--target hip`` also those of `CUDA_ONLY`.
    """
    for item in items:
        if is_quick(item.path):
            item.add_marker("quick")
    if any("::" in argument for argument in config.args):
        return
    left = [] if config.getoption("--long") else listed_in(LONG, items)
    if (config.getoption("--target") or "").startswith("hip"):
        left += listed_in(CUDA_ONLY, items)
    config.hook.pytest_deselected(items=left)
    gone = set(left)
    items[:] = [item for item in items if item not in gone]


def listed_in(file: pathlib.Path, items: list[pytest.Item]) -> list[pytest.Item]:
    """Those of the tests that a file names: one a line, without ``[..]`` for all parameters."""
    listed = {line for line in file.read_text().splitlines() if not line.startswith("#")}
    found = {name for item in items for name in (item.nodeid, item.nodeid.partition("[")[0])}
    files = {item.nodeid.partition("::")[0] for item in items}
    stale = sorted(n for n in listed - found if n.partition("::")[0] in files)
    if stale:
        raise pytest.UsageError(f"{file} names tests that do not exist: {', '.join(stale)}")
    return [i for i in items if not listed.isdisjoint((i.nodeid, i.nodeid.partition("[")[0]))]


def kernel_cache(config: pytest.Config) -> str:
    """A folder beside pytest's own notes, or a temporary one where the checkout is read-only."""
    # Without the plugin "cacheprovider" there is no such attribute.
    if getattr(config, "cache", None) is not None and os.access(ROOT, os.W_OK):
        # The cache itself makes a folder that nobody else can write to, which it asks for.
        return str(config.cache.mkdir("tilelang") / "cache")
    folder = tempfile.TemporaryDirectory(prefix="tilelang-tests-")
    config.add_cleanup(folder.cleanup)
    return folder.name


# Environment variables that decide what this package and the processes of its tests do. Other
# libraries keep things of their own in the environment, such as the folder of torch's compiler.
OURS = re.compile(r"(TILELANG|TL_|TVM_|STAND_IN_|PYTHON|LD_)\w*|PATH|HOME|TMPDIR|CC|CXX")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if OURS.fullmatch(name)}


_environments = pytest.StashKey[dict[str, str]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_environments] = environment()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test leaves the environment as it was. Whatever runs behind it in this process would be
    another test otherwise: what changes is put back, and fails the test that has changed it."""
    result = yield
    before, after = item.stash[_environments], environment()
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    for name in changed:
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]
    if changed:
        pytest.fail(
            f"the test left {', '.join(changed)} changed in os.environ, wanted them as they were; "
            "set variables by monkeypatch.setenv, or in the environment of a process",
            pytrace=False,
        )
    return result


@pytest.fixture(autouse=True)
def same_inputs() -> None:
    """A test has the same random inputs whatever ran before it, in any worker."""
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:
        # For devices that are not there the other notes the stack of its call, in a millisecond.
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def mirror_or_not(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--mirror``, tests of the marker `emulator_alone` have the emulator to themselves."""
    if not request.config.getoption("--mirror") or "emulator_alone" not in request.keywords:
        yield
        return
    from tilelang.testing import mirror

    with mirror.paused():
        yield


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What the logger `tilelang` says during a test."""
    logger, listener = logging.getLogger("tilelang"), _Listener()
    logger.addHandler(listener)
    yield listener.said
    logger.removeHandler(listener)


_texts = itertools.count()


@pytest.fixture
def define() -> Callable[..., dict[str, Any]]:
    """Run the text of a definition as if it stood in a file; returns its namespace."""
    import tilelang.language as T

    def run(text: str, **names: Any) -> dict[str, Any]:
        file = f"<kernel {next(_texts)}>"
        text = textwrap.dedent(text)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        namespace = {"T": T, **names}
        exec(compile(text, file, "exec"), namespace)
        return namespace

    return run


@pytest.fixture
def device() -> str:
    """Where the tensors of a kernel are whose backend is "auto"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def tensors_on_device(device: str) -> Iterator[None]:
    """Tensors that a test makes without a word about the device are on `device`."""
    with torch.device(device):
        yield


@pytest.fixture
def warp_threads() -> int:
    """Lanes of a warp, of the target that kernels are compiled for without a word about it."""
    from tilelang._ffi import get_function
    from tilelang.utils.target import arch_of, determine_target, kind_of

    target = determine_target("auto", return_object=True)
    return int(get_function("target.Describe")(kind_of(target), arch_of(target))["warp_threads"])


@pytest.fixture
def on_sm_90a(tensors_on_device: None) -> None:
    """Kernels for sm_90a run on such a GPU, without one in the emulator."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is not sm_90a")


@pytest.fixture(autouse=True)
def every_schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = request.config.getoption("--seeds")
    # Who reads what kernels print wants it once.
    if not seeds or "capfd" in request.fixturenames:
        return
    from tilelang.testing.every_schedule import EverySchedule

    # `tilelang.jit` is the decorator to who imports it as an attribute.
    kernel = importlib.import_module("tilelang.jit.kernel")
    plain = kernel.emulated_adapter
    monkeypatch.setattr(
        kernel, "emulated_adapter", lambda *given: EverySchedule(plain(*given), seeds)
    )


@pytest.fixture(scope="session", autouse=True)
def target_of_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is compiled without a word about its target is for that of ``--target``."""
    asked_for = request.config.getoption("--target")
    if asked_for is None:
        yield
        return
    from tilelang.utils.target import determine_target

    with determine_target(asked_for, return_object=True):
        yield


@pytest.fixture(scope="session", autouse=True)
def empty_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where tests run: Python processes that they start would find the source tree in its root."""
    before = pathlib.Path.cwd()
    os.chdir(tmp_path_factory.mktemp("directory"))
    yield
    os.chdir(before)
