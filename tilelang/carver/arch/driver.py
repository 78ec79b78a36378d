"""Properties of devices, where users look for them (`tilelang.compat.device_properties`)."""

from tilelang.compat.device_properties import get_device_name as get_device_name
from tilelang.compat.device_properties import (
    get_max_dynamic_shared_size_bytes as get_max_dynamic_shared_size_bytes,
)
from tilelang.compat.device_properties import get_num_sms as get_num_sms
from tilelang.compat.device_properties import (
    get_shared_memory_per_block as get_shared_memory_per_block,
)
