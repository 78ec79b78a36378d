"""`determine_target` by the name of the module in which programs also look for it."""

from tilelang.utils.target import determine_target as determine_target
