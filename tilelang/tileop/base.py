"""`GemmWarpPolicy` by the name of the module in which programs also look for it."""

from tilelang.language import GemmWarpPolicy as GemmWarpPolicy
