"""Macros that programs share. They are written in the language, as a user's are."""

from tilelang.macros.odd_rows import OddRows, load_odd_rows, shift_odd_rows
from tilelang.macros.rows import copy_rows
from tilelang.macros.scaled import add_scaled_products
from tilelang.macros.shares import add_shares

__all__ = [
    "OddRows",
    "add_scaled_products",
    "add_shares",
    "copy_rows",
    "load_odd_rows",
    "shift_odd_rows",
]
