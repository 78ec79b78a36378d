"""The current device, where users look for it."""

from tilelang.compat.device_properties import get_current_device as get_current_device
