"""Print the lower bounds of pyproject.toml as pip constraints: each `>=` becomes `==`."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
requirements = project["dependencies"] + [line for name in extras if name != "dev" for line in extras[name]]
for line in sorted(set(requirements)):
    if not line.startswith("coresetvi["):
        name, bound = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", line).groups()
        print(f"{name}=={bound}")
