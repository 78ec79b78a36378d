"""Keys of the configuration: known, old, unknown."""

import warnings

import pytest
import tvm

from tilelang.compat.pass_configs import WITHOUT_EFFECT, say_without_effect
from tilelang.transform import PassConfigKey, PassContext, normalize_pass_configs
from tilelang.utils.log import logger


def test_members_are_strings_and_tir_is_tirx():
    given = {PassConfigKey.TL_DISABLE_LOOP_UNSWITCHING: True, "tir.disable_vectorize": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert normalize_pass_configs(given) == {
            "tl.disable_loop_unswitching": True,
            "tirx.disable_vectorize": True,
        }


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(logger, "info", lambda text, *values: lines.append(text % values))
    say_without_effect.cache_clear()
    return lines


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_a_key_without_effect_is_left_out_and_the_log_says_so_once(said, key):
    for _ in range(2):
        assert normalize_pass_configs({PassConfigKey(key): True}) == {}
    assert said == [f"pass config {key} has no effect: {WITHOUT_EFFECT[key]}"]


def test_every_member_is_accepted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        counting = dict.fromkeys(PassConfigKey)
        PassContext(config=counting)
        given = normalize_pass_configs(counting)
    assert {*given} == {key.value for key in PassConfigKey} - {*WITHOUT_EFFECT}
    tvms = [key for key in given if key.startswith("tirx.")]
    assert {*tvms} <= {*tvm.ir.transform.PassContext.list_configs()}


def test_a_deprecated_key_warns_and_counts():
    with pytest.warns(DeprecationWarning, match=r"tl\.disable_tma_lower is deprecated"):
        assert normalize_pass_configs({"tl.disable_tma_lower": True})


def test_unknown_keys_are_refused():
    with pytest.raises(ValueError, match=r"found unknown key 'tl\.disable_everything'"):
        normalize_pass_configs({"tl.disable_everything": True})
