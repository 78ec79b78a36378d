"""The language, which is one for all targets: ``import tilelang.language.common as T``.

What a target lacks is refused when a program is compiled for it.
"""

import sys

import tilelang.language

sys.modules[__name__] = tilelang.language
