"""Where users look for the type of a launcher: `base`. Launchers are `tilelang.runtime.adapter`."""
