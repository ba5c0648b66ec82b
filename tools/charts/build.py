"""Builds what the report draws with, ``src/clearstate/report/assets/charts.js``, and its licences beside it.

    python tools/charts/build.py            # needs node and npm: package-lock.json pins the packages
    python tools/charts/build.py --check    # writes nothing; fails where the committed files differ

The same pins give the same bytes on every machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ASSETS = HERE.parents[1] / "src" / "clearstate" / "report" / "assets"

BUNDLED = {
    "echarts": ("LICENSE", "NOTICE", "licenses/LICENSE-d3"),
    "zrender": ("LICENSE",),
    "tslib": ("LICENSE.txt",),
    "@dagrejs/dagre": ("LICENSE",),
    "@dagrejs/graphlib": ("LICENSE",),
}
"""The packages whose code is in the bundle, and the files that hold their terms."""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("package.json", "package-lock.json", "index.js"):
            shutil.copyfile(HERE / name, place / name)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=place, check=True)
        packages = place / "node_modules"
        versions = {name: json.loads((packages / name / "package.json").read_text())["version"] for name in BUNDLED}
        banner = f"/*! {', '.join(f'{name} {versions[name]}' for name in BUNDLED)}: terms in charts-licences.txt */"
        words = "--bundle --minify --format=iife --global-name=charts --target=es2020 --legal-comments=none"
        esbuild = [packages / ".bin" / "esbuild", "index.js", *words.split(), f"--banner:js={banner}"]
        code = subprocess.run(esbuild, cwd=place, check=True, stdout=subprocess.PIPE).stdout
        made = {"charts.js": code, "charts-licences.txt": "\n".join(licences(packages, versions)).encode()}
    if "--check" in sys.argv:
        stale = [name for name, data in made.items() if (ASSETS / name).read_bytes() != data]
        print(*(f"{name} is not what the pinned packages give" for name in stale), sep="\n", end="\n" if stale else "")
        return bool(stale)
    for name, data in made.items():
        (ASSETS / name).write_bytes(data)
    return 0


def licences(packages: Path, versions: dict[str, str]) -> list[str]:
    """The terms of every package, under its name."""
    lines = ["charts.js is made of the packages below, unchanged but bundled and minified by esbuild.", ""]
    for name, files in BUNDLED.items():
        for file in files:
            title = f"{name} {versions[name]}: {file.rpartition('/')[2]}"
            text = (packages / name / file).read_text(encoding="utf-8")
            lines += ["=" * 100, title, "=" * 100, "", *(line.rstrip() for line in text.strip().splitlines()), ""]
    return lines


if __name__ == "__main__":
    sys.exit(main())
