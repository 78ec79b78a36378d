"""Where programs also look for what tile operators take: `tilelang.language` has it."""

from tilelang.language import GemmWarpPolicy as GemmWarpPolicy
