"""Keys of the configuration: known, old, unknown."""

import warnings

import pytest

from tilelang.transform import PassConfigKey, normalize_pass_configs


def test_members_are_strings_and_tir_is_tirx():
    given = {PassConfigKey.TL_DISABLE_LOOP_UNSWITCHING: True, "tir.disable_vectorize": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert normalize_pass_configs(given) == {
            "tl.disable_loop_unswitching": True,
            "tirx.disable_vectorize": True,
        }


@pytest.mark.parametrize("key", ["tl.disable_dynamic_tail_split", "tl.enable_lower_ldgstg"])
def test_old_keys_are_left_out_with_a_warning(key):
    with pytest.warns(UserWarning, match=f"pass config {key} has no effect: "):
        assert normalize_pass_configs({key: True}) == {}


def test_a_deprecated_key_warns_and_counts():
    with pytest.warns(DeprecationWarning, match=r"tl\.disable_tma_lower is deprecated"):
        assert normalize_pass_configs({"tl.disable_tma_lower": True})


def test_unknown_keys_are_refused():
    with pytest.raises(ValueError, match=r"found unknown key 'tl\.disable_everything'"):
        normalize_pass_configs({"tl.disable_everything": True})
