"""The page of a timeline, of a kernel whose roles wait for each other."""

import pytest
import torch

import tilelang
from tilelang.emulator import timeline
from tilelang.tools.timeline_page import timeline_page


@pytest.fixture(scope="module")
def recorded(request):
    kernel = tilelang.compile(
        request.getfixturevalue("pipelined_gemm"),
        target="cuda -arch=sm_90a",
        execution_backend="emulate",
        checks=False,
    )
    a, b = (torch.randn(64, 256).half(), torch.randn(256, 64).half())
    c = torch.zeros(64, 64).half()
    with timeline() as t:
        kernel(a, b, c)
    torch.testing.assert_close(c, (a.float() @ b.float()).half(), rtol=1e-2, atol=1e-1)
    return t


def test_a_role_waits_for_the_other(recorded):
    waits = recorded.kernels[0].waits()
    full = [w for w in waits if "A_shared_full[0]" in w.words]
    assert full
    assert {w.warp for w in full} <= set(range(4, 8))
    assert full[0].released_by == 0
    # Stage 0 is filled again when the last consumer warp has arrived.
    (empty,) = [w for w in waits if "A_shared_empty[0]" in w.words]
    assert empty.warp == 0
    assert empty.released_by // 32 in range(4, 8)
    loads = [o for o in recorded.kernels[0].operations() if o.words.startswith("TMA load")]
    assert sum(o.count for o in loads) == 8
    assert all(o.is_done for o in loads)


def test_the_words_of_the_page(recorded):
    html = timeline_page(recorded)
    assert "<td>a phase of A_shared_full[0]</td><td>warp 4 to 7</td>" in html
    assert "TMA load of 8192 bytes to A_shared + 0" in html
    empty = tilelang.emulator.Timeline()
    empty.left_out = 3
    assert "There was no room for 3 more events" in timeline_page(empty)
    assert "No kernel that was launched has this block" in timeline_page(empty)


def test_the_page_in_a_browser(recorded, tmp_path, shown):
    path = recorded.save(tmp_path / "t.html")
    for scheme in ("light", "dark"):
        page = shown(path, "timeline", scheme)
        picture = page.locator("svg[aria-label='timeline of the block']")
        assert picture.locator("text", has_text="warp 7").is_visible()
        frame = picture.bounding_box()
        boxes = [box.bounding_box() for box in picture.locator("rect").all()]
        assert len(boxes) > 30
        assert all(frame["x"] <= box["x"] for box in boxes)
        assert all(box["x"] + box["width"] <= frame["x"] + frame["width"] for box in boxes)
        assert page.get_by_role("heading", name="Who waits for whom").is_visible()
