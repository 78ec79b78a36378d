"""The file of a kernel: what is written is read, and nothing else is."""

import io
import json
import zipfile

import pytest

from tilelang.engine.launch_plan import KernelLaunch, LaunchPlan, TensorParam
from tilelang.runtime import KernelFileError
from tilelang.runtime.file import VERSION, Variant, read_kernel, write_kernel

M = ("var", "m")


def plan_of(name="scale", dtype="float32", outputs=(1,)):
    params = (TensorParam("A", dtype, (M,)), TensorParam("C", dtype, (M,)))
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"))
    kernel = KernelLaunch("scale_kernel", (("ceildiv", M, 128), 1, 1), (128, 1, 1), 0, args)
    return LaunchPlan(name, params, (kernel,), outputs, "scale.py:3")


@pytest.fixture
def written(tmp_path):
    path = tmp_path / "scale.tlk"
    variants = [
        Variant("sm_90a", plan_of(), bytes(range(256))),
        Variant("emulate", plan_of(), b"//"),
    ]
    write_kernel(path, variants, "1.2.3")
    return path


def test_what_is_written_is_read(written):
    found = read_kernel(written)
    assert (found.name, found.tilelang, found.archs) == ("scale", "1.2.3", ("sm_90a", "emulate"))
    assert [v.plan for v in found.variants] == [plan_of(), plan_of()]
    assert [v.binary for v in found.variants] == [bytes(range(256)), b"//"]
    assert [path.name for path in written.parent.iterdir()] == ["scale.tlk"]


def test_the_same_kernel_gives_the_same_bytes(written, tmp_path):
    again = tmp_path / "again.tlk"
    write_kernel(again, read_kernel(written).variants, "1.2.3")
    assert again.read_bytes() == written.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 21, 22, 0.3, 0.5, 0.9, -23, -1])
def test_a_file_that_is_cut_off_is_refused(written, size):
    content = written.read_bytes()
    kept = int(size * len(content)) if isinstance(size, float) else size % len(content)
    written.write_bytes(content[:kept])
    with pytest.raises(KernelFileError, match=r"scale.tlk'.*cut off"):
        read_kernel(written)


def test_a_changed_byte_is_found_or_is_of_no_meaning(written):
    """Zip keeps times and attributes, which say nothing here."""
    content, before, refused = written.read_bytes(), read_kernel(written), 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        written.write_bytes(changed)
        try:
            assert read_kernel(written) == before, place
        except KernelFileError:
            refused += 1
    assert refused > 0.8 * len(content)


def archive(members, compression=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


def members_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewritten(path, about=None, compression=zipfile.ZIP_STORED, **members):
    found = members_of(path)
    fields = {**json.loads(found["about.json"]), **(about or {})}
    return archive({**found, "about.json": json.dumps(fields), **members}, compression)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (lambda path: b"MZ" + bytes(400), "no kernel"),
        (lambda path: archive({"notes.txt": "hello"}), "without a kernel"),
        (lambda path: archive({"about.json": "[" * 100000}), "without a kernel"),
        (lambda path: archive({"about.json": '{"format": "torch", "version": 1}'}), "without a"),
        (lambda path: rewritten(path, {"version": VERSION + 1}), "version 2 .* up to 1; install"),
        (lambda path: rewritten(path, extra="x"), "members are not those"),
        (lambda path: rewritten(path, compression=zipfile.ZIP_DEFLATED), "compressed"),
        (lambda path: rewritten(path, {"variants": ["sm_90a", "sm_90a"]}), "two variants"),
        (lambda path: rewritten(path, {"variants": []}), "at least one"),
        (lambda path: rewritten(path, {"variants": ["../x"]}), "not written by tilelang"),
        (lambda path: rewritten(path, {"variants": 3}), "not written by tilelang"),
        (lambda path: rewritten(path, {"files": []}), "members are not those"),
        (lambda path: rewritten(path, **{"sm_90a/kernel.cubin": "x"}), "kernel.cubin is damaged"),
    ],
)
def test_another_file_is_refused(written, content, text):
    written.write_bytes(content(written))
    with pytest.raises(KernelFileError, match=text):
        read_kernel(written)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_kernel(tmp_path / "missing.tlk")
    with pytest.raises(FileNotFoundError):
        write_kernel(tmp_path / "no" / "folder.tlk", [Variant("sm_80", plan_of(), b"")], "1")


@pytest.mark.parametrize(
    ("variants", "text"),
    [
        (list, "at least one"),
        (lambda: [Variant("sm_80", plan_of(), b"")] * 2, "one architecture"),
        (lambda: [Variant("hopper", plan_of(), b"")], "'hopper': expected an architecture"),
        (
            lambda: [Variant("sm_80", plan_of(), b""), Variant("sm_90", plan_of(outputs=()), b"")],
            "sm_80 and sm_90 take or return different arguments",
        ),
    ],
)
def test_what_is_no_kernel_is_not_written(tmp_path, variants, text):
    with pytest.raises(ValueError, match=text):
        write_kernel(tmp_path / "a.tlk", variants(), "1")
    assert list(tmp_path.iterdir()) == []
