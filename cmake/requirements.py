"""Print what pyproject.toml requires at run time, or for the extra that is named, a line each.

python cmake/requirements.py [EXTRA]
"""

import pathlib
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # comes with scikit-build-core

path = pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml"
project = tomllib.loads(path.read_text())["project"]
extras = project["optional-dependencies"]
print(*(extras[sys.argv[1]] if len(sys.argv) > 1 else project["dependencies"]), sep="\n")
