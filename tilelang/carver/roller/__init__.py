"""What a configuration consists of: `Hint`, and the order of a kernel's tiles."""

from tilelang.carver.roller.hint import Hint as Hint
from tilelang.carver.roller.rasterization import NoRasterization as NoRasterization
from tilelang.carver.roller.rasterization import Rasterization as Rasterization
from tilelang.carver.roller.rasterization import Rasterization2DColumn as Rasterization2DColumn
from tilelang.carver.roller.rasterization import Rasterization2DRow as Rasterization2DRow
